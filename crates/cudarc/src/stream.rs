//! A stream that both crates use.

use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{
    CudaContext, CudaStream, CudaView, DevicePtr, DeviceSlice as _, SyncOnDrop, result,
};
use pinlane::{
    Device, DeviceBuf, DeviceSlice, DeviceSliceMut, PinnedSlice, PinnedSliceMut, Stream, Ticket,
};

use crate::lent::{LentDevice, LentHost, Terms};
use crate::memory::{Source, Target};
use crate::{Error, Result};

/// A stream of cudarc that pinlane uses, too. Cheap to clone.
///
/// [`pinlane`](Self::pinlane) is the same stream for pinlane's own buffers. The other methods are
/// for copies with memory of pinlane on one side and memory of cudarc on the other, by either
/// crate.
///
/// Both crates keep the order that they know: pinlane orders streams that share a buffer of its
/// own, and cudarc orders streams that share a `CudaSlice`. The stream lives until neither of them
/// needs it any more.
#[derive(Clone, Debug)]
pub struct SharedStream {
    cudarc: Arc<CudaStream>,
    pinlane: Stream,
}

impl SharedStream {
    /// Uses a stream of cudarc in pinlane. Makes no call of CUDA.
    ///
    /// Only the calling thread can use cudarc's per-thread default stream. On other threads calls
    /// fail with [`WrongThread`](pinlane::ErrorKind::WrongThread).
    ///
    /// # Errors
    ///
    /// [`OtherContext`](Error::OtherContext) if the stream is not of the primary context of
    /// `device`, which `CudaContext::new` gives, or `device` is an emulated one.
    pub fn new(device: &Device, stream: &Arc<CudaStream>) -> Result<Self> {
        let context = stream.context();
        let number = context.ordinal();
        let what = if device.is_emulated() {
            format!("cudarc does not know the emulated device {device:?}: open a GPU")
        } else if usize::try_from(device.ordinal()) != Ok(number) {
            format!("the stream is of device {number}, not of {device:?}: open that one")
        } else if !context.is_primary() {
            format!(
                "the stream is of a context of its own of device {number}: use CudaContext::new"
            )
        } else {
            let owner = Owner(Some(Arc::clone(stream)));
            // SAFETY: a stream of this device, by its number, and of its primary context, which is
            // that of pinlane. `owner` keeps it from being destroyed, or, if other code owns it, is
            // why that code keeps it (`wrap_borrowed_stream`).
            let pinlane = unsafe { device.borrow_stream_of(owner, stream.cu_stream().cast()) };
            return Ok(SharedStream { cudarc: Arc::clone(stream), pinlane });
        };
        Err(Error::OtherContext(what))
    }

    /// The stream for cudarc.
    #[must_use]
    pub fn cudarc(&self) -> &Arc<CudaStream> {
        &self.cudarc
    }

    /// The stream for pinlane. Its clones and tickets keep the stream alive.
    #[must_use]
    pub fn pinlane(&self) -> &Stream {
        &self.pinlane
    }

    /// Copies `src`, in page-locked memory of pinlane, to `dst`, in memory of cudarc. Does not
    /// block. Ordered on this stream, after conflicting uses of `src` that pinlane knows and of
    /// `dst` that cudarc knows, on any stream; later uses are ordered after it in the same way.
    ///
    /// Both sides have the same length. Parts are views: `buffer.slice(..)`, `slice.slice_mut(..)`.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::upload`]; [`OtherContext`](Error::OtherContext) if `dst` is not of this
    /// stream's context; what CUDA reports to cudarc, or cudarc has noted of earlier calls.
    pub fn upload<'s, 'd, T: Pod>(
        &self,
        src: impl Into<PinnedSlice<'s, T>>,
        dst: impl Target<'d, T>,
    ) -> Result<Ticket> {
        self.write(dst, |dst| self.pinlane.upload(src, dst))
    }

    /// Copies `src`, in memory of cudarc, to `dst`, in page-locked memory of pinlane. Does not
    /// block; ordered as [`upload`](Self::upload). [`PinnedBuf::read`](pinlane::PinnedBuf::read)
    /// waits for the copy.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload).
    pub fn download<'s, 'd, T: Pod>(
        &self,
        src: impl Source<'s, T>,
        dst: impl Into<PinnedSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        self.read(src, |src| self.pinlane.download(src, dst))
    }

