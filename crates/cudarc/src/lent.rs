//! pinlane's memory, as cudarc's calls take it.
//!
//! cudarc asks memory for its address with the stream that will use it, and gets a guard that it
//! drops when the use is enqueued. The guard can only record one of cudarc's events, not always
//! does so, and reports no error. So it is not what pinlane relies on: [`SharedStream`] records the
//! uses itself, after the closure that made them.
//!
//! # Invariants
//!
//! * A lent buffer gives its address out only for uses on the stream that it was lent for, on the
//!   thread that it was lent on, and not while that stream is captured.
//! * It exists only during the closure that it was lent to, by reference: `&` for reads, `&mut` for
//!   reads and writes.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE};
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, HostSlice, SyncOnDrop, result,
};

use crate::{Error, Result};

/// What a buffer is lent for. Neither `Send` nor `Sync`: on another thread the handle of the
/// per-thread default stream names another stream.
pub(crate) struct Terms<'a> {
    stream: &'a Arc<CudaStream>,
    /// Why a call did not get the memory.
    refused: Cell<Option<Error>>,
}

impl<'a> Terms<'a> {
    pub(crate) fn new(stream: &'a Arc<CudaStream>) -> Self {
        Terms { stream, refused: Cell::new(None) }
    }

    /// Whether a call for `stream` may have the memory.
    fn allow(&self, stream: &CudaStream) -> bool {
        let refused = if *stream != **self.stream {
            Error::OtherStream
        } else {
            match is_captured(stream) {
                Ok(false) => return true,
                Ok(true) => Error::Captured,
                Err(error) => error,
            }
        };
        self.refused.set(Some(refused));
        false
    }

    /// Calls the closure that gets the memory. The stream is not captured afterwards, also if the
    /// closure panics.
    pub(crate) fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Ends<'t, 'a>(&'t Terms<'a>);
        impl Drop for Ends<'_, '_> {
            fn drop(&mut self) {
                let stream = self.0.stream;
                self.0.refused.set(Some(match is_captured(stream) {
                    Ok(false) => return,
                    Ok(true) => Error::Captured,
                    Err(error) => error,
                }));
                // SAFETY: a live stream.
                if let Ok(graph) = unsafe { result::stream::end_capture(stream.cu_stream()) }
                    && !graph.is_null()
                {
                    // SAFETY: the graph is of the capture that has just ended, and only here.
                    let _ = unsafe { result::graph::destroy(graph) };
                }
            }
        }
        let _ends = Ends(self);
        work()
    }

    /// What came of it.
    pub(crate) fn outcome(&self) -> Result<()> {
        self.refused.take().map_or(Ok(()), Err)
    }
}

/// Leaves what cudarc has noted in its context to cudarc's own calls.
fn is_captured(stream: &CudaStream) -> Result<bool> {
    // SAFETY: a live context.
    unsafe { result::ctx::set_current(stream.context().cu_ctx()) }?;
    // SAFETY: a live stream.
    let status = unsafe { result::stream::is_capturing(stream.cu_stream()) }?;
    Ok(status != CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Page-locked memory of pinlane that is [lent](crate::SharedStream::lend_host) to cudarc, as its
/// [`HostSlice`]: `memcpy_htod` takes `&LentHost`, `memcpy_dtoh` takes `&mut LentHost`.
pub struct LentHost<'a, T> {
    terms: &'a Terms<'a>,
    ptr: *mut T,
    len: usize,
}

impl<'a, T: Pod> LentHost<'a, T> {
    /// # Safety
    ///
    /// * `ptr .. ptr + len` is initialised and stays allocated during `'a`.
    /// * During `'a` the host does not write to it, and does not access it if this is lent by
    ///   `&mut`. Work on the stream of `terms` may read it, and write it if this is lent by `&mut`.
    pub(crate) unsafe fn new(terms: &'a Terms<'a>, ptr: *mut T, len: usize) -> Self {
        LentHost { terms, ptr, len }
    }
}

impl<T: Pod> HostSlice<T> for LentHost<'_, T> {
    fn len(&self) -> usize {
        self.len
    }

    /// An empty slice, if the memory was not lent for `stream`: then nothing is copied.
    unsafe fn stream_synced_slice<'a>(
        &'a self,
        stream: &'a CudaStream,
    ) -> (&'a [T], SyncOnDrop<'a>) {
        let len = if self.terms.allow(stream) { self.len } else { 0 };
        // SAFETY: initialised, allocated, and not written by the host, by the preconditions of
        // `new`; what the device writes is ordered by the stream that the caller uses it on.
        (unsafe { std::slice::from_raw_parts(self.ptr, len) }, SyncOnDrop::Sync(None))
    }

    /// As [`stream_synced_slice`](Self::stream_synced_slice).
    unsafe fn stream_synced_mut_slice<'a>(
        &'a mut self,
        stream: &'a CudaStream,
    ) -> (&'a mut [T], SyncOnDrop<'a>) {
        let len = if self.terms.allow(stream) { self.len } else { 0 };
        // SAFETY: initialised, allocated, and not accessed by the host, by the preconditions of
        // `new`; exclusive, because `self` is.
        (unsafe { std::slice::from_raw_parts_mut(self.ptr, len) }, SyncOnDrop::Sync(None))
    }
}

/// Device memory of pinlane that is [lent](crate::SharedStream::lend_device) to cudarc, as its
/// [`DevicePtr`] and, by `&mut`, [`DevicePtrMut`].
pub struct LentDevice<'a, T> {
    terms: &'a Terms<'a>,
    ptr: sys::CUdeviceptr,
    len: usize,
    element: PhantomData<*mut T>,
}

impl<'a, T: Pod> LentDevice<'a, T> {
    /// `len` elements from `ptr` on.
    pub(crate) fn new(terms: &'a Terms<'a>, ptr: sys::CUdeviceptr, len: usize) -> Self {
        LentDevice { terms, ptr, len, element: PhantomData }
    }

    /// The address; 0 if the memory was not lent for `stream`, which cudarc's calls then refuse.
    fn for_use(&self, stream: &CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'static>) {
        let ptr = if self.terms.allow(stream) { self.ptr } else { 0 };
        (ptr, SyncOnDrop::Sync(None))
    }
}

impl<T: Pod> DeviceSlice<T> for LentDevice<'_, T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.terms.stream
    }
}

impl<T: Pod> DevicePtr<T> for LentDevice<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.for_use(stream)
    }
}

impl<T: Pod> DevicePtrMut<T> for LentDevice<'_, T> {
    fn device_ptr_mut<'a>(
        &'a mut self,
        stream: &'a CudaStream,
    ) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.for_use(stream)
    }
}
