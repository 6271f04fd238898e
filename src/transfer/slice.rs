//! Copies between ordinary memory and a device.

use bytemuck::Pod;

use super::entry::{Entry, List};
use super::order::{check_device, check_lengths};
use super::path::Path;
use super::staging::Engine;
use super::team::Task;
use super::uses::{Uses, Way};
use crate::error::Result;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Stream {
    /// Copies `src`, ordinary memory, to `dst` on this stream's device. Returns when `src` may be
    /// reused or dropped; the ticket says when the data has arrived. Ordered as
    /// [`upload`](Self::upload).
    ///
    /// Up to 64 KiB go through page-locked memory at once, and the call does not wait for the
    /// stream. More goes through a ring of page-locked slots, filled by the [copy
    /// team](crate::CopyTeam) while the device copies: the call first waits until the stream has
    /// come to it, and takes until nearly all is on the device.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload); [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory) if
    /// no memory can be page-locked.
    pub fn upload_slice<'d, T: Pod>(
        &self,
        src: &[T],
        dst: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        const OPERATION: &str = "Stream::upload_slice";
        let mut dst = dst.into();
        check_lengths(OPERATION, src.len(), dst.len())?;
        check_device(OPERATION, self, &[dst.context()])?;
        let bytes = size_of_val(src);
        if bytes == 0 {
            return self.nothing(OPERATION);
        }
        let engine = Engine::of(self)?;
        if bytes <= engine.options.direct_bytes
            && let Some(mut staged) = engine.small_block::<T>(src.len())?
        {
            staged.write()?.copy_from_slice(src);
            return self.upload(&staged, dst.reborrow());
        }
        let entry = Entry::from_host(bytemuck::cast_slice(src), dst.into());
        let uses = Uses::new(self, OPERATION, List::all(std::slice::from_ref(&entry)), Way::Up)?;
        engine.upload(uses, Path::Copies, Task::Copying)
    }

    /// Copies `src` on this stream's device to `dst`, ordinary memory, and returns when the data
    /// has arrived. Ordered as [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As for [`upload_slice`](Self::upload_slice); errors of the runtime leave the contents of
    /// `dst` unspecified.
    pub fn download_slice<'s, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        dst: &mut [T],
    ) -> Result<()> {
        const OPERATION: &str = "Stream::download_slice";
        let src = src.into();
        check_lengths(OPERATION, src.len(), dst.len())?;
        check_device(OPERATION, self, &[src.context()])?;
        let bytes = size_of_val(dst);
        if bytes == 0 {
            return self.nothing(OPERATION).map(drop);
        }
        let engine = Engine::of(self)?;
        if bytes <= engine.options.direct_bytes
            && let Some(mut staged) = engine.small_block::<T>(src.len())?
        {
            self.download(src, &mut staged)?;
            dst.copy_from_slice(staged.read()?);
            return Ok(());
        }
        let entry = Entry::to_host(bytemuck::cast_slice_mut(dst), src.into());
        let uses = Uses::new(self, OPERATION, List::all(std::slice::from_ref(&entry)), Way::Down)?;
        engine.download(uses, Path::Copies, &mut |_| {})
    }
}
