//! Buffers as tensors of DLPack, and tensors as buffers.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::batch::pinlane_strided;
use super::buffer::HostBuffer;
use super::device_buffer::DeviceBuffer;
use super::{
    Out, Result, boundary, check_flags, growing, handle, invalid, layout, pinlane_buffer,
    pinlane_device, pinlane_device_buffer, pinlane_status, pinlane_stream, pointer, unknown,
};
use crate::device::Device;
use crate::dlpack::{
    DataType, Imported, ImportedReadOnly, Layout, LegacyTensor as DLManagedTensor,
    ManagedTensor as DLManagedTensorVersioned, Place, from_legacy, to_legacy,
};
use crate::memory::Strides;
use crate::stream::Stream;

/// Consumers of the tensor must not write to it.
pub const PINLANE_DLPACK_READ_ONLY: u32 = 1;

/// Plain host memory (`kDLCPU`), which all libraries accept.
pub const PINLANE_DLPACK_CPU: i32 = 1;
/// Page-locked host memory (`kDLCUDAHost`).
pub const PINLANE_DLPACK_CUDA_HOST: i32 = 3;

/// The layout of a tensor. Initialise with `PINLANE_DLPACK_OPTIONS_INIT`: one dimension of bytes,
/// the whole buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_dlpack_options {
    /// `sizeof(pinlane_dlpack_options)`.
    pub size: usize,
    /// The length of each dimension, in elements; NULL for one dimension, as long as the buffer: as
    /// many elements as fit, packed if they are not a whole number of bytes.
    pub shape: *const i64,
    /// The distance between neighbours in each dimension, in elements; NULL for elements without
    /// gaps, with the last dimension innermost.
    pub strides: *const i64,
    /// The number of dimensions; 0 with a `shape` is a tensor of one element.
    pub ndim: i32,
    /// The type of the elements: `DLDataType`'s code, bits and lanes.
    pub code: u8,
    /// See `code`.
    pub bits: u8,
    /// See `code`.
    pub lanes: u16,
    /// The offset of the first element in bytes: a multiple of its size, if that is a whole number
    /// of bytes.
    pub offset_bytes: usize,
    /// The device type of page-locked memory: `PINLANE_DLPACK_CPU` or `PINLANE_DLPACK_CUDA_HOST`.
    /// Ignored for device memory.
    pub device_type: i32,
    /// 0 or `PINLANE_DLPACK_READ_ONLY`.
    pub flags: u32,
    /// The stream of the consumer's own device work on the tensor, or NULL if it has none.
    pub stream: *const pinlane_stream,
}

layout!(pinlane_dlpack_options: 56; ndim 24, code 28, bits 29, lanes 30, offset_bytes 32,
    device_type 40, flags 44, stream 48);
growing!(pinlane_dlpack_options_init: pinlane_dlpack_options, sizes [56], default {
    code: 1, bits: 8, lanes: 1, device_type: PINLANE_DLPACK_CPU
});

const _: () = assert!(DataType::U8.code == 1 && DataType::U8.bits == 8);

impl pinlane_dlpack_options {
    /// The layout of a tensor of `bytes`; `whole` holds the shape if none is given.
    ///
    /// # Safety
    ///
    /// * `shape` and `strides` are each NULL or arrays of `ndim` elements, during `'a`.
    unsafe fn layout<'a>(&self, bytes: usize, whole: &'a mut [i64; 1]) -> Result<Layout<'a>> {
        check_flags(self.flags, PINLANE_DLPACK_READ_ONLY)?;
        if !matches!(self.device_type, PINLANE_DLPACK_CPU | PINLANE_DLPACK_CUDA_HOST) {
            let remedy = "use PINLANE_DLPACK_CPU or PINLANE_DLPACK_CUDA_HOST";
            return Err(unknown("device_type", self.device_type, remedy));
        }
        let Ok(ndim) = usize::try_from(self.ndim) else {
            return Err(unknown("ndim", self.ndim, "pass at least 0"));
        };
        let dtype = DataType { code: self.code, bits: self.bits, lanes: self.lanes };
        let rest = bytes.saturating_sub(self.offset_bytes);
        whole[0] = dtype.count_in(rest).try_into().unwrap_or(i64::MAX);
        // SAFETY: the same precondition.
        let given = |name, array| unsafe { pointer::inputs(name, array, ndim) };
        let shape = if self.shape.is_null() { &whole[..] } else { given("shape", self.shape)? };
        let strides =
            if self.strides.is_null() { None } else { Some(given("strides", self.strides)?) };
        Ok(Layout {
            dtype,
            shape,
            strides,
            offset_bytes: self.offset_bytes,
            read_only: self.flags & PINLANE_DLPACK_READ_ONLY != 0,
            page_locked: self.device_type == Place::CUDA_HOST,
        })
    }

    /// The consumer's stream, if one is named.
    fn consumer(&self) -> Result<Option<Stream>> {
        if self.stream.is_null() {
            return Ok(None);
        }
        handle::get(self.stream).map(|stream| Some(Stream::clone(&*stream)))
    }
}

