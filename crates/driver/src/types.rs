//! What the calls of a driver take and give.

use std::ffi::c_void;

use crate::CudaCode;

/// What a driver call gives: a value, or the code of the CUDA runtime.
pub type DriverResult<T> = Result<T, CudaCode>;

/// A device's number, counted from 0 (`int device` in CUDA).
pub type Ordinal = i32;

/// An address in device memory. Never dereferenced on the host.
pub type DevicePtr = u64;

/// A stream: its handle (`cudaStream_t` as a number) and the device that it belongs to.
///
/// The device matters for the default streams, whose handle means "of the current device", and for
/// kernel launches, which CUDA binds to the current device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream {
    /// The device that the stream belongs to.
    pub device: Ordinal,
    /// The `cudaStream_t`, as a number.
    pub handle: usize,
}

impl RawStream {
    /// The handle of the legacy default stream (`cudaStreamLegacy`).
    pub const LEGACY: usize = 1;
    /// The handle of the per-thread default stream (`cudaStreamPerThread`).
    pub const PER_THREAD: usize = 2;

    /// Whether the handle names a default stream, which means "of the current device" to CUDA.
    #[must_use]
    pub fn is_default(self) -> bool {
        self.handle <= Self::PER_THREAD
    }
}

/// An event: its handle (`cudaEvent_t` as a number) and the device that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawEvent {
    /// The device that was current when the event was created.
    pub device: Ordinal,
    /// The `cudaEvent_t`, as a number.
    pub handle: usize,
}

/// The answer of a query that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// All the work asked about is complete, and its effects are visible to the calling thread.
    Done,
    /// Some of it is not (`cudaErrorNotReady`).
    NotReady,
}

/// Whether a stream is part of a graph capture (`cudaStreamCaptureStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Not capturing.
    None,
    /// Capturing: work is recorded into a graph, not executed.
    Active,
    /// The capture has failed, but has not been ended.
    Invalidated,
}

/// Device attributes that the crate asks for (`cudaDeviceAttr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `cudaDevAttrMemoryPoolsSupported`: whether `cudaMallocAsync` works.
    MemoryPoolsSupported,
    /// `cudaDevAttrHostNumaId`: the NUMA node of the host that is closest to the device, or -1
    /// if the system has none. A runtime older than 12.2 returns an error.
    HostNumaNode,
    /// `cudaDevAttrUnifiedAddressing`: one address space for the host and all devices.
    UnifiedAddressing,
    /// `cudaDevAttrCanUseHostPointerForRegisteredMem`: registered memory has, on the device, the
    /// address that it has on the host.
    CanUseHostPointerForRegisteredMem,
    /// `cudaDevAttrHostRegisterReadOnlySupported`: memory that is mapped for reading only can be
    /// registered ([`HostFlags::read_only`]).
    HostRegisterReadOnly,
    /// `cudaDevAttrAsyncEngineCount`: how many engines copy while kernels run.
    AsyncEngineCount,
    /// `cudaDevAttrMaxPitch`: the longest pitch of a strided copy, in bytes.
    MaxPitch,
    /// `cudaDevAttrPciDomainId`: where the device is on the PCI bus, as are the next two.
    PciDomainId,
    /// `cudaDevAttrPciBusId`.
    PciBusId,
    /// `cudaDevAttrPciDeviceId`.
    PciDeviceId,
}

/// How page-locked memory is allocated or registered (`cudaHostAlloc*`, `cudaHostRegister*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFlags {
    /// Page-locked for every device of the process, not only for the one it was allocated on.
    pub portable: bool,
    /// Mapped into the address space of the devices.
    pub mapped: bool,
    /// Write-combined: faster for the device to read over some links, very slow for the CPU to
    /// read. Only for allocation.
    pub write_combined: bool,
    /// The device only reads it, so that it may be mapped for reading only. Only for registration,
    /// on devices with [`Attribute::HostRegisterReadOnly`].
    pub read_only: bool,
}

