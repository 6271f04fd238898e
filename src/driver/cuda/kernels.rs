//! The launchers of `cuda/kernels.h`.

use super::CudaDriver;
use super::convert::{Address, stream_of};
use super::thread::call_with_device;
use crate::driver::{CopyKind, DevicePtr, DriverResult, Kernels, RawStream, RowIndex, RowMove};
use crate::sys;

/// The longest [`Kernels::busy`].
const MAX_BUSY_NANOSECONDS: u64 = 10_000_000_000;

// SAFETY: each method launches the kernel that it is named for, on the ranges that its arguments
// name, and returns success only if CUDA does.
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

    unsafe fn move_items(
        &self,
        stream: RawStream,
        kind: CopyKind,
        items: u64,
        count: usize,
        bytes: usize,
    ) -> DriverResult<()> {
        let (mover, items) = (mover_of(kind), Address::device(items));
        call_with_device(stream, move || {
            // SAFETY: live stream; items in memory that the device reaches, aligned to 8; every
            // range where `kind` says and valid until retired, no destination overlapping another
            // range: promised by the caller.
            unsafe {
                let (items, stream) = (items.get().cast(), stream_of(stream));
                sys::pinlane_launch_move(mover, items, count as u64, bytes as u64, stream)
            }
        })
    }

    unsafe fn move_rows(
        &self,
        stream: RawStream,
        kind: CopyKind,
        rows: &RowMove,
    ) -> DriverResult<()> {
        let index = |RowIndex { at, bytes, limit }| sys::pinlane_index { at, bytes, limit };
        let rows = sys::pinlane_rows {
            layers: rows.layers,
            layer_count: rows.layer_count,
            count: rows.count,
            bytes: rows.bytes,
            from: index(rows.from),
            to: index(rows.to),
        };
        call_with_device(stream, move || {
            // SAFETY: live stream; layers and numbers in memory that the device reaches, aligned;
            // tables where `kind` says and valid until retired, no written table overlapping any
            // other range: promised by the caller. `rows` is read before the launcher returns.
            unsafe { sys::pinlane_launch_move_rows(mover_of(kind), &rows, stream_of(stream)) }
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

fn mover_of(kind: CopyKind) -> sys::pinlane_mover {
    match kind {
        CopyKind::H2D => sys::pinlane_mover::PINLANE_MOVE_UP,
        CopyKind::D2H => sys::pinlane_mover::PINLANE_MOVE_DOWN,
        CopyKind::D2D => sys::pinlane_mover::PINLANE_MOVE_ON_DEVICE,
    }
}
