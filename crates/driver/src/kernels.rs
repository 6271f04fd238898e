//! The kernels of the crate, as a driver launches them. What each computes is defined in
//! [`reference`](super::reference).

use super::types::{CopyKind, DevicePtr, DriverResult, RawStream, RowMove};

/// The part of a [`Driver`](super::Driver) that is this crate's own device code.
///
/// # Safety
///
/// As for [`Driver`](super::Driver): a call that returns success has the effect that it documents,
/// in stream order, and touches no memory outside the ranges that its arguments name.
pub unsafe trait Kernels {
    /// Kernel: repeats `pattern` over `dst .. dst + bytes`; a last partial pattern is cut off.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `dst .. dst + bytes` lies in one device allocation and is valid until retired.
    /// * `pattern` has 1 to [`MAX_PATTERN`](super::MAX_PATTERN) bytes.
    unsafe fn fill(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        bytes: usize,
        pattern: &[u8],
    ) -> DriverResult<()>;

    /// Kernel: writes the [`checksum`](super::reference::checksum) of `src .. src + bytes` to the
    /// `u64` at `out`.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `src .. src + bytes` lies in one device allocation and is valid until retired; any
    ///   alignment.
    /// * `out .. out + 8` lies in device memory, aligned to 8, outside `src`, valid until retired.
    unsafe fn checksum(
        &self,
        stream: RawStream,
        src: DevicePtr,
        bytes: usize,
        out: DevicePtr,
    ) -> DriverResult<()>;

    /// Kernel: copies each item's bytes from the address `src` to the address `dst`. It reads and
    /// writes page-locked host memory where that lies: one launch moves many short ranges over the
    /// bus. `kind` decides how it is launched.
    ///
    /// `bytes` is about how many bytes the items have together. The launch divides the work by it;
    /// a wrong number costs time and nothing else. An item that is many times as long as the
    /// average is moved slowly, by a single warp: split it.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `items` is the address of `count` [`Item`](super::Item)s, aligned to 8, in device memory
    ///   or in one page-locked block, valid until retired. Those in host memory are complete when
    ///   the call is made.
    /// * Every source and every destination lies in the memory that `kind` says: in one device
    ///   allocation or in one page-locked block. All are valid until retired, and the host neither
    ///   reads nor writes a destination until then; any alignment.
    /// * The device can use the addresses of that host memory: it was allocated with `host_alloc`,
    ///   or it was registered where
    ///   [`Attribute::CanUseHostPointerForRegisteredMem`](super::Attribute) is 1.
    /// * No two destinations overlap, and none overlaps a source or the items.
    unsafe fn move_items(
        &self,
        stream: RawStream,
        kind: CopyKind,
        items: u64,
        count: usize,
        bytes: usize,
    ) -> DriverResult<()>;

    /// Kernel: copies rows of equal length by their numbers, from tables to tables, as
    /// [`move_items`](Self::move_items) copies items. A row whose number is not in its table is not
    /// copied.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * The layers, aligned to 8, and the numbers of both sides, aligned to their size, lie in
    ///   device memory or in one page-locked block each, and are valid until retired. Those in host
    ///   memory are complete when the call is made.
    /// * Every table has as many rows as its side's `limit`, its side's `pitch` apart, and lies in
    ///   the memory that `kind` says: in one device allocation or in one page-locked block. All are
    ///   valid until retired, and the host neither reads nor writes a row that is written until
    ///   then; any alignment.
    /// * The device can use the addresses of that host memory, as for `move_items`.
    /// * No row that is written overlaps another one, the layers or the numbers. If a row is
    ///   written twice, each of its bytes is one of those that come there.
    unsafe fn move_rows(
        &self,
        stream: RawStream,
        kind: CopyKind,
        rows: &RowMove,
    ) -> DriverResult<()>;

    /// Kernel: keeps the stream busy for `nanoseconds` of device time, at most 10 s, touching no
    /// memory.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    unsafe fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()>;
}
