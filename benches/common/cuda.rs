//! Bare functions of CUDA: of the runtime, or of the driver in a build without a toolkit. A build
//! without CUDA opens no GPU and does not call them.

#[cfg(pinlane_toolkit)]
pub use linked::*;
#[cfg(all(pinlane_cuda, not(pinlane_toolkit)))]
pub use looked_up::*;
#[cfg(not(pinlane_cuda))]
pub use missing::*;

/// The direction of `cudaMemcpy` and similar calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    H2D = 1,
    D2H = 2,
}

/// Lines of `width` bytes, a pitch apart on each side.
#[derive(Clone, Copy)]
pub struct Lines {
    pub dst: *mut u8,
    pub dst_pitch: usize,
    pub src: *const u8,
    pub src_pitch: usize,
    pub width: usize,
    pub height: usize,
}

#[cfg(pinlane_toolkit)]
mod linked {
    use std::ffi::c_void;
    use std::ptr::{self, NonNull};

    use pinlane::Stream;

    use super::{Lines, Way};

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
        fn cudaMemcpy2DAsync(
            dst: *mut c_void,
            dst_pitch: usize,
            src: *const c_void,
            src_pitch: usize,
            width: usize,
            height: usize,
            kind: i32,
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
    /// * The preconditions of `cudaMemcpy2DAsync`.
    pub unsafe fn copy_lines(lines: Lines, way: Way, stream: &Stream) {
        let Lines { dst, dst_pitch, src, src_pitch, width, height } = lines;
        let (dst, src, stream) = (dst.cast(), src.cast(), stream.as_raw());
        // SAFETY: the caller's precondition.
        let code = unsafe {
            cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, way as i32, stream)
        };
        assert_eq!(code, 0, "cudaMemcpy2DAsync");
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

#[cfg(all(pinlane_cuda, not(pinlane_toolkit)))]
mod looked_up {
    use std::ffi::{CStr, c_void};
    use std::mem::transmute;
    use std::ptr::{self, NonNull};
    use std::sync::{LazyLock, OnceLock};

    use pinlane::Stream;

    use super::{Lines, Way};

    const PORTABLE: u32 = 1; // CU_MEMHOSTALLOC_PORTABLE

    type Copy = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> i32;
    type CopyAndWait = unsafe extern "C" fn(u64, u64, usize) -> i32;
    type CopyLines = unsafe extern "C" fn(*const Plane, *mut c_void) -> i32;
    type CopyPeer = unsafe extern "C" fn(u64, usize, u64, usize, usize, *mut c_void) -> i32;
    type HostAlloc = unsafe extern "C" fn(*mut *mut c_void, usize, u32) -> i32;
    type HostFree = unsafe extern "C" fn(*mut c_void) -> i32;
    type Retain = unsafe extern "C" fn(*mut usize, i32) -> i32;
    type SetCurrent = unsafe extern "C" fn(usize) -> i32;

    /// `CUDA_MEMCPY2D` of CUDA 3.2 and later.
    #[repr(C)]
    struct Plane {
        src_x: usize,
        src_y: usize,
        src: Place,
        dst_x: usize,
        dst_y: usize,
        dst: Place,
        width: usize,
        height: usize,
    }

    #[repr(C)]
    struct Place {
        kind: u32,
        host: *mut c_void,
        device: u64,
        array: *mut c_void,
        pitch: usize,
    }

    struct Functions {
        copy: Copy,
        copy_and_wait: CopyAndWait,
        copy_lines: CopyLines,
        copy_peer: CopyPeer,
        host_alloc: HostAlloc,
        host_free: HostFree,
        retain: Retain,
        set_current: SetCurrent,
    }

    static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
        // SAFETY: a C string; the library has opened the same one.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "a GPU was opened with it");
        let symbol = |name: &CStr| {
            // SAFETY: an open library, and a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?}");
            found
        };
        // SAFETY: the functions of these names have these signatures.
        unsafe {
            Functions {
                copy: transmute::<*mut c_void, Copy>(symbol(c"cuMemcpyAsync")),
                copy_and_wait: transmute::<*mut c_void, CopyAndWait>(symbol(c"cuMemcpy")),
                copy_lines: transmute::<*mut c_void, CopyLines>(symbol(c"cuMemcpy2DAsync_v2")),
                copy_peer: transmute::<*mut c_void, CopyPeer>(symbol(c"cuMemcpyPeerAsync")),
                host_alloc: transmute::<*mut c_void, HostAlloc>(symbol(c"cuMemHostAlloc")),
                host_free: transmute::<*mut c_void, HostFree>(symbol(c"cuMemFreeHost")),
                retain: transmute::<*mut c_void, Retain>(symbol(c"cuDevicePrimaryCtxRetain")),
                set_current: transmute::<*mut c_void, SetCurrent>(symbol(c"cuCtxSetCurrent")),
            }
        }
    });

