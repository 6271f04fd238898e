//! Copies between page-locked memory and a device, and between device buffers.

use bytemuck::Pod;

use super::order::{check_device, check_lengths, ordered_copy};
use super::peer::introduce;
use crate::driver::{DevicePtr, Driver};
use crate::error::Result;
use crate::memory::sealed::{Sealed, SealedMut};
use crate::memory::{DeviceSlice, DeviceSliceMut, PinnedSlice, PinnedSliceMut};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Stream {
    /// Copies `src`, in page-locked memory, to `dst` on this stream's device. Does not block;
    /// ordered on this stream, and after conflicting uses of the two buffers on any other.
    ///
    /// Both sides are buffers or views of equal length. `src` can be read meanwhile;
    /// [`PinnedBuf::write`](crate::PinnedBuf::write) waits for the copy.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](crate::ErrorKind::LengthMismatch),
    /// [`WrongDevice`](crate::ErrorKind::WrongDevice),
    /// [`StreamCapturing`](crate::ErrorKind::StreamCapturing),
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess): nothing was enqueued. Errors of the
    /// runtime: the contents of `dst` are unspecified.
    pub fn upload<'s, 'd, T: Pod>(
        &self,
        src: impl Into<PinnedSlice<'s, T>>,
        dst: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        const OPERATION: &str = "Stream::upload";
        let (src, mut dst) = (src.into(), dst.into());
        check_lengths(OPERATION, src.len(), dst.len())?;
        check_device(OPERATION, self, &[dst.context()])?;
        let (bytes, from, to) = (src.len() * size_of::<T>(), src.as_ptr(), dst.as_device_ptr());
        if bytes == 0 {
            return self.nothing(OPERATION);
        }
        let operands = [src.reading(), dst.writing()];
        ordered_copy(
            self,
            OPERATION,
            &operands,
            bytes,
            |driver, raw| {
                src.parts().try_for_each(|part| {
                    let to = to + part.start as DevicePtr;
                    // SAFETY: the stream is live. Both views lie in one block and one allocation of
                    // `bytes` from their addresses on, and so does each part, within one
                    // registration; the uses that `ordered_copy` records keep both valid until
                    // retired, and keep the host from writing the source.
                    unsafe {
                        driver.copy_h2d(raw, to, from.byte_add(part.start).cast(), part.len())
                    }
                })
            },
            || format!("copying {bytes} bytes from the host"),
        )
    }

    /// Copies `src` on this stream's device to `dst` in page-locked memory. Does not block; ordered
    /// as [`upload`](Self::upload).
    ///
    /// [`PinnedBuf::read`](crate::PinnedBuf::read) waits for the copy, and for no other but perhaps
    /// up to seven small ones right behind it; see [`Ticket`].
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload).
    pub fn download<'s, 'd, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        dst: impl Into<PinnedSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        const OPERATION: &str = "Stream::download";
        let (src, mut dst) = (src.into(), dst.into());
        check_lengths(OPERATION, src.len(), dst.len())?;
        check_device(OPERATION, self, &[src.context()])?;
        let (bytes, from, to) = (src.len() * size_of::<T>(), src.as_device_ptr(), dst.as_mut_ptr());
        if bytes == 0 {
            return self.nothing(OPERATION);
        }
        let mut parts = dst.as_slice().parts();
        let operands = [src.reading(), dst.writing()];
        ordered_copy(
            self,
            OPERATION,
            &operands,
            bytes,
            |driver, raw| {
                parts.try_for_each(|part| {
                    let from = from + part.start as DevicePtr;
                    // SAFETY: the stream is live. Both views lie in one allocation and one block of
                    // `bytes` from their addresses on, and so does each part, within one
                    // registration; the uses that `ordered_copy` records keep both valid until
                    // retired, and keep the host from reading and writing the destination.
                    unsafe {
                        driver.copy_d2h(raw, to.byte_add(part.start).cast(), from, part.len())
                    }
                })
            },
            || format!("copying {bytes} bytes to the host"),
        )
    }

    /// Copies `src` to `dst`, both in device memory: of one device, or of two, one of which this
    /// stream belongs to. Does not block; ordered as [`upload`](Self::upload).
    ///
    /// Between two devices the copy is direct where they can reach each other's memory, which the
    /// first copy between them enables (`cudaDeviceEnablePeerAccess`, `cudaMemPoolSetAccess`);
    /// elsewhere it goes by way of the host.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload).
    pub fn copy<'s, 'd, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        dst: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        const OPERATION: &str = "Stream::copy";
        let (src, mut dst) = (src.into(), dst.into());
        check_lengths(OPERATION, src.len(), dst.len())?;
        check_device(OPERATION, self, &[src.context(), dst.context()])?;
        let bytes = src.len() * size_of::<T>();
        if bytes == 0 {
            return self.nothing(OPERATION);
        }
        let (from, from_device) = (src.as_device_ptr(), src.context().ordinal());
        let (to, to_device) = (dst.as_device_ptr(), dst.context().ordinal());
        let driver = src.context().driver(OPERATION)?;
        introduce(src.context(), dst.context(), driver);
        let enqueue = |driver: &dyn Driver, raw| {
            if from_device == to_device {
                // SAFETY: the stream is live. The views lie in one allocation each, of two
                // different buffers, since one is borrowed exclusively; the uses that
                // `ordered_copy` records keep both valid until retired.
                unsafe { driver.copy_d2d(raw, to, from, bytes) }
            } else {
                // SAFETY: as above; the devices are those of the buffers.
                unsafe { driver.copy_peer(raw, to, to_device, from, from_device, bytes) }
            }
        };
        let operands = [src.reading(), dst.writing()];
        ordered_copy(self, OPERATION, &operands, bytes, enqueue, || {
            format!("copying {bytes} bytes from device {from_device} to device {to_device}")
        })
    }

    /// The outcome of an operation on no bytes: the stream must accept work, but gets none.
    pub(super) fn nothing(&self, operation: &'static str) -> Result<Ticket> {
        self.timeline.open(operation)?;
        Ok(Ticket::done())
    }
}
