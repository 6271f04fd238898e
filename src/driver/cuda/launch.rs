//! The kernels of `cuda/kernels.h`: with which parameters, and in how many blocks and threads.

use super::instance::CudaDriver;
use super::kernel::{Kernel, Parameter};
use super::way::kernels::{clear, launch};
use pinlane_driver::{
    CopyKind, DevicePtr, DriverResult, Item, Kernels, MAX_PATTERN, RawStream, RowMove,
};

/// `pinlane_pattern`
#[repr(C)]
pub(super) struct Pattern {
    bytes: [u8; MAX_PATTERN],
    length: u32,
}

/// The items of a `pinlane_kernel_move_*`.
#[repr(C)]
struct Listed {
    items: u64,
    count: u64,
}

/// Those of a `pinlane_kernel_rows_*`.
#[repr(C)]
struct ByIndex {
    rows: RowMove,
    count: u64,
}

/// The threads of a warp.
const WARP: u32 = 32;

/// The threads of a block of a fill or of a checksum.
const BLOCK: u32 = 256;

/// The longest [`Kernels::busy`].
const MAX_BUSY_NANOSECONDS: u64 = 10_000_000_000;

/// Blocks for a kernel that gives each thread one vector of 16 bytes at a time: at most about as
/// many as the largest devices keep resident. If the range is longer, the kernel loops.
fn stream_grid(bytes: u64) -> u32 {
    (bytes / u64::from(16 * BLOCK) + 1).min(1024) as u32
}

/// How a mover is launched. The numbers are measured, as cuda/kernels.cu says.
struct Move {
    kernels: [Kernel; 2],
    blocks: u32,
    threads: u32,
}

impl Move {
    /// `average` is the length of an item in bytes.
    fn new(kind: CopyKind, average: u64) -> Move {
        use Kernel::*;
        match kind {
            CopyKind::H2D => Move { kernels: [MoveUp, RowsUp], blocks: 4, threads: 1024 },
            CopyKind::D2H => {
                let blocks = if average < 2048 { 4 } else { 3 };
                Move { kernels: [MoveDown, RowsDown], blocks, threads: 256 }
            }
            CopyKind::D2D => {
                Move { kernels: [MoveOnDevice, RowsOnDevice], blocks: 32, threads: 256 }
            }
        }
    }

    fn warps(&self) -> u32 {
        self.blocks * self.threads / WARP
    }
}

/// How many of the `warps` share a span, a power of two that divides them: as many as there are for
/// each item, or as many as pay for items of this size. Each of them reads all descriptors of the
/// span, which are less than a hundredth of the bytes.
fn share_of(warps: u32, count: u64, bytes: u64) -> u32 {
    let for_each = u64::from(warps) / count;
    let worth = bytes / count / (128 * size_of::<Item>() as u64);
    let wanted = for_each.max(worth);
    let mut share = 1;
    while warps.is_multiple_of(2 * share) && u64::from(2 * share) <= wanted {
        share *= 2;
    }
    share
}

/// The length of a span in items. All warps have as many spans, and all spans are as long.
fn span_of(warps: u32, share: u32, count: u64) -> u32 {
    let each = count.div_ceil(u64::from(warps / share));
    let rounds = each.div_ceil(u64::from(WARP));
    each.div_ceil(rounds) as u32
}