    fn context(device: i32) -> usize {
        static CONTEXTS: [OnceLock<usize>; 64] = [const { OnceLock::new() }; 64];
        *CONTEXTS[device as usize].get_or_init(|| {
            let mut context = 0;
            // SAFETY: `context` can be written.
            let code = unsafe { (FUNCTIONS.retain)(&mut context, device) };
            assert_eq!(code, 0, "cuDevicePrimaryCtxRetain");
            context
        })
    }

    /// A program that calls the driver has made a context current once for each thread.
    fn make_current() {
        thread_local! {
            static CURRENT: () = {
                // SAFETY: a live context.
                let code = unsafe { (FUNCTIONS.set_current)(context(0)) };
                assert_eq!(code, 0, "cuCtxSetCurrent");
            };
        }
        CURRENT.with(|()| ());
    }

    pub fn host_alloc(bytes: usize) -> NonNull<u8> {
        make_current();
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` can be written; the call has no other precondition.
        let code = unsafe { (FUNCTIONS.host_alloc)(&mut memory, bytes, PORTABLE) };
        assert_eq!(code, 0, "cuMemHostAlloc");
        NonNull::new(memory.cast()).expect("memory")
    }

    /// # Safety
    ///
    /// * `ptr` came from [`host_alloc`], is idle and is not used afterwards.
    pub unsafe fn host_free(ptr: NonNull<u8>) {
        make_current();
        // SAFETY: the caller's precondition.
        let code = unsafe { (FUNCTIONS.host_free)(ptr.as_ptr().cast()) };
        assert_eq!(code, 0, "cuMemFreeHost");
    }

    /// # Safety
    ///
    /// * The preconditions of `cuMemcpyAsync`.
    #[inline]
    pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize, _way: Way, stream: &Stream) {
        make_current();
        let (dst, src, stream) = (dst as u64, src as u64, stream.as_raw());
        // SAFETY: the caller's precondition.
        let code = unsafe { (FUNCTIONS.copy)(dst, src, bytes, stream) };
        assert_eq!(code, 0, "cuMemcpyAsync");
    }

    /// # Safety
    ///
    /// * The preconditions of `cuMemcpy2DAsync`.
    pub unsafe fn copy_lines(lines: Lines, way: Way, stream: &Stream) {
        make_current();
        let place = |at: *const u8, pitch, on_host| {
            let (host, device) = if on_host { (at, 0) } else { (ptr::null(), at as u64) };
            let kind = if on_host { 1 } else { 2 }; // CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE
            let (host, array) = (host.cast_mut().cast(), ptr::null_mut());
            Place { kind, host, device, array, pitch }
        };
        let Lines { dst, dst_pitch, src, src_pitch, width, height } = lines;
        let plane = Plane {
            src_x: 0,
            src_y: 0,
            src: place(src, src_pitch, way == Way::H2D),
            dst_x: 0,
            dst_y: 0,
            dst: place(dst, dst_pitch, way == Way::D2H),
            width,
            height,
        };
        // SAFETY: the caller's precondition.
        let code = unsafe { (FUNCTIONS.copy_lines)(&plane, stream.as_raw()) };
        assert_eq!(code, 0, "cuMemcpy2DAsync");
    }

    /// # Safety
    ///
    /// * The preconditions of `cuMemcpy`.
    pub unsafe fn copy_and_wait(dst: *mut u8, src: *const u8, bytes: usize, _way: Way) {
        make_current();
        // SAFETY: the caller's precondition.
        let code = unsafe { (FUNCTIONS.copy_and_wait)(dst as u64, src as u64, bytes) };
        assert_eq!(code, 0, "cuMemcpy");
    }

    /// # Safety
    ///
    /// * The preconditions of `cuMemcpyPeerAsync`; each address is followed by its device.
    pub unsafe fn copy_peer(
        (dst, dst_device): (*mut u8, i32),
        (src, src_device): (*const u8, i32),
        bytes: usize,
        stream: &Stream,
    ) {
        make_current();
        let (there, here) = (context(dst_device), context(src_device));
        let stream = stream.as_raw();
        // SAFETY: the caller's precondition.
        let code =
            unsafe { (FUNCTIONS.copy_peer)(dst as u64, there, src as u64, here, bytes, stream) };
        assert_eq!(code, 0, "cuMemcpyPeerAsync");
    }
}

#[cfg(not(pinlane_cuda))]
mod missing {
    use std::ptr::NonNull;

    use pinlane::Stream;

    use super::{Lines, Way};

    const NO_GPU: &str = "a build without CUDA has opened no GPU";

    pub unsafe fn copy(_: *mut u8, _: *const u8, _: usize, _: Way, _: &Stream) {
        unreachable!("{NO_GPU}");
    }

    pub unsafe fn copy_lines(_: Lines, _: Way, _: &Stream) {
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