/// Checks the pointer to a caller's tensor.
fn given<T>(tensor: *mut T) -> Result<NonNull<T>> {
    pointer::object("tensor", tensor, "pass what the other library has made")
}

/// Page-locks an imported tensor. If that fails, the tensor is the caller's again.
fn registered(device: &Device, imported: Imported) -> Result<*mut pinlane_buffer> {
    match device.register(imported) {
        Ok(registered) => {
            let buffer = HostBuffer::new(registered.into_buffer());
            Ok(HostBuffer::into_handle(ManuallyDrop::new(buffer)))
        }
        Err(refused) => {
            let _ = refused.value.into_raw();
            Err(refused.error)
        }
    }
}

/// As [`registered`], of a tensor that is only read.
fn registered_read_only(
    device: &Device,
    imported: ImportedReadOnly,
) -> Result<*mut pinlane_buffer> {
    match device.register_read_only(imported) {
        Ok(registered) => {
            let buffer = HostBuffer::to_read(registered.into_buffer());
            Ok(HostBuffer::into_handle(ManuallyDrop::new(buffer)))
        }
        Err(refused) => {
            let _ = refused.value.into_raw();
            Err(refused.error)
        }
    }
}

/// The outputs of an import with strides: the buffer, and where the elements lie in it.
struct WithRows<H> {
    buffer: Out<*mut H>,
    rows: Out<pinlane_strided>,
}

impl<H> WithRows<H> {
    /// # Safety
    ///
    /// * `buffer` and `rows` are each NULL, misaligned (both are found), or valid for writing until
    ///   the call returns.
    const unsafe fn new(buffer: *mut *mut H, rows: *mut pinlane_strided) -> Self {
        // SAFETY: the same precondition.
        unsafe { WithRows { buffer: Out::new("buffer", buffer), rows: Out::new("rows", rows) } }
    }

    /// Runs the body of the exported function `function`.
    fn give(
        self,
        function: &'static str,
        body: impl FnOnce() -> Result<(*mut H, Strides)>,
    ) -> pinlane_status {
        boundary(function, || {
            let (buffer, rows) = (self.buffer.check()?, self.rows.check()?);
            let (made, strides) = body()?;
            buffer.set(made);
            rows.set(strides.into());
            Ok(())
        })
    }
}

/// Makes a tensor of the buffer and writes it to `tensor`: a `DLManagedTensorVersioned` of DLPack
/// 1, for NumPy, PyTorch, JAX, CuPy. Elements of less than a byte are packed. The buffer's handle
/// is freed: from now on the memory belongs to the tensor. The tensor's deleter, on any thread,
/// gives it back to the pool. Blocks until every pending device use of the buffer is complete.
/// `options` may be NULL.
///
/// If device work of the consumer uses the memory, name its stream: the memory is reused only after
/// all work that was on the stream when the deleter was called. A borrowed CUDA stream must live as
/// long as the tensor; the handle of the stream may be freed.
///
/// Statuses: `INVALID_HANDLE`; `BUSY`, also if a graph has lent the buffer; `OUT_OF_RANGE` if the
/// tensor does not lie in the buffer; `FORKED_PROCESS`, or the error of a copy that failed;
/// `INVALID_VALUE` if `tensor` is NULL, for memory of `pinlane_buffer_register`, a per-thread
/// default stream, an invalid shape, or options of an unknown size, device type or flag. The buffer
/// is then unchanged.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
///   arrays have `ndim` elements.
/// - `tensor` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_into_dlpack(
    buffer: *mut pinlane_buffer,
    options: *const pinlane_dlpack_options,
    tensor: *mut *mut DLManagedTensorVersioned,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `tensor`.
    unsafe { Out::new("tensor", tensor) }.give("pinlane_buffer_into_dlpack", || {
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::options(options) }?;
        let mut host = handle::get_mut(buffer)?;
        if host.lent().is_some() {
            let remedy = "make a tensor of the memory yourself, after pinlane_buffer_free";
            return Err(invalid("the memory is the caller's own", remedy));
        }
        host.check_free()?;
        let mut whole = [0];
        // SAFETY: the caller's precondition on the options' arrays.
        let layout = unsafe { options.layout(host.buffer().len(), &mut whole) }?;
        let consumer = options.consumer()?;
        let prepared = host.writable()?.prepare_export(&layout, consumer.as_ref())?;
        Ok(prepared.export(host.take().into_buffer()).as_ptr())
    })
}

