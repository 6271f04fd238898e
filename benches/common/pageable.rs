//! The other reference: the runtime's own calls on pageable memory, which the runtime stages.

use std::ffi::c_void;

use pinlane::driver::{DevicePtr, RawStream};
use pinlane::emulated::{Emulator, Kind, Plane};
use pinlane::{Device, Result, Stream};

use super::bare::Bare;
use super::cuda::{self, Lines, Way};

/// Calls that go to one stream.
pub struct Pageable {
    stream: Stream,
    emulator: Option<Emulator>,
}

/// The call of the runtime.
#[derive(Clone, Copy)]
pub enum Call {
    /// `cudaMemcpyAsync`, and `cudaStreamSynchronize` after it
    Async,
    /// `cudaMemcpy`
    Sync,
}

impl Pageable {
    /// Another stream of the same runtime.
    pub fn new(bare: &Bare, device: &Device) -> Result<Self> {
        Ok(Pageable { stream: device.stream()?, emulator: bare.emulator() })
    }

    /// The name of a call as a reference.
    pub fn name(&self, call: Call) -> &'static str {
        match (&self.emulator, call) {
            (Some(_), _) => "the emulated driver's own call",
            (None, Call::Async) => "bare cudaMemcpyAsync from and to pageable memory",
            (None, Call::Sync) => "cudaMemcpy from and to pageable memory",
        }
    }

    /// Enqueues a copy. When the call returns, the copy may be complete or not.
    ///
    /// # Safety
    ///
    /// * Both ranges are allocated and idle, and stay so until [`synchronize`](Self::synchronize).
    /// * If the copy goes to `host`, `host` may be written.
    #[inline]
    pub unsafe fn copy(&self, way: Way, host: *mut u8, device: DevicePtr, bytes: usize) {
        let stream = &self.stream;
        let Some(emulator) = &self.emulator else {
            // SAFETY: the caller's preconditions; the stream is live.
            return unsafe {
                match way {
                    Way::H2D => cuda::copy(device as *mut u8, host, bytes, way, stream),
                    Way::D2H => cuda::copy(host, device as *const u8, bytes, way, stream),
                }
            };
        };
        let raw = RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() };
        let plane = match way {
            Way::H2D => Plane::line(device as *mut c_void, host.cast(), bytes),
            Way::D2H => Plane::line(host.cast(), device as *const c_void, bytes),
        };
        // SAFETY: as above.
        let copied = unsafe { emulator.copy(raw, plane, Kind::Default, false) };
        copied.expect("the emulated device copies");
    }

    /// A complete copy: the data has arrived when the call returns.
    ///
    /// # Safety
    ///
    /// * Both ranges are allocated and idle.
    /// * If the copy goes to `host`, `host` may be written.
    pub unsafe fn copy_and_wait(
        &self,
        call: Call,
        way: Way,
        host: *mut u8,
        device: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        if self.emulator.is_none() && matches!(call, Call::Sync) {
            // SAFETY: the caller's preconditions.
            unsafe {
                match way {
                    Way::H2D => cuda::copy_and_wait(device as *mut u8, host, bytes, way),
                    Way::D2H => cuda::copy_and_wait(host, device as *const u8, bytes, way),
                }
            }
            return Ok(());
        }
        // SAFETY: the caller's preconditions; the copy is waited for.
        unsafe { self.copy(way, host, device, bytes) };
        self.synchronize()
    }

    /// A complete copy of lines, by `cudaMemcpy2DAsync`. Host memory may be page-locked.
    ///
    /// # Safety
    ///
    /// * As for [`copy_and_wait`](Self::copy_and_wait), for the lines of both sides.
    pub unsafe fn copy_lines_and_wait(&self, way: Way, lines: Lines) -> Result<()> {
        let stream = &self.stream;
        match &self.emulator {
            // SAFETY: the caller's preconditions; the stream is live; the copy is waited for.
            None => unsafe { cuda::copy_lines(lines, way, stream) },
            Some(emulator) => {
                let raw =
                    RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() };
                let Lines { dst, dst_pitch, src, src_pitch, width, height } = lines;
                let (dst, src) = (dst.cast(), src.cast());
                let plane = Plane { dst, dst_pitch, src, src_pitch, width, height };
                // SAFETY: as above.
                let copied = unsafe { emulator.copy(raw, plane, Kind::Default, false) };
                copied.expect("the emulated device copies");
            }
        }
        self.synchronize()
    }

    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }
}
