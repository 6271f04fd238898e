//! Work of this crate's own kernels on device buffers.

use bytemuck::Pod;

use super::order::{check_device, check_lengths, ordered};
use crate::driver::MAX_PATTERN;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::sealed::{Sealed, SealedMut};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Stream {
    /// Sets every element of `dst` to `value`. Does not block; ordered as [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for elements of more than 64 bytes; otherwise as for
    /// [`upload`](Self::upload).
    pub fn fill<'d, T: Pod>(
        &self,
        dst: impl Into<DeviceSliceMut<'d, T>>,
        value: T,
    ) -> Result<Ticket> {
        const OPERATION: &str = "Stream::fill";
        let mut dst = dst.into();
        check_device(OPERATION, self, &[dst.context()])?;
        if size_of::<T>() > MAX_PATTERN {
            return Err(Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                format!("elements of {} bytes", size_of::<T>()),
                "fill with elements of at most 64 bytes, or upload the contents",
            ));
        }
        let (bytes, to) = (dst.len() * size_of::<T>(), dst.as_device_ptr());
        if bytes == 0 {
            return self.nothing(OPERATION);
        }
        let operands = [dst.writing()];
        let ((), ticket) = ordered(
            self,
            OPERATION,
            &operands,
            // SAFETY: the stream is live. The view lies in one allocation of `bytes` from its address
            // on, and the recorded use keeps it valid until retired. The pattern has 1 to 64 bytes:
            // checked above, and `bytes` is not 0.
            |driver, raw| unsafe { driver.fill(raw, to, bytes, bytemuck::bytes_of(&value)) },
            || format!("filling {bytes} bytes"),
        )?;
        Ok(ticket)
    }

    /// Writes the 64-bit [`checksum`](crate::checksum) of the bytes of `src` to the one element of
    /// `out`, both in the memory of this stream's device. Does not block; ordered as
    /// [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](ErrorKind::LengthMismatch) unless `out` has one element; otherwise as for
    /// [`upload`](Self::upload).
    pub fn checksum<'s, 'd, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        out: impl Into<DeviceSliceMut<'d, u64>>,
    ) -> Result<Ticket> {
        const OPERATION: &str = "Stream::checksum";
        let (src, mut out) = (src.into(), out.into());
        check_lengths(OPERATION, 1, out.len())?;
        check_device(OPERATION, self, &[src.context()])?;
        check_device(OPERATION, self, &[out.context()])?;
        let (bytes, from) = (src.len() * size_of::<T>(), src.as_device_ptr());
        let to = out.as_device_ptr();
        let operands = [src.reading(), out.writing()];
        let ((), ticket) = ordered(
            self,
            OPERATION,
            &operands,
            // SAFETY: the stream is live. `src` lies in one allocation of `bytes` from its address on;
            // `out` is a `u64` of another buffer, since it is borrowed exclusively, and aligned as
            // one; the recorded uses keep both valid until retired.
            |driver, raw| unsafe { driver.checksum(raw, from, bytes, to) },
            || format!("summing {bytes} bytes"),
        )?;
        Ok(ticket)
    }
}
