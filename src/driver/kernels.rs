//! The kernels of the crate, as a driver launches them. What each computes is defined in
//! [`reference`](super::reference).

use super::{DevicePtr, DriverResult, RawStream};

/// One part of a scatter, gather or pull, 24 bytes, laid out as `pinlane_item` in `cuda/kernels.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Item {
    /// Where the part lies in the packed block, in bytes from its start; for a pull, the address of
    /// the source.
    pub offset: u64,
    /// The part's own address; for a pull, that of the destination.
    pub address: DevicePtr,
    /// The length in bytes; 0 is allowed.
    pub bytes: u64,
}

/// The longest pattern of [`Kernels::fill`], in bytes.
pub const MAX_PATTERN: usize = 64;

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
    /// * `pattern` has 1 to [`MAX_PATTERN`] bytes.
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

    /// Kernel: copies each item's part of the packed block to the item's address.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `items` holds `count` [`Item`]s in device memory, aligned to 8, valid until retired.
    /// * Every part `packed + offset .. + bytes` and every `address .. + bytes` lies in device
    ///   memory that is valid until retired; any alignment.
    /// * No two destinations overlap, and none overlaps the packed block or the items.
    unsafe fn scatter(
        &self,
        stream: RawStream,
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    ) -> DriverResult<()>;

    /// Kernel: copies from each item's address to its part of the packed block.
    ///
    /// # Safety
    ///
    /// * As for [`scatter`](Kernels::scatter), with source and destination exchanged.
    unsafe fn gather(
        &self,
        stream: RawStream,
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    ) -> DriverResult<()>;

    /// Kernel: copies each item's bytes from the address in its `offset` to its `address`. It reads
    /// page-locked host memory where that lies, without a copy in between: one launch fetches many
    /// short parts over the bus.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `items` is the address of `count` [`Item`]s, aligned to 8, in device memory or in one
    ///   page-locked block, valid until retired. Those in host memory are complete when the call is
    ///   made.
    /// * Every source lies in device memory or in one page-locked block, and every destination in
    ///   device memory; all are valid until retired; any alignment.
    /// * The device can use the addresses of that host memory: it was allocated with `host_alloc`,
    ///   or it was registered where
    ///   [`Attribute::CanUseHostPointerForRegisteredMem`](super::Attribute) is 1.
    /// * No two destinations overlap, and none overlaps a source or the items.
    unsafe fn pull(&self, stream: RawStream, items: u64, count: usize) -> DriverResult<()>;

    /// Kernel: keeps the stream busy for `nanoseconds` of device time, at most 10 s, touching no
    /// memory.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    unsafe fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()>;
}
