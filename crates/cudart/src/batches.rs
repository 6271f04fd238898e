//! Batches of copies.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, RawStream};
use pinlane_emulator::{BatchEntry, Emulator, SourceOrder};

use crate::abi::{Handle, In, Out};
use crate::driver::contexts::stream;
use crate::environment;
use crate::volumes::Extent;

/// `cudaMemcpyAttributes`
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    order: c_int,
    hints: [c_int; 4],
    flags: c_uint,
}

/// `cudaMemcpyFlagPreferOverlapWithCompute`, the only one.
const COPY_FLAGS: c_uint = 1;

/// The arrays of a call.
struct Arrays {
    dsts: In<*mut c_void>,
    srcs: In<*const c_void>,
    sizes: In<usize>,
    count: usize,
    attributes: In<Attributes>,
    /// Which copy each of the attributes begins with.
    firsts: In<usize>,
    kinds: usize,
}

impl Arrays {
    /// # Errors
    ///
    /// `INVALID_VALUE` for NULL, no attributes, attributes of no copy, unknown orders and flags.
    fn entries(&self) -> DriverResult<Vec<BatchEntry>> {
        let invalid = CudaCode::INVALID_VALUE;
        if self.kinds == 0 || self.kinds > self.count || self.firsts.get()? != 0 {
            return Err(invalid);
        }
        let mut kind = 0;
        for number in 1..self.kinds {
            let (before, first) =
                (self.firsts.nth(number - 1).get()?, self.firsts.nth(number).get()?);
            if first <= before || first >= self.count {
                return Err(invalid);
            }
        }
        let entry = |at: usize| {
            if kind + 1 < self.kinds && self.firsts.nth(kind + 1).get()? == at {
                kind += 1;
            }
            let attributes = self.attributes.nth(kind).get()?;
            if attributes.flags & !COPY_FLAGS != 0 {
                return Err(invalid);
            }
            let order = source_order(attributes.order)?;
            let (dst, src) = (self.dsts.nth(at).get()?, self.srcs.nth(at).get()?);
            Ok(BatchEntry { dst, src, bytes: self.sizes.nth(at).get()?, order })
        };
        (0..self.count).map(entry).collect()
    }
}

/// One side of a copy of a volume (`cudaMemcpy3DOperand`): memory, or an array in the same place.
#[repr(C)]
#[derive(Clone, Copy)]
struct Operand {
    kind: c_int,
    ptr: *mut c_void,
    /// In bytes, as there are no arrays; 0: as long as what is copied.
    row_length: usize,
    layer_height: usize,
    hint: [c_int; 2],
}

/// `cudaMemcpy3DBatchOp`
#[repr(C)]
#[derive(Clone, Copy)]
struct VolumeCopy {
    src: Operand,
    dst: Operand,
    extent: Extent,
    order: c_int,
    flags: c_uint,
}

/// `cudaMemcpy3DOperandTypePointer`, and that of an array.
const POINTER: c_int = 1;
const ARRAY: c_int = 2;

fn source_order(number: c_int) -> DriverResult<SourceOrder> {
    match number {
        1 => Ok(SourceOrder::InStreamOrder),
        2 => Ok(SourceOrder::DuringCall),
        3 => Ok(SourceOrder::Any),
        _ => Err(CudaCode::INVALID_VALUE),
    }
}

impl Operand {
    /// Where a line of the volume begins.
    fn line(&self, extent: Extent, (y, z): (usize, usize)) -> DriverResult<*mut c_void> {
        let or = |given, least| if given == 0 { least } else { given };
        let (row, rows) = (or(self.row_length, extent.x), or(self.layer_height, extent.y));
        if row < extent.x || rows < extent.y || self.ptr.is_null() {
            return Err(CudaCode::INVALID_VALUE);
        }
        let line = z.checked_mul(rows).and_then(|lines| lines.checked_add(y));
        let offset = line.and_then(|line| line.checked_mul(row)).ok_or(CudaCode::INVALID_VALUE)?;
        Ok(self.ptr.cast::<u8>().wrapping_add(offset).cast())
    }
}