/// Makes a tensor of the buffer and writes it to `tensor`, as `pinlane_buffer_into_dlpack` does.
/// `options` must name the stream on which the consumer uses the tensor: its later work waits for
/// every pending use of the buffer. The tensor's deleter frees the memory in stream order, after
/// all work that was on the stream when the deleter was called. Does not block.
///
/// The stream corresponds to `__dlpack__(stream=...)` of the Python protocol. The memory of an
/// emulated device is exported as `kDLExtDev`, which other libraries refuse.
///
/// Statuses: as for `pinlane_buffer_into_dlpack`; `INVALID_VALUE` also for a batch of
/// `pinlane_prefetch_next`; `INVALID_HANDLE` also if `options` or its stream is NULL;
/// `WRONG_DEVICE`, `STREAM_CAPTURING`, `WRONG_THREAD`, `CUDA`.
///
/// # Safety
///
/// - As for `pinlane_buffer_into_dlpack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_into_dlpack(
    buffer: *mut pinlane_device_buffer,
    options: *const pinlane_dlpack_options,
    tensor: *mut *mut DLManagedTensorVersioned,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `tensor`.
    unsafe { Out::new("tensor", tensor) }.give("pinlane_device_buffer_into_dlpack", || {
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::options(options) }?;
        let consumer = Stream::clone(&*handle::get(options.stream)?);
        let mut device = handle::get_mut(buffer)?;
        if matches!(*device, DeviceBuffer::Batch(_)) {
            let remedy = "copy it to a device buffer of your own, and export that";
            let what = "the memory of a prefetched batch serves later batches";
            return Err(invalid(what, remedy));
        }
        let mut whole = [0];
        // SAFETY: the caller's precondition on the options' arrays.
        let layout = unsafe { options.layout(device.len(), &mut whole) }?;
        let prepared = device.prepare_export(&layout, &consumer)?;
        match device.take() {
            DeviceBuffer::Own(buffer) => Ok(prepared.export(buffer).as_ptr()),
            DeviceBuffer::Batch(_) => unreachable!("refused above"),
        }
    })
}

/// Makes a buffer of `tensor`, a `DLManagedTensorVersioned` in host memory, and writes it to
/// `buffer`. The buffer owns the tensor: `pinlane_buffer_free` blocks until the device is done with
/// the memory, then the tensor's deleter is called, on any thread. Memory that is not page-locked
/// (`kDLCPU`) is page-locked in place until then, as by `pinlane_buffer_register`; memory of type
/// `kDLCUDAHost` is used directly. The tensor must be writable and have no gaps. Its elements are
/// packed, unless its flags say that they are padded. If it cannot be known whether the device is
/// done, the deleter is never called.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`, `UNSUPPORTED` inside a host
/// function; `INVALID_VALUE` if a pointer is NULL, for a tensor that is read-only (import it with
/// `pinlane_buffer_from_dlpack_read_only`), has gaps (`pinlane_buffer_from_dlpack_strided`) or
/// unknown flags, is not of version 1, is in other memory, or does not fit in the address space,
/// and for memory that is page-locked already or cannot be. The caller then keeps the tensor.
///
/// # Safety
///
/// - `tensor` is NULL or a tensor that the caller owns. Its deleter may be called on any thread;
///   until then no other code accesses the memory. Memory of type `kDLCUDAHost` is page-locked for
///   all devices.
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_from_dlpack(
    device: *const pinlane_device,
    tensor: *mut DLManagedTensorVersioned,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.give("pinlane_buffer_from_dlpack", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `tensor`. No code of this interface reads the bytes
        // on the host, so C need not have initialised them.
        let imported = unsafe { Imported::new(given(tensor)?) }?;
        registered(&device, imported)
    })
}