/// How an owned stream behaves (`cudaStreamCreateWithPriority`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFlags {
    /// Synchronizes with the legacy default stream. Off means `cudaStreamNonBlocking`.
    pub blocking: bool,
    /// Lower numbers run first; 0 is the default priority. Clamped by the runtime to its range.
    pub priority: i32,
}

/// A function for the runtime to call when a stream gets to it (`cudaHostFn_t`).
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// From which memory to which copies go (`cudaMemcpyKind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyKind {
    /// From page-locked host memory to the device.
    H2D,
    /// From the device to page-locked host memory.
    D2H,
    /// Within the device.
    D2D,
}

/// One copy of a [batch](super::Driver::copy_batch), or of a list that
/// [`Kernels::move_items`](super::Kernels::move_items) reads: 24 bytes, laid out as `pinlane_item`
/// in `cuda/kernels.h`. Both addresses are plain numbers, as CUDA takes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Item {
    /// The address of the first byte.
    pub src: u64,
    /// The address where it goes.
    pub dst: u64,
    /// The length in bytes; 0 is allowed.
    pub bytes: u64,
}

/// What [`Driver::copy_strided`](super::Driver::copy_strided) is to copy: rows of equal length, in
/// planes of equally many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedCopy {
    /// Where the rows come from.
    pub src: Pitched,
    /// Where they go.
    pub dst: Pitched,
    /// The length of a row in bytes.
    pub row: usize,
    /// How many rows a plane has.
    pub rows: usize,
    /// How many planes there are.
    pub planes: usize,
}

/// One side of a [`StridedCopy`] (`cudaPitchedPtr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    /// The address of the first row.
    pub at: u64,
    /// From the start of a row to that of the next, in bytes.
    pub pitch: usize,
    /// From the start of a plane to that of the next, in rows.
    pub height: usize,
}

impl StridedCopy {
    /// Each row as a copy of its own.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        let StridedCopy { src, dst, row, rows, planes } = *self;
        let start = |side: Pitched, plane, line| {
            side.at + ((plane * side.height + line) * side.pitch) as u64
        };
        let lines = (0..planes).flat_map(move |plane| (0..rows).map(move |line| (plane, line)));
        lines.map(move |(plane, line)| Item {
            src: start(src, plane, line),
            dst: start(dst, plane, line),
            bytes: row as u64,
        })
    }
}

/// The two tables of a layer of a [`RowMove`]: `pinlane_layer` in `cuda/kernels.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Layer {
    /// The address of the source's first row.
    pub src: u64,
    /// The address of the destination's first row.
    pub dst: u64,
}

/// Which rows of its tables a side of a [`RowMove`] uses: `pinlane_index` in `cuda/kernels.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowIndex {
    /// The address of the rows' numbers; 0 for 0, 1, 2, ...
    pub at: u64,
    /// The bytes of a number, 4 or 8. Numbers are unsigned.
    pub bytes: u64,
    /// How many rows a table has. A number that is not below this copies nothing.
    pub limit: u64,
    /// From the start of a row to that of the next, in bytes.
    pub pitch: u64,
}

/// What [`Kernels::move_rows`](super::Kernels::move_rows) is to copy: row `to[i]` of each
/// destination gets row `from[i]` of its source. `pinlane_rows` in `cuda/kernels.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMove {
    /// The address of the [`Layer`]s.
    pub layers: u64,
    /// How many there are.
    pub layer_count: u64,
    /// How many rows of each layer are copied.
    pub count: u64,
    /// The length of a row in bytes.
    pub bytes: u64,
    /// The rows of the sources.
    pub from: RowIndex,
    /// The rows of the destinations.
    pub to: RowIndex,
}

/// The longest pattern of [`Kernels::fill`](super::Kernels::fill), in bytes.
pub const MAX_PATTERN: usize = 64;