impl VolumeCopy {
    /// # Errors
    ///
    /// `INVALID_VALUE` for an empty extent, and for unknown numbers; `NOT_SUPPORTED` for arrays.
    fn entries(self) -> DriverResult<Vec<BatchEntry>> {
        let VolumeCopy { src, dst, extent, order, flags } = self;
        let kinds = [src.kind, dst.kind];
        if kinds.contains(&ARRAY) {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        let is_empty = extent.x == 0 || extent.y == 0 || extent.z == 0;
        if kinds != [POINTER; 2] || is_empty || flags & !COPY_FLAGS != 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        let order = source_order(order)?;
        let lines = (0..extent.z).flat_map(|z| (0..extent.y).map(move |y| (y, z)));
        let entry = |at| {
            let (dst, src) = (dst.line(extent, at)?, src.line(extent, at)?);
            Ok(BatchEntry { dst, src, bytes: extent.x, order })
        };
        lines.map(entry).collect()
    }
}

fn copy_batch(gpu: &Emulator, arrays: &Arrays, stream: RawStream) -> DriverResult<()> {
    if arrays.count == 0 {
        return Err(CudaCode::INVALID_VALUE);
    }
    // SAFETY: the CUDA runtime demands of its callers that host memory can be accessed.
    unsafe { gpu.copy_batch(stream, &arrays.entries()?) }
}

fn copy_volumes(
    gpu: &Emulator,
    (copies, count): (In<VolumeCopy>, usize),
    flags: c_ulonglong,
    stream: RawStream,
) -> DriverResult<()> {
    if count == 0 || flags != 0 {
        return Err(CudaCode::INVALID_VALUE);
    }
    let entries = (0..count).map(|at| copies.nth(at).get()?.entries());
    let entries: Vec<Vec<BatchEntry>> = entries.collect::<DriverResult<_>>()?;
    // SAFETY: as above.
    unsafe { gpu.copy_batch(stream, &entries.concat()) }
}

/// CUDA 12 has one more argument before the last ones: the copy that has failed. The machine names
/// no copy.
fn none_has_failed(failed: Handle) {
    Out::<usize>::of(failed).put_if_any(usize::MAX);
}

cuda! {
    fn cudaMemcpyBatchAsync / cudaMemcpyBatchAsync_ptsz(
        dsts: In<*mut c_void>, srcs: In<*const c_void>, sizes: In<usize>, count: usize,
        attributes: In<Attributes>, firsts: In<usize>, kinds: usize, eighth: Handle, ninth: Handle,
    ) |gpu, per_thread| {
        let arrays = Arrays { dsts, srcs, sizes, count, attributes, firsts, kinds };
        let is_old = environment::major() == 12;
        if is_old {
            none_has_failed(eighth);
        }
        let handle = if is_old { ninth } else { eighth };
        copy_batch(gpu, &arrays, stream(gpu, handle, per_thread)?)
    }

    fn cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz(
        dsts: In<*mut c_void>, srcs: In<*const c_void>, sizes: In<usize>, count: usize,
        attributes: In<Attributes>, firsts: In<usize>, kinds: usize, failed: Handle,
        handle: Handle,
    ) |gpu, per_thread| {
        let arrays = Arrays { dsts, srcs, sizes, count, attributes, firsts, kinds };
        none_has_failed(failed);
        copy_batch(gpu, &arrays, stream(gpu, handle, per_thread)?)
    }

    fn cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz(
        dsts: In<*mut c_void>, srcs: In<*const c_void>, sizes: In<usize>, count: usize,
        attributes: In<Attributes>, firsts: In<usize>, kinds: usize, handle: Handle,
    ) |gpu, per_thread| {
        let arrays = Arrays { dsts, srcs, sizes, count, attributes, firsts, kinds };
        copy_batch(gpu, &arrays, stream(gpu, handle, per_thread)?)
    }

    fn cudaMemcpy3DBatchAsync / cudaMemcpy3DBatchAsync_ptsz(
        count: usize, copies: In<VolumeCopy>, third: Handle, fourth: Handle, fifth: Handle,
    ) |gpu, per_thread| {
        let is_old = environment::major() == 12;
        if is_old {
            none_has_failed(third);
        }
        let (flags, handle) = if is_old { (fourth, fifth) } else { (third, fourth) };
        let stream = stream(gpu, handle, per_thread)?;
        copy_volumes(gpu, (copies, count), flags as c_ulonglong, stream)
    }

    fn cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz(
        count: usize, copies: In<VolumeCopy>, failed: Handle, flags: c_ulonglong, handle: Handle,
    ) |gpu, per_thread| {
        none_has_failed(failed);
        copy_volumes(gpu, (copies, count), flags, stream(gpu, handle, per_thread)?)
    }

    fn cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz(
        count: usize, copies: In<VolumeCopy>, flags: c_ulonglong, handle: Handle,
    ) |gpu, per_thread| {
        copy_volumes(gpu, (copies, count), flags, stream(gpu, handle, per_thread)?)
    }
}