    /// Copies `src`, pageable memory, to `dst`, in memory of cudarc, through pinlane's page-locked
    /// slots. Returns when `src` may be reused; see [`Stream::upload_slice`]. Ordered as
    /// [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload), and those of [`Stream::upload_slice`].
    pub fn upload_slice<'d, T: Pod>(&self, src: &[T], dst: impl Target<'d, T>) -> Result<Ticket> {
        self.write(dst, |dst| self.pinlane.upload_slice(src, dst))
    }

    /// Copies `src`, in memory of cudarc, to `dst`, pageable memory, and returns when the data has
    /// arrived; see [`Stream::download_slice`]. Ordered as [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload), and those of [`Stream::download_slice`].
    pub fn download_slice<'s, T: Pod>(&self, src: impl Source<'s, T>, dst: &mut [T]) -> Result<()> {
        self.read(src, |src| self.pinlane.download_slice(src, dst))
    }

    /// Lends page-locked memory to cudarc's own copies, as the [`HostSlice`] that they read.
    /// `work` enqueues them on this stream; it does not block. They are ordered after the writes
    /// that pinlane knows, and [`write`](pinlane::PinnedBuf::write) waits for them, for all that
    /// `work` has enqueued, and for nothing later.
    ///
    /// ```no_run
    /// # fn example(stream: pinlane_cudarc::SharedStream, host: pinlane::PinnedBuf<f32>)
    /// # -> pinlane_cudarc::Result<()> {
    /// let gpu = stream.lend_host(&host, |host| stream.cudarc().clone_htod(host))??;
    /// # drop(gpu); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Stream::foreign`]. [`OtherStream`](Error::OtherStream) and
    /// [`Captured`](Error::Captured) if a call in `work` named the memory for another stream, or in
    /// a capture: that call copied nothing. If `work` leaves the stream captured, the capture is
    /// ended, and that is [`Captured`](Error::Captured), too.
    ///
    /// [`HostSlice`]: cudarc::driver::HostSlice
    pub fn lend_host<'s, T: Pod, R>(
        &self,
        src: impl Into<PinnedSlice<'s, T>>,
        work: impl FnOnce(&LentHost<'_, T>) -> R,
    ) -> Result<R> {
        let (src, terms) = (src.into(), Terms::new(&self.cudarc));
        // SAFETY: initialised and allocated, and not written by the host, as the view of a buffer;
        // the stream may read it, in `foreign`. Lent by `&`.
        let host = unsafe { LentHost::new(&terms, src.as_ptr().cast_mut(), src.len()) };
        // SAFETY: the work is on this stream, and reads: `host` gives its address out for that
        // only. The stream lives as long as `self`. `during` ends a capture.
        let done =
            unsafe { self.pinlane.foreign(&[&src], &mut [], |_| terms.during(|| work(&host))) };
        outcome(&terms, done)
    }

    /// As [`lend_host`](Self::lend_host), for copies that write: `memcpy_dtoh`. They are ordered
    /// after all uses that pinlane knows, and [`read`](pinlane::PinnedBuf::read) waits for them.
    ///
    /// # Errors
    ///
    /// As for [`lend_host`](Self::lend_host).
    pub fn lend_host_mut<'d, T: Pod, R>(
        &self,
        dst: impl Into<PinnedSliceMut<'d, T>>,
        work: impl FnOnce(&mut LentHost<'_, T>) -> R,
    ) -> Result<R> {
        let (mut dst, terms) = (dst.into(), Terms::new(&self.cudarc));
        // SAFETY: initialised and allocated, and not accessed by the host, as the exclusive view
        // of a buffer; the stream may read and write it, in `foreign`.
        let mut host = unsafe { LentHost::new(&terms, dst.as_mut_ptr(), dst.len()) };
        // SAFETY: the work is on this stream: `host` gives its address out for that only. The
        // stream lives as long as `self`. `during` ends a capture.
        let done = unsafe {
            self.pinlane.foreign(&[], &mut [&mut dst], |_| terms.during(|| work(&mut host)))
        };
        outcome(&terms, done)
    }

    /// Lends device memory of pinlane to cudarc, as the [`DevicePtr`] that its calls read. Ordered
    /// as [`lend_host`](Self::lend_host).
    ///
    /// # Errors
    ///
    /// As for [`lend_host`](Self::lend_host). A call that named the memory for another stream, or
    /// in a capture, got the address 0.
    pub fn lend_device<'s, T: Pod, R>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        work: impl FnOnce(&LentDevice<'_, T>) -> R,
    ) -> Result<R> {
        let (src, terms) = (src.into(), Terms::new(&self.cudarc));
        let device = LentDevice::new(&terms, src.as_device_ptr(), src.len());
        // SAFETY: the work is on this stream, and reads: `device` gives its address out for that
        // only. The stream lives as long as `self`. `during` ends a capture.
        let done =
            unsafe { self.pinlane.foreign(&[&src], &mut [], |_| terms.during(|| work(&device))) };
        outcome(&terms, done)
    }

    /// As [`lend_device`](Self::lend_device), for calls that write, as the
    /// [`DevicePtrMut`](cudarc::driver::DevicePtrMut) that they take.
    ///
    /// # Errors
    ///
    /// As for [`lend_device`](Self::lend_device).
    pub fn lend_device_mut<'d, T: Pod, R>(
        &self,
        dst: impl Into<DeviceSliceMut<'d, T>>,
        work: impl FnOnce(&mut LentDevice<'_, T>) -> R,
    ) -> Result<R> {
        let (mut dst, terms) = (dst.into(), Terms::new(&self.cudarc));
        let mut device = LentDevice::new(&terms, dst.as_device_ptr(), dst.len());
        // SAFETY: the work is on this stream: `device` gives its address out for that only. The
        // stream lives as long as `self`. `during` ends a capture.
        let done = unsafe {
            self.pinlane.foreign(&[], &mut [&mut dst], |_| terms.during(|| work(&mut device)))
        };
        outcome(&terms, done)
    }

    /// A copy of pinlane's that writes cudarc's memory on this stream.
    fn write<'d, T: Pod, R>(
        &self,
        dst: impl Target<'d, T>,
        copy: impl FnOnce(&mut DeviceBuf<T>) -> pinlane::Result<R>,
    ) -> Result<R> {
        let dst = dst.view_mut();
        let (context, len) = (self.context_of(dst.stream())?, dst.len());
        let (ptr, used) = dst.view_ptr_mut(&self.cudarc);
        self.copy(context, ptr, len, used, copy)
    }

    /// A copy of pinlane's that reads cudarc's memory on this stream.
    fn read<'s, T: Pod, R>(
        &self,
        src: impl Source<'s, T>,
        copy: impl FnOnce(&DeviceBuf<T>) -> pinlane::Result<R>,
    ) -> Result<R> {
        let src: CudaView<'_, T> = src.view();
        let (context, len) = (self.context_of(src.stream())?, src.len());
        let (ptr, used) = src.device_ptr(&self.cudarc);
        // cudarc has one event for all reads, and does not wait for it here: it would forget an
        // earlier read of another stream.
        if let SyncOnDrop::Record(Some((earlier, _))) = &used {
            self.cudarc.wait(earlier)?;
        }
        self.copy(context, ptr, len, used, |memory| copy(memory))
    }

    /// This stream's context, if `theirs` is of it too. An error that the context has noted ends
    /// the call, as in cudarc.
    fn context_of(&self, theirs: &CudaStream) -> Result<&CudaContext> {
        let context = self.cudarc.context();
        if theirs.context() != context {
            let (ours, theirs) = (context.ordinal(), theirs.context().ordinal());
            let what = format!("the stream is of device {ours}, the memory of device {theirs}");
            return Err(Error::OtherContext(format!("{what}, or of another context of it")));
        }
        context.bind_to_thread()?;
        Ok(context)
    }

    /// A copy from or to cudarc's memory at `ptr`, which this stream may use until `used` drops.
    /// cudarc waits and records by events, and notes its errors in the context.
    fn copy<T: Pod, R>(
        &self,
        context: &CudaContext,
        ptr: u64,
        len: usize,
        used: impl Sized,
        copy: impl FnOnce(&mut DeviceBuf<T>) -> pinlane::Result<R>,
    ) -> Result<R> {
        context.check_err()?;
        let device = self.pinlane.device();
        // SAFETY: the memory of a view lies in one allocation of this context, aligned for `T`.
        // cudarc frees it in the order of its events: `used` records one after the copy, which is
        // the only use. cudarc has made this stream wait for earlier work, and makes later work
        // wait for that event.
        let mut memory = unsafe { device.borrow_memory(ptr, len) }?;
        let copied = copy(&mut memory);
        drop(used);
        if let Err(error) = context.check_err() {
            // No event may say when the copy is done.
            self.pinlane.synchronize()?;
            return Err(error.into());
        }
        Ok(copied?)
    }
}

/// What came of lending memory.
fn outcome<R>(terms: &Terms<'_>, done: pinlane::Result<(R, Ticket)>) -> Result<R> {
    terms.outcome()?;
    Ok(done?.0)
}

/// Keeps cudarc's stream alive for pinlane. pinlane drops it in any of its calls, which leave the
/// thread's current context as it was; cudarc would change it to destroy the stream.
struct Owner(Option<Arc<CudaStream>>);

impl Drop for Owner {
    fn drop(&mut self) {
        let current = result::ctx::get_current();
        drop(self.0.take());
        if let Ok(current) = current {
            // SAFETY: it was current on this thread, or none was. The stream's context is not
            // destroyed: it is a primary one, which pinlane has retained for good.
            let _ = unsafe { result::ctx::set_current(current.unwrap_or(std::ptr::null_mut())) };
        }
    }
}