/// Launches a mover of `count` items or rows, of `bytes` bytes together.
///
/// # Safety
///
/// * As for [`Kernels::move_items`] and [`Kernels::move_rows`]; `items` is a [`Listed`] or a
///   [`ByIndex`] as `by_index` says.
unsafe fn launch_move<T: Sync>(
    stream: RawStream,
    kind: CopyKind,
    items: &T,
    by_index: bool,
    count: u64,
    bytes: u64,
) -> DriverResult<()> {
    if count == 0 {
        return Ok(());
    }
    let how = Move::new(kind, bytes / count);
    let share = share_of(how.warps(), count, bytes);
    let length = span_of(how.warps(), share, count);
    let parameters = [Parameter::of(items), Parameter::of(&length), Parameter::of(&share)];
    let kernel = how.kernels[usize::from(by_index)];
    // SAFETY: the parameters are those of the kernel; the memory is as the caller promises.
    unsafe { launch(stream, kernel, how.blocks, how.threads, parameters) }
}

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
        let bytes = bytes as u64;
        let mut by_value = Pattern { bytes: [0; MAX_PATTERN], length: pattern.len() as u32 };
        by_value.bytes[..pattern.len()].copy_from_slice(pattern);
        let parameters = [Parameter::of(&dst), Parameter::of(&bytes), Parameter::of(&by_value)];
        // SAFETY: the parameters are those of the kernel; live stream, range valid until retired, 1
        // to 64 bytes of pattern: promised by the caller.
        unsafe { launch(stream, Kernel::Fill, stream_grid(bytes), BLOCK, parameters) }
    }

    unsafe fn checksum(
        &self,
        stream: RawStream,
        src: DevicePtr,
        bytes: usize,
        out: DevicePtr,
    ) -> DriverResult<()> {
        let aligned = src.is_multiple_of(16);
        let kernel = if aligned { Kernel::ChecksumAligned } else { Kernel::Checksum };
        let bytes = bytes as u64;
        let parameters = [Parameter::of(&src), Parameter::of(&bytes), Parameter::of(&out)];
        // SAFETY: live stream, `src` and an aligned `out` apart from it, both valid until retired:
        // promised by the caller. The parameters are those of the kernel.
        unsafe {
            // The blocks add their sums in any order, so there must be 0 before the first one.
            clear(stream, out, size_of::<u64>())?;
            launch(stream, kernel, stream_grid(bytes), BLOCK, parameters)
        }
    }

    unsafe fn move_items(
        &self,
        stream: RawStream,
        kind: CopyKind,
        items: u64,
        count: usize,
        bytes: usize,
    ) -> DriverResult<()> {
        let count = count as u64;
        // SAFETY: live stream; items in memory that the device reaches, aligned to 8; every range
        // where `kind` says and valid until retired, no destination overlapping another range:
        // promised by the caller.
        unsafe { launch_move(stream, kind, &Listed { items, count }, false, count, bytes as u64) }
    }

    unsafe fn move_rows(
        &self,
        stream: RawStream,
        kind: CopyKind,
        rows: &RowMove,
    ) -> DriverResult<()> {
        let count = rows.layer_count * rows.count;
        // SAFETY: live stream; layers and numbers in memory that the device reaches, aligned;
        // tables where `kind` says and valid until retired, no written table overlapping any other
        // range: promised by the caller.
        unsafe {
            let items = ByIndex { rows: *rows, count };
            launch_move(stream, kind, &items, true, count, count * rows.bytes)
        }
    }

    unsafe fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()> {
        let nanoseconds = nanoseconds.min(MAX_BUSY_NANOSECONDS);
        // SAFETY: live stream: promised by the caller. The kernel touches no memory; the other
        // parameters are not read.
        unsafe { launch(stream, Kernel::Busy, 1, 1, [Parameter::of(&nanoseconds); 3]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// As `cuda/kernels.cu` reads them.
    #[test]
    fn parameters_are_laid_out_as_the_kernels_read_them() {
        assert_eq!((size_of::<Pattern>(), offset_of!(Pattern, length)), (68, 64));
        assert_eq!((size_of::<Listed>(), offset_of!(Listed, count)), (16, 8));
        assert_eq!((size_of::<ByIndex>(), offset_of!(ByIndex, count)), (104, 96));
        assert_eq!(Kernel::Busy as usize + 1, Kernel::NAMES.len());
    }

    /// Every item is in a span, no span has more than a warp's threads, and the warps that share a
    /// span divide all warps.
    #[test]
    fn spans_have_all_items() {
        for warps in [24, 32, 128, 256] {
            for count in [1, 2, 31, 32, 33, 1000, 4096, 1_000_003] {
                for average in [0, 1, 256, 4000, 65536, 1 << 30] {
                    let share = share_of(warps, count, count * average);
                    let length = span_of(warps, share, count);
                    assert!(warps % share == 0 && (1..=WARP).contains(&length));
                    let groups = u64::from(warps / share);
                    let rounds = count.div_ceil(u64::from(length) * groups);
                    // No round is empty for all but the last groups.
                    assert!((rounds - 1) * u64::from(length) * groups < count);
                }
            }
        }
    }
}
