//! Bare functions of the runtime. A build without CUDA opens no GPU and does not call them.

#[cfg(pinlane_cuda)]
pub use linked::*;
#[cfg(not(pinlane_cuda))]
pub use missing::*;

/// The direction of `cudaMemcpy` and similar calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    H2D = 1,
    D2H = 2,
}

#[cfg(pinlane_cuda)]
mod linked {
    use std::ffi::c_void;
    use std::ptr::{self, NonNull};

    use pinlane::Stream;

    use super::Way;

    const PORTABLE: u32 = 1; // cudaHostAllocPortable

    // The library links the runtime into this program.
    unsafe extern "C" {
        fn cudaMemcpyAsync(
            dst: *mut c_void,
            src: *const c_void,
            bytes: usize,
            kind: i32,
            stream: *mut c_void,
        ) -> i32;
        fn cudaMemcpy(dst: *mut c_void, src: *const c_void, bytes: usize, kind: i32) -> i32;
        fn cudaMemcpyPeerAsync(
            dst: *mut c_void,
            dst_device: i32,
            src: *const c_void,
            src_device: i32,
            bytes: usize,
            stream: *mut c_void,
        ) -> i32;
        fn cudaHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: u32) -> i32;
        fn cudaFreeHost(ptr: *mut c_void) -> i32;
    }

    pub fn host_alloc(bytes: usize) -> NonNull<u8> {
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` can be written; the call has no other precondition.
        let code = unsafe { cudaHostAlloc(&mut memory, bytes, PORTABLE) };
        assert_eq!(code, 0, "cudaHostAlloc");
        NonNull::new(memory.cast()).expect("memory")
    }

    /// # Safety
    ///
    /// * `ptr` came from [`host_alloc`], is idle and is not used afterwards.
    pub unsafe fn host_free(ptr: NonNull<u8>) {
        // SAFETY: the caller's precondition.
        let code = unsafe { cudaFreeHost(ptr.as_ptr().cast()) };
        assert_eq!(code, 0, "cudaFreeHost");
    }

    /// # Safety
    ///
    /// * The preconditions of `cudaMemcpyAsync`.
    #[inline]
    pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize, way: Way, stream: &Stream) {
        let stream = stream.as_raw();
        // SAFETY: the caller's precondition.
        let code = unsafe { cudaMemcpyAsync(dst.cast(), src.cast(), bytes, way as i32, stream) };
        assert_eq!(code, 0, "cudaMemcpyAsync");
    }

    /// # Safety
    ///
    /// * The preconditions of `cudaMemcpy`.
    pub unsafe fn copy_and_wait(dst: *mut u8, src: *const u8, bytes: usize, way: Way) {
        // SAFETY: the caller's precondition.
        let code = unsafe { cudaMemcpy(dst.cast(), src.cast(), bytes, way as i32) };
        assert_eq!(code, 0, "cudaMemcpy");
    }

    /// # Safety
    ///
    /// * The preconditions of `cudaMemcpyPeerAsync`; each address is followed by its device.
    pub unsafe fn copy_peer(
        (dst, dst_device): (*mut u8, i32),
        (src, src_device): (*const u8, i32),
        bytes: usize,
        stream: &Stream,
    ) {
        let stream = stream.as_raw();
        // SAFETY: the caller's precondition.
        let code = unsafe {
            cudaMemcpyPeerAsync(dst.cast(), dst_device, src.cast(), src_device, bytes, stream)
        };
        assert_eq!(code, 0, "cudaMemcpyPeerAsync");
    }
}

#[cfg(not(pinlane_cuda))]
mod missing {
    use std::ptr::NonNull;

    use pinlane::Stream;

    use super::Way;

    const NO_GPU: &str = "a build without CUDA has opened no GPU";

    pub unsafe fn copy(_: *mut u8, _: *const u8, _: usize, _: Way, _: &Stream) {
        unreachable!("{NO_GPU}");
    }

    pub unsafe fn copy_and_wait(_: *mut u8, _: *const u8, _: usize, _: Way) {
        unreachable!("{NO_GPU}");
    }

    pub unsafe fn copy_peer(_: (*mut u8, i32), _: (*const u8, i32), _: usize, _: &Stream) {
        unreachable!("{NO_GPU}");
    }

    pub fn host_alloc(_: usize) -> NonNull<u8> {
        unreachable!("{NO_GPU}");
    }

    pub unsafe fn host_free(_: NonNull<u8>) {
        unreachable!("{NO_GPU}");
    }
}
