//! Work of this crate's own kernels on device buffers.

use bytemuck::Pod;

use super::order::Door;
use super::transfer::check_no_overlap;
use crate::driver::{Driver, MAX_PATTERN};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::sealed::{Sealed, SealedMut};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

/// Refuses a pattern that is too long for the kernel.
pub(crate) fn check_pattern(door: Door<'_>, pattern: &[u8], bytes: usize) -> Result<()> {
    if pattern.len() > MAX_PATTERN {
        let what = format!("a pattern of more than {MAX_PATTERN} bytes");
        let remedy = "fill with at most 64 bytes that repeat, or upload the contents";
        return Err(Error::new(ErrorKind::Unsupported, door.operation, what, remedy));
    }
    if pattern.is_empty() || !bytes.is_multiple_of(pattern.len()) {
        let what = format!("{bytes} bytes are no multiple of the pattern's {}", pattern.len());
        let remedy = "fill a whole number of patterns";
        return Err(Error::new(ErrorKind::LengthMismatch, door.operation, what, remedy));
    }
    Ok(())
}

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
        self.fill_bytes(dst.into().cast::<u8>()?, bytemuck::bytes_of(&value))
    }

    /// Repeats `pattern` over `dst`.
    pub(crate) fn fill_bytes(
        &self,
        mut dst: DeviceSliceMut<'_, u8>,
        pattern: &[u8],
    ) -> Result<Ticket> {
        let door = self.door("Stream::fill");
        door.check_device(&[dst.context()])?;
        let (bytes, to) = (dst.len(), dst.as_device_ptr());
        if bytes == 0 {
            return door.nothing();
        }
        check_pattern(door, pattern, bytes)?;
        let operands = [dst.writing()];
        // SAFETY: the stream is live. The view lies in one allocation of `bytes` from its address
        // on, and the recorded use keeps it valid until retired. The pattern has 1 to 64 bytes:
        // checked above.
        let fill = |driver: &dyn Driver, raw| unsafe { driver.fill(raw, to, bytes, pattern) };
        let describe = || format!("filling {bytes} bytes");
        door.moving(bytes).ordered(&operands, Fencing::Own, fill, describe)
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
        let door = self.door("Stream::checksum");
        let (src, mut out) = (src.into(), out.into());
        door.check_lengths::<u64>(1, out.len())?;
        door.check_device(&[src.context()])?;
        door.check_device(&[out.context()])?;
        check_no_overlap(door.operation, &src.as_bytes(), &out.as_slice().as_bytes())?;
        let (bytes, from) = (src.len() * size_of::<T>(), src.as_device_ptr());
        let to = out.as_device_ptr();
        let operands = [src.reading(), out.writing()];
        // SAFETY: the stream is live. `src` lies in one allocation of `bytes` from its address on;
        // `out` is a `u64` of another buffer, since it is borrowed exclusively, and aligned as one;
        // the recorded uses keep both valid until retired.
        let sum = |driver: &dyn Driver, raw| unsafe { driver.checksum(raw, from, bytes, to) };
        let describe = || format!("summing {bytes} bytes");
        door.moving(bytes).ordered(&operands, Fencing::Own, sum, describe)
    }
}
