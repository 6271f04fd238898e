//! The reference: the runtime's own calls, with nothing around them.

use std::ptr::NonNull;
use std::sync::Arc;

use pinlane::driver::emulated::Emulator;
use pinlane::driver::{DevicePtr, Driver, HostFlags, RawStream};
use pinlane::{Device, Result, Stream};

pub struct Bare {
    /// A stream of its own, since giving its handle away makes a stream's tracked calls ask more.
    stream: Stream,
    runtime: Runtime,
}

enum Runtime {
    Cuda,
    Emulated(Arc<dyn Driver>),
}

/// GPU 0, or an emulated device, and the way around this crate to it.
pub fn open() -> Result<(Device, Bare)> {
    let emulator = Emulator::new();
    let gpu = !Device::available().is_empty();
    let device = if gpu { Device::open(0)? } else { Device::of_emulator(&emulator, 0)? };
    let runtime = if gpu { Runtime::Cuda } else { Runtime::Emulated(emulator.driver()) };
    let stream = device.stream()?;
    Ok((device, Bare { stream, runtime }))
}

impl Bare {
    /// What a reference to one of these calls is named: `cuda` on a GPU.
    pub fn name(&self, cuda: &'static str) -> &'static str {
        match self.runtime {
            Runtime::Cuda => cuda,
            Runtime::Emulated(_) => "the emulated driver's own call",
        }
    }

    pub fn is_emulated(&self) -> bool {
        matches!(self.runtime, Runtime::Emulated(_))
    }

    fn raw(&self) -> RawStream {
        RawStream { device: 0, handle: self.stream.as_raw().addr() }
    }

    /// # Safety
    ///
    /// * Both ranges are allocated and idle, and stay so until [`synchronize`](Self::synchronize).
    pub unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize) {
        match &self.runtime {
            // SAFETY: the caller's precondition; the stream is live.
            Runtime::Cuda => unsafe { cuda::copy(to as *mut u8, from, bytes, 1, &self.stream) },
            // SAFETY: as above.
            Runtime::Emulated(driver) => unsafe { driver.copy_h2d(self.raw(), to, from, bytes) }
                .expect("the emulated device copies"),
        }
    }

    /// # Safety
    ///
    /// * As for [`upload`](Self::upload).
    pub unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize) {
        match &self.runtime {
            // SAFETY: the caller's precondition; the stream is live.
            Runtime::Cuda => unsafe { cuda::copy(to, from as *const u8, bytes, 2, &self.stream) },
            // SAFETY: as above.
            Runtime::Emulated(driver) => unsafe { driver.copy_d2h(self.raw(), to, from, bytes) }
                .expect("the emulated device copies"),
        }
    }

    /// Page-locked memory, for every device.
    pub fn host_alloc(&self, bytes: usize) -> NonNull<u8> {
        match &self.runtime {
            Runtime::Cuda => cuda::host_alloc(bytes),
            Runtime::Emulated(driver) => {
                let flags = HostFlags { portable: true, ..HostFlags::default() };
                driver.host_alloc(0, bytes, flags).expect("the emulated machine has memory")
            }
        }
    }

    /// # Safety
    ///
    /// * `ptr` came from [`host_alloc`](Self::host_alloc), is idle and is not used afterwards.
    pub unsafe fn host_free(&self, ptr: NonNull<u8>) {
        match &self.runtime {
            // SAFETY: the caller's precondition.
            Runtime::Cuda => unsafe { cuda::host_free(ptr) },
            Runtime::Emulated(driver) => {
                // SAFETY: the caller's precondition; a benchmark runs no host functions.
                unsafe { driver.host_free(ptr) }.expect("the emulated device frees");
            }
        }
    }

    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }
}

#[cfg(pinlane_cuda)]
mod cuda {
    use std::ffi::c_void;
    use std::ptr::{self, NonNull};

    const PORTABLE: u32 = 1; // cudaHostAllocPortable

    // The runtime is linked into this program with the library.
    unsafe extern "C" {
        fn cudaMemcpyAsync(
            dst: *mut c_void,
            src: *const c_void,
            bytes: usize,
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
    /// * The preconditions of `cudaMemcpyAsync`; `kind` is 1 (H2D) or 2 (D2H).
    pub unsafe fn copy(
        dst: *mut u8,
        src: *const u8,
        bytes: usize,
        kind: i32,
        stream: &pinlane::Stream,
    ) {
        // SAFETY: the caller's precondition.
        let code = unsafe { cudaMemcpyAsync(dst.cast(), src.cast(), bytes, kind, stream.as_raw()) };
        assert_eq!(code, 0, "cudaMemcpyAsync");
    }
}

#[cfg(not(pinlane_cuda))]
mod cuda {
    use std::ptr::NonNull;

    const NO_GPU: &str = "a build without CUDA has opened no GPU";

    pub unsafe fn copy(_: *mut u8, _: *const u8, _: usize, _: i32, _: &pinlane::Stream) {
        unreachable!("{NO_GPU}");
    }

    pub fn host_alloc(_: usize) -> NonNull<u8> {
        unreachable!("{NO_GPU}");
    }

    pub unsafe fn host_free(_: NonNull<u8>) {
        unreachable!("{NO_GPU}");
    }
}
