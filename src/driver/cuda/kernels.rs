//! The launchers of `cuda/kernels.h`.

use super::convert::{Address, stream_of};
use super::{CudaDriver, call_with_device};
use crate::driver::{DevicePtr, DriverResult, Kernels, RawStream};
use crate::sys;

/// The longest [`Kernels::busy`].
const MAX_BUSY_NANOSECONDS: u64 = 10_000_000_000;

// SAFETY: each method launches the kernel that it is named for, on the ranges that its arguments
// name, and gives success only where CUDA does.
unsafe impl Kernels for CudaDriver {
    unsafe fn fill(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        bytes: usize,
        pattern: &[u8],
    ) -> DriverResult<()> {
        let dst = Address::device(dst);
        call_with_device(stream, move || {
            // SAFETY: live stream, range valid until retired, 1 to 64 bytes of pattern: promised by
            // the caller; the pattern is copied before the launcher returns.
            unsafe {
                sys::pinlane_launch_fill(
                    dst.get(),
                    bytes as u64,
                    pattern.as_ptr(),
                    pattern.len() as u32,
                    stream_of(stream),
                )
            }
        })
    }

    unsafe fn checksum(
        &self,
        stream: RawStream,
        src: DevicePtr,
        bytes: usize,
        out: DevicePtr,
    ) -> DriverResult<()> {
        let (src, out) = (Address::device(src), Address::device(out));
        call_with_device(stream, move || {
            // SAFETY: live stream, `src` and an aligned `out` apart from it, both valid until
            // retired: promised by the caller.
            unsafe {
                let out = out.get().cast();
                sys::pinlane_launch_checksum(src.get(), bytes as u64, out, stream_of(stream))
            }
        })
    }

    unsafe fn scatter(
        &self,
        stream: RawStream,
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    ) -> DriverResult<()> {
        let (packed, items) = (Address::device(packed), Address::device(items));
        call_with_device(stream, move || {
            // SAFETY: live stream; items in device memory, aligned to 8; every part valid until
            // retired, no two of them overlapping: promised by the caller.
            unsafe {
                let items = items.get().cast();
                sys::pinlane_launch_scatter(packed.get(), items, count as u64, stream_of(stream))
            }
        })
    }

    unsafe fn gather(
        &self,
        stream: RawStream,
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    ) -> DriverResult<()> {
        let (packed, items) = (Address::device(packed), Address::device(items));
        call_with_device(stream, move || {
            // SAFETY: as for `scatter`.
            unsafe {
                let items = items.get().cast();
                sys::pinlane_launch_gather(packed.get(), items, count as u64, stream_of(stream))
            }
        })
    }

    unsafe fn pull(&self, stream: RawStream, items: u64, count: usize) -> DriverResult<()> {
        let items = Address::device(items);
        call_with_device(stream, move || {
            // SAFETY: live stream; items in memory that the device reaches, aligned to 8; every
            // part valid until retired, no two of them overlapping: promised by the caller.
            unsafe { sys::pinlane_launch_pull(items.get().cast(), count as u64, stream_of(stream)) }
        })
    }

    unsafe fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()> {
        let nanoseconds = nanoseconds.min(MAX_BUSY_NANOSECONDS);
        call_with_device(stream, move || {
            // SAFETY: live stream: promised by the caller. The kernel touches no memory.
            unsafe { sys::pinlane_launch_busy(nanoseconds, stream_of(stream)) }
        })
    }
}
