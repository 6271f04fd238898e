//! A stream that both crates use.

use std::ptr::null_mut;
use std::sync::Arc;

use bytemuck::Pod;
use cuda_core::{AllocationLease, DeviceBuffer, DeviceCopy, IntoResult as _, RawDeviceBuffer, sys};
use pinlane::{
    Device, DeviceBuf, DeviceSlice, DeviceSliceMut, PinnedSlice, PinnedSliceMut, Stream, Ticket,
};

use crate::lending::{self, Lending};
use crate::memory::{Part, Source, Target};
use crate::{Error, Result};

/// A stream of cuda-core that pinlane uses, too. Cheap to clone.
///
/// [`pinlane`](Self::pinlane) is the same stream for pinlane's own buffers. The other methods are
/// for copies with memory of pinlane on one side and memory of cuda-core on the other, by either
/// crate.
///
/// pinlane orders streams that share a buffer of its own. cuda-core does not order streams that
/// share a `DeviceBuffer`: it refuses the second use, if the two conflict, until the first is
/// complete. Copies of this crate count as uses for both, and get the same refusals, as
/// [`InUse`](Error::InUse). The stream lives until neither of them needs it any more.
#[derive(Clone, Debug)]
pub struct SharedStream {
    cuda_core: Arc<cuda_core::Stream>,
    pinlane: Stream,
}

impl SharedStream {
    /// Uses a stream of cuda-core in pinlane. Does not block.
    ///
    /// # Errors
    ///
    /// [`OtherContext`](Error::OtherContext) if the stream is not of the primary context of
    /// `device`, which `Context::new` gives, or `device` is an emulated one; what
    /// `cuDevicePrimaryCtxRetain` reports.
    pub fn new(device: &Device, stream: &Arc<cuda_core::Stream>) -> Result<Self> {
        let context = stream.context();
        let number = context.ordinal();
        let what = if device.is_emulated() {
            format!("cuda-core does not know the emulated device {device:?}: open a GPU")
        } else if usize::try_from(device.ordinal()) != Ok(number) {
            format!("the stream is of device {number}, not of {device:?}: open that one")
        } else if primary_context(context.cu_device())? != context.cu_ctx() {
            format!("the stream is of a context of its own of device {number}: use Context::new")
        } else {
            let owner = Owner(Some(Arc::clone(stream)));
            // SAFETY: a stream of this device, by its number, and of its primary context, which is
            // that of pinlane. `owner` keeps it from being destroyed, or, if other code owns it, is
            // why that code keeps it (`borrow_raw`, `borrow_with_owner`).
            let pinlane = unsafe { device.borrow_stream_of(owner, stream.cu_stream().cast()) };
            return Ok(SharedStream { cuda_core: Arc::clone(stream), pinlane });
        };
        Err(Error::OtherContext(what))
    }

    /// The stream for cuda-core.
    #[must_use]
    pub fn cuda_core(&self) -> &Arc<cuda_core::Stream> {
        &self.cuda_core
    }

    /// The stream for pinlane. Its clones and tickets keep the stream alive.
    #[must_use]
    pub fn pinlane(&self) -> &Stream {
        &self.pinlane
    }