/// As `pinlane_buffer_from_dlpack`, of a tensor that is only read, such as one with the flag
/// `DLPACK_FLAG_BITMASK_READ_ONLY`: the buffer is a source of uploads, as one of
/// `pinlane_buffer_register_read_only`. Calls that would write to it return `INVALID_VALUE`.
///
/// Statuses: as for `pinlane_buffer_from_dlpack`, but a tensor may be read-only; `UNSUPPORTED` also
/// for memory that is mapped for reading only, on a device that cannot register it.
///
/// # Safety
///
/// - `tensor` is NULL or a tensor that the caller owns. Its deleter may be called on any thread;
///   until then its elements do not change. Memory of type `kDLCUDAHost` is page-locked for all
///   devices.
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_from_dlpack_read_only(
    device: *const pinlane_device,
    tensor: *mut DLManagedTensorVersioned,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.give("pinlane_buffer_from_dlpack_read_only", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `tensor`; as above, the bytes need not be
        // initialised.
        let imported = unsafe { ImportedReadOnly::new(given(tensor)?) }?;
        registered_read_only(&device, imported)
    })
}

/// As `pinlane_buffer_from_dlpack`, of a tensor that may have gaps. The buffer has all bytes from
/// the first element to the last one, and `rows` gets where the elements lie in them, in their
/// order: pass them with the buffer to `pinlane_upload_strided` and its like. A tensor without gaps
/// is one row.
///
/// Contiguous dimensions count as one. If neighbours in the last dimension follow each other, they
/// are a row, and there may be two other dimensions. If they lie apart, as in one column of a
/// matrix, each element is a row, and there may be two dimensions. Elements with gaps take whole
/// bytes.
///
/// Statuses: as for `pinlane_buffer_from_dlpack`; `INVALID_VALUE` if `rows` is NULL, and for other
/// gaps: strides that are negative, rows that overlap, and more dimensions.
///
/// # Safety
///
/// - As for `pinlane_buffer_from_dlpack`. The memory includes the gaps.
/// - `rows` is NULL or points to a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_from_dlpack_strided(
    device: *const pinlane_device,
    tensor: *mut DLManagedTensorVersioned,
    buffer: *mut *mut pinlane_buffer,
    rows: *mut pinlane_strided,
) -> pinlane_status {
    // SAFETY: the caller's preconditions on `buffer` and `rows`.
    unsafe { WithRows::new(buffer, rows) }.give("pinlane_buffer_from_dlpack_strided", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `tensor`; as above, the bytes need not be
        // initialised.
        let (imported, strides) = unsafe { Imported::with_strides(given(tensor)?) }?;
        Ok((registered(&device, imported)?, strides))
    })
}

/// As `pinlane_buffer_from_dlpack_read_only`, of a tensor that may have gaps, as
/// `pinlane_buffer_from_dlpack_strided`.
///
/// Statuses: as for `pinlane_buffer_from_dlpack_strided`, but a tensor may be read-only;
/// `UNSUPPORTED` also for memory that is mapped for reading only, on a device that cannot register
/// it.
///
/// # Safety
///
/// - As for `pinlane_buffer_from_dlpack_read_only`. The gaps do not change either.
/// - `rows` is NULL or points to a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_from_dlpack_read_only_strided(
    device: *const pinlane_device,
    tensor: *mut DLManagedTensorVersioned,
    buffer: *mut *mut pinlane_buffer,
    rows: *mut pinlane_strided,
) -> pinlane_status {
    let name = "pinlane_buffer_from_dlpack_read_only_strided";
    // SAFETY: the caller's preconditions on `buffer` and `rows`.
    unsafe { WithRows::new(buffer, rows) }.give(name, || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `tensor`; as above, the bytes need not be
        // initialised.
        let (imported, strides) = unsafe { ImportedReadOnly::with_strides(given(tensor)?) }?;
        Ok((registered_read_only(&device, imported)?, strides))
    })
}

/// Makes a buffer of `tensor`, a `DLManagedTensorVersioned` in the memory of the device of
/// `stream`, and writes it to `buffer`. Later uses of the buffer wait for all work on `stream`, so
/// pass the stream that you passed to the producer (`__dlpack__(stream=...)`). The buffer owns the
/// tensor: `pinlane_device_buffer_free` blocks until no use of the memory is pending, then the
/// tensor's deleter is called, on any thread. The tensor must be writable and have no gaps. Does
/// not block.
///
/// Statuses: `INVALID_HANDLE`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`; `INVALID_VALUE` if a pointer is NULL, or for a tensor that is read-only,
/// has gaps (`pinlane_device_buffer_from_dlpack_strided`) or unknown flags, is not of version
/// 1, or does not fit in the address space. The caller then keeps the tensor.
///
/// # Safety
///
/// - `tensor` is NULL or a tensor that the caller owns. Its deleter may be called on any thread;
///   until then no other code uses the memory.
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_from_dlpack(
    stream: *const pinlane_stream,
    tensor: *mut DLManagedTensorVersioned,
    buffer: *mut *mut pinlane_device_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.give("pinlane_device_buffer_from_dlpack", || {
        let stream = handle::get(stream)?;
        // SAFETY: the caller's precondition on `tensor`.
        let made = unsafe { stream.import_dlpack(given(tensor)?) }?;
        Ok(DeviceBuffer::Own(made).into_handle())
    })
}

/// As `pinlane_device_buffer_from_dlpack`, of a tensor that may have gaps, as
/// `pinlane_buffer_from_dlpack_strided`: `rows` gets where the elements lie in the buffer.
///
/// Statuses: as for `pinlane_device_buffer_from_dlpack`; `INVALID_VALUE` if `rows` is NULL, and for
/// other gaps: strides that are negative, rows that overlap, and more dimensions.
///
/// # Safety
///
/// - As for `pinlane_device_buffer_from_dlpack`. The memory includes the gaps.
/// - `rows` is NULL or points to a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_from_dlpack_strided(
    stream: *const pinlane_stream,
    tensor: *mut DLManagedTensorVersioned,
    buffer: *mut *mut pinlane_device_buffer,
    rows: *mut pinlane_strided,
) -> pinlane_status {
    let name = "pinlane_device_buffer_from_dlpack_strided";
    // SAFETY: the caller's preconditions on `buffer` and `rows`.
    unsafe { WithRows::new(buffer, rows) }.give(name, || {
        let stream = handle::get(stream)?;
        // SAFETY: the caller's precondition on `tensor`.
        let (made, strides) = unsafe { stream.import_dlpack_with_strides(given(tensor)?) }?;
        Ok((DeviceBuffer::Own(made).into_handle(), strides))
    })
}

/// Writes the same tensor in the form of DLPack before 1.0, a `DLManagedTensor`, to `legacy`. It
/// owns `tensor`: its deleter calls that of `tensor`. Does not block.
///
/// Statuses: `INVALID_VALUE` if a pointer is NULL, or if the tensor is of another version, or is
/// read-only or padded, which the older form cannot express. The caller then keeps the tensor.
///
/// # Safety
///
/// - `tensor` is NULL or a tensor that the caller owns.
/// - `legacy` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_dlpack_to_legacy(
    tensor: *mut DLManagedTensorVersioned,
    legacy: *mut *mut DLManagedTensor,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `legacy`.
    unsafe { Out::new("legacy", legacy) }.give("pinlane_dlpack_to_legacy", || {
        // SAFETY: the caller's precondition on `tensor`.
        unsafe { to_legacy(given(tensor)?) }.map(NonNull::as_ptr)
    })
}

/// Writes the same tensor in the form of DLPack 1 to `tensor`. It owns `legacy`: its deleter calls
/// that of `legacy`. Elements of less than a byte count as packed. Does not block.
///
/// Statuses: `INVALID_VALUE` if a pointer is NULL.
///
/// # Safety
///
/// - `legacy` is NULL or a tensor that the caller owns.
/// - `tensor` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_dlpack_from_legacy(
    legacy: *mut DLManagedTensor,
    tensor: *mut *mut DLManagedTensorVersioned,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `tensor`.
    unsafe { Out::new("tensor", tensor) }.give("pinlane_dlpack_from_legacy", || {
        // SAFETY: the caller's precondition on `legacy`.
        Ok(unsafe { from_legacy(given(legacy)?) }.as_ptr())
    })
}