    /// Copies `src`, in page-locked memory of pinlane, to `dst`, in memory of cuda-core. Does not
    /// block. Ordered on this stream, after conflicting uses of `src` on any stream; later uses of
    /// `src` are ordered after it. `dst` may be dropped at once: cuda-core frees it after the copy.
    ///
    /// Both sides have the same length. Parts are views, and `(&mut buffer, range)`.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::upload`]; [`InUse`](Error::InUse) if `dst` is in use on another stream;
    /// [`OtherContext`](Error::OtherContext) if it is not of this stream's context; what CUDA
    /// reports to cuda-core, or cuda-core has noted of earlier calls.
    pub fn upload<'s, T: Pod>(
        &self,
        src: impl Into<PinnedSlice<'s, T>>,
        dst: impl Target<T>,
    ) -> Result<Ticket> {
        let src = src.into();
        self.copy(dst.part()?, true, |dst| self.pinlane.upload(src, dst))
    }

    /// Copies `src`, in memory of cuda-core, to `dst`, in page-locked memory of pinlane. Does not
    /// block; ordered as [`upload`](Self::upload). [`PinnedBuf::read`](pinlane::PinnedBuf::read)
    /// waits for the copy.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload); [`InUse`](Error::InUse) if another stream writes to `src`.
    pub fn download<'d, T: Pod>(
        &self,
        src: impl Source<T>,
        dst: impl Into<PinnedSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        let dst = dst.into();
        self.copy(src.part(), false, |src| self.pinlane.download(&*src, dst))
    }

    /// Copies `src`, pageable memory, to `dst`, in memory of cuda-core, through pinlane's
    /// page-locked slots. Returns when `src` may be reused; see [`Stream::upload_slice`]. Ordered
    /// as [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload), and those of [`Stream::upload_slice`].
    pub fn upload_slice<T: Pod>(&self, src: &[T], dst: impl Target<T>) -> Result<Ticket> {
        self.copy(dst.part()?, true, |dst| self.pinlane.upload_slice(src, dst))
    }

    /// Copies `src`, in memory of cuda-core, to `dst`, pageable memory, and returns when the data
    /// has arrived; see [`Stream::download_slice`]. Ordered as [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As for [`download`](Self::download), and those of [`Stream::download_slice`].
    pub fn download_slice<T: Pod>(&self, src: impl Source<T>, dst: &mut [T]) -> Result<()> {
        self.copy(src.part(), false, |src| self.pinlane.download_slice(&*src, dst))
    }

    /// Lends page-locked memory to copies of cuda-core that read it after they return, which are
    /// `unsafe` because they cannot keep it: here pinlane does. `work` enqueues them on this
    /// stream. [`write`](pinlane::PinnedBuf::write) waits for all that `work` has enqueued, and for
    /// nothing later; the buffer may be dropped at once. Blocks until pending writes of the device
    /// to the memory are complete, because `work` may read it.
    ///
    /// ```no_run
    /// # fn example(stream: pinlane_cuda_core::SharedStream, host: pinlane::PinnedBuf<f32>)
    /// # -> pinlane_cuda_core::Result<()> {
    /// use cuda_core::DeviceBuffer;
    ///
    /// let gpu = stream.lend_host(&host, |host| {
    ///     // SAFETY: a use on this stream, outside of captures, which `lend_host` waits for.
    ///     unsafe { DeviceBuffer::from_host_async_unchecked(stream.cuda_core(), host) }
    /// })??;
    /// # drop(gpu); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Stream::foreign`] and of [`PinnedSlice::read`]: `work` was not called.
    /// [`Captured`](Error::Captured) if `work` has left the stream captured.
    pub fn lend_host<'s, T: Pod, R>(
        &self,
        src: impl Into<PinnedSlice<'s, T>>,
        work: impl FnOnce(&[T]) -> R,
    ) -> Result<R> {
        let (src, lending) = (src.into(), Lending::new(&self.cuda_core));
        let host = src.read()?;
        // SAFETY: safe code can only read the memory, in `work`. What unsafe code enqueues is on
        // this stream, and reads, by the documentation. The stream lives as long as `self`.
        // `during` ends a capture.
        let done =
            unsafe { self.pinlane.foreign(&[&src], &mut [], |_| lending.during(|| work(host))) };
        lending.outcome(done)
    }

    /// Lends device memory of pinlane to calls of cuda-core that read it, as the `DeviceBuffer`
    /// that they take. They are ordered after the writes that pinlane knows, and pinlane's later
    /// writes are ordered after them. Does not block. While `work` runs, cuda-core refuses uses of
    /// it on other streams.
    ///
    /// # Safety
    ///
    /// * The memory is of this stream's device.
    /// * When `work` returns, nothing is left by which the memory could be used later: no clone of
    ///   the buffer's storage, and no graph with its address. Copies and launches that are on this
    ///   stream may run later.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::foreign`]: `work` was not called. [`Captured`](Error::Captured) if `work`
    /// has left the stream captured.
    pub unsafe fn lend_device<'s, T: Pod + DeviceCopy, R>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        work: impl FnOnce(&DeviceBuffer<T>) -> R,
    ) -> Result<R> {
        let (src, lending) = (src.into(), Lending::new(&self.cuda_core));
        // SAFETY: memory of this device, which is not used through the buffer after `work`, but by
        // what is on the stream, by the preconditions.
        let (buffer, _lease) = unsafe { self.buffer_at(src.as_device_ptr(), src.len()) }?;
        // SAFETY: `work` uses the memory on this stream: the lease makes cuda-core refuse others.
        // It reads, by the shared reference, and leaves nothing, by the preconditions. The stream
        // lives as long as `self`. `during` ends a capture.
        let done =
            unsafe { self.pinlane.foreign(&[&src], &mut [], |_| lending.during(|| work(&buffer))) };
        lending.outcome(done)
    }

    /// As [`lend_device`](Self::lend_device), for calls that write.
    ///
    /// # Safety
    ///
    /// As for [`lend_device`](Self::lend_device). `work` does not move the buffer away, either.
    ///
    /// # Errors
    ///
    /// As for [`lend_device`](Self::lend_device).
    pub unsafe fn lend_device_mut<'d, T: Pod + DeviceCopy, R>(
        &self,
        dst: impl Into<DeviceSliceMut<'d, T>>,
        work: impl FnOnce(&mut DeviceBuffer<T>) -> R,
    ) -> Result<R> {
        let (mut dst, lending) = (dst.into(), Lending::new(&self.cuda_core));
        // SAFETY: as in `lend_device`.
        let (mut buffer, _lease) = unsafe { self.buffer_at(dst.as_device_ptr(), dst.len()) }?;
        // SAFETY: as in `lend_device`; the view is exclusive, and named as written.
        let done = unsafe {
            self.pinlane.foreign(&[], &mut [&mut dst], |_| lending.during(|| work(&mut buffer)))
        };
        lending.outcome(done)
    }

    /// pinlane's memory as cuda-core's, which refuses uses on other streams while the lease lives.
    ///
    /// # Safety
    ///
    /// * `ptr .. ptr + len` is memory of this stream's device, aligned for `T`. It stays allocated
    ///   as long as the buffer, or what it leaves behind, is used.
    unsafe fn buffer_at<T: Pod + DeviceCopy>(
        &self,
        ptr: u64,
        len: usize,
    ) -> Result<(DeviceBuffer<T>, AllocationLease)> {
        let (bytes, context) = (len * size_of::<T>(), Arc::clone(self.cuda_core.context()));
        // SAFETY: it outlives its uses, by the precondition; the context is retained by the stream.
        let storage = unsafe { RawDeviceBuffer::borrowed_from_raw_parts(ptr, bytes, context) };
        let lease = storage.acquire(&self.cuda_core, true, false)?;
        // SAFETY: any bytes are valid elements, because `T: Pod`.
        Ok((unsafe { DeviceBuffer::from_storage_copy(storage, len) }?, lease))
    }

    /// A copy of pinlane's, on this stream, with memory of cuda-core. The lease is kept until the
    /// copy is complete.
    fn copy<T: Pod, R>(
        &self,
        Part { storage, len }: Part,
        writes: bool,
        copy: impl FnOnce(&mut DeviceBuf<T>) -> pinlane::Result<R>,
    ) -> Result<R> {
        let (ours, theirs) = (self.cuda_core.context(), storage.context());
        if ours != theirs {
            let (number, other) = (ours.ordinal(), theirs.ordinal());
            let what = format!("the stream is of device {number}, the memory of device {other}");
            return Err(Error::OtherContext(format!("{what}, or of another context of it")));
        }
        // What cuda-core has noted ends the call here, and not between the copy and its event.
        ours.bind_to_thread()?;
        // The lease queries events, which would end a capture.
        if lending::is_captured(&self.cuda_core)? {
            return Err(Error::Captured);
        }
        let lease = storage.acquire(&self.cuda_core, writes, false)?;
        // SAFETY: the storage of `len` elements lies in one allocation of this device, aligned for
        // `T`. The lease keeps it allocated until the copy is complete. Conflicting work on other
        // streams was complete when the lease was acquired, and is refused until the copy is.
        let mut memory =
            unsafe { self.pinlane.device().borrow_memory(storage.cu_deviceptr(), len) }?;
        let copied = copy(&mut memory);
        // If no event can be had, cuda-core keeps the memory, and this stream has it for good.
        lease.retain_until_complete(&self.cuda_core)?;
        Ok(copied?)
    }
}

/// The primary context of a device, which pinlane has retained for good.
fn primary_context(device: sys::CUdevice) -> Result<sys::CUcontext> {
    let mut context = null_mut();
    // SAFETY: a device of a context. The second call undoes the first.
    unsafe {
        sys::cuDevicePrimaryCtxRetain(&mut context, device).result()?;
        sys::cuDevicePrimaryCtxRelease_v2(device).result()?;
    }
    Ok(context)
}

/// Keeps cuda-core's stream alive for pinlane. pinlane drops it in any of its calls, which leave
/// the thread's current context as it was; cuda-core changes it when a stream drops.
struct Owner(Option<Arc<cuda_core::Stream>>);

impl Drop for Owner {
    fn drop(&mut self) {
        let mut current = null_mut();
        // SAFETY: the pointer is valid.
        let known = unsafe { sys::cuCtxGetCurrent(&mut current) }.result().is_ok();
        drop(self.0.take());
        if known {
            // SAFETY: it was current on this thread, or none was. A context that ends with the
            // stream is not destroyed: it is a primary one, which pinlane has retained for good.
            let _ = unsafe { sys::cuCtxSetCurrent(current) };
        }
    }
}
