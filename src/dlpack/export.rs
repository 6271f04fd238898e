//! Exports buffers as tensors.
//!
//! # Invariants
//!
//! * Only the tensor owns the buffer, until the deleter is called.
//! * All work on the consumer's stream at that time is a use of the memory. If it cannot be
//!   recorded, the deleter waits for the stream. If that fails too, the memory is counted and never
//!   reused.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use bytemuck::Pod;

use super::check::{compact, count, fits};
use super::{DataType, ManagedTensor, Place, Tensor, VERSION, Version};
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::memory::{DeviceBuf, PinnedBuf, TrackedMut};
use crate::process::{call_user, on_ordinary_thread};
use crate::stream::Stream;
use crate::sync::sanitizer::ours;

/// The layout of a tensor of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The type of the elements. It need not be the buffer's. Elements are
    /// [packed](crate::dlpack#elements-of-less-than-a-byte).
    pub dtype: DataType,
    /// The length of each dimension; none for a tensor of one element.
    pub shape: &'a [i64],
    /// The distance, in elements, between neighbours in each dimension. `None`: no gaps, and the
    /// last dimension is the innermost.
    pub strides: Option<&'a [i64]>,
    /// The offset of the first element in bytes: a multiple of its size, if that is a whole number
    /// of bytes.
    pub offset_bytes: usize,
    /// Whether consumers must not write.
    pub read_only: bool,
    /// Whether page-locked memory is exported as such (`kDLCUDAHost`) instead of as plain host
    /// memory (`kDLCPU`), which more libraries accept.
    pub page_locked: bool,
}

impl Layout<'static> {
    /// A tensor of one element at the start of the buffer. Set the other fields as needed.
    #[must_use]
    pub fn new(dtype: DataType) -> Self {
        Layout {
            dtype,
            shape: &[],
            strides: None,
            offset_bytes: 0,
            read_only: false,
            page_locked: false,
        }
    }
}

impl Layout<'_> {
    /// The shape, then the strides, of a tensor that lies within `bytes`.
    fn dimensions(&self, operation: &'static str, bytes: usize) -> Result<Box<[i64]>> {
        let dtype = self.dtype;
        let aligned = dtype.shares_bytes() || self.offset_bytes.is_multiple_of(dtype.bytes());
        if !dtype.is_known() || !aligned {
            let what = format!("{:?} at byte {}", self.dtype, self.offset_bytes);
            let remedy = "pass a type that DLPack knows, at a multiple of its size";
            return Err(Error::invalid(operation, what, remedy));
        }
        let known = count(self.shape).and_then(|count| Some((count, compact(self.shape)?)));
        let too_many = i32::try_from(self.shape.len()).is_err();
        let same = self.strides.is_none_or(|strides| strides.len() == self.shape.len());
        let Some((count, tight)) = known.filter(|_| same && !too_many) else {
            let what = format!("shape {:?} with strides {:?}", self.shape, self.strides);
            let remedy = "pass lengths of at least 0, and a stride for each";
            return Err(Error::invalid(operation, what, remedy));
        };
        let strides = self.strides.unwrap_or(&tight);
        if count > 0 {
            fits(operation, self.dtype, self.shape, strides, self.offset_bytes, bytes)?;
        }
        Ok([self.shape, strides].concat().into())
    }
}

/// A tensor that is ready to take over a buffer.
pub(crate) struct Prepared {
    /// Without the addresses of the members below.
    tensor: ManagedTensor,
    /// The shape, then the strides.
    dimensions: Box<[i64]>,
    consumer: Option<Stream>,
}

impl Prepared {
    /// For the memory at `data`, which has `bytes` bytes at `place`.
    fn new(
        operation: &'static str,
        (data, bytes): (*mut c_void, usize),
        device: Place,
        layout: &Layout<'_>,
        consumer: Option<&Stream>,
    ) -> Result<Self> {
        let dimensions = layout.dimensions(operation, bytes)?;
        // Another thread may call the deleter.
        if consumer.is_some_and(|stream| stream.timeline.is_of_one_thread()) {
            let what = "the consumer's stream is the per-thread default stream".to_owned();
            let remedy = "let the consumer use a stream that every thread can use";
            return Err(Error::invalid(operation, what, remedy));
        }
        let empty = layout.shape.contains(&0);
        let tensor = ManagedTensor {
            version: Version { minor: layout.dtype.shares_bytes().into(), ..VERSION },
            manager_ctx: ptr::null_mut(),
            deleter: None,
            flags: if layout.read_only { ManagedTensor::READ_ONLY } else { 0 },
            tensor: Tensor {
                data: if empty { ptr::null_mut() } else { data },
                device,
                ndim: layout.shape.len() as i32,
                dtype: layout.dtype,
                shape: ptr::null_mut(),
                strides: ptr::null_mut(),
                byte_offset: if empty { 0 } else { layout.offset_bytes as u64 },
            },
        };
        Ok(Prepared { tensor, dimensions, consumer: consumer.cloned() })
    }

    /// The tensor, which owns the buffer that it was prepared for.
    pub(crate) fn export<B>(self, buffer: B) -> NonNull<ManagedTensor>
    where
        B: TrackedMut + Send + 'static,
    {
        let exported = Box::into_raw(Box::new(Exported { prepared: self, buffer }));
        // SAFETY: just allocated, so this is the only reference.
        let Prepared { tensor, dimensions, .. } = unsafe { &mut (*exported).prepared };
        tensor.manager_ctx = exported.cast();
        tensor.deleter = Some(Exported::<B>::delete);
        tensor.tensor.shape = dimensions.as_mut_ptr();
        tensor.tensor.strides = tensor.tensor.shape.wrapping_add(tensor.tensor.ndim as usize);
        // SAFETY: a member of a live allocation.
        unsafe { NonNull::new_unchecked(&raw mut (*exported).prepared.tensor) }
    }
}

/// A tensor, and what it keeps alive.
struct Exported<B> {
    prepared: Prepared,
    buffer: B,
}

impl<B: TrackedMut + Send + 'static> Exported<B> {
    /// The deleter.
    ///
    /// # Safety
    ///
    /// * `tensor` is NULL, or came from [`Prepared::export`] and is not used afterwards.
    unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
        let Some(tensor) = NonNull::new(tensor) else { return };
        // SAFETY: `export` made the context, and only this deleter frees it.
        let exported = unsafe { Box::from_raw(tensor.as_ref().manager_ctx.cast::<Self>()) };
        // A panic must not unwind into the consumer.
        call_user(move || {
            ours(|| {
                let Exported { buffer, prepared: Prepared { consumer, .. } } = *exported;
                on_ordinary_thread((buffer, consumer), give_back, |(buffer, _)| count_lost(buffer));
            });
        });
    }
}

/// Drops the buffer, after all work that is on the consumer's stream now.
fn give_back<B: TrackedMut>((mut buffer, consumer): (B, Option<Stream>)) {
    let consumer = consumer.as_ref();
    let recorded = consumer.map_or(Ok(()), |stream| stream.record_use(&mut buffer));
    let known = match recorded {
        Ok(()) => true,
        // A graph may use the memory at every replay, and a wait would invalidate the capture.
        Err(error) if error.kind() == ErrorKind::StreamCapturing => false,
        Err(_) => consumer.is_none_or(|stream| stream.synchronize().is_ok()),
    };
    if !known {
        count_lost(&mut buffer);
        std::mem::forget(buffer);
    }
}

/// Counts the memory of a buffer. The caller then forgets the buffer.
fn count_lost(buffer: &mut impl TrackedMut) {
    let lost = buffer.writing();
    lost.context.quarantine(lost.range.len(), "of a tensor");
}

impl<T: Pod + Send> PinnedBuf<T> {
    /// Gives the buffer to another library as a tensor. Blocks until every pending device use of
    /// the buffer is complete: consumers access host memory at once.
    ///
    /// The tensor's deleter gives the memory back to the pool. If the consumer's own device work
    /// uses the memory, `consumer` is the stream of that work: the memory is reused only after all
    /// work that was on the stream when the deleter was called. A borrowed stream must then live as
    /// long as the tensor. A tensor that is never deleted leaks.
    ///
    /// # Errors
    ///
    /// Every error gives the buffer back: [`ErrorKind::InvalidValue`] and
    /// [`ErrorKind::OutOfRange`] for a layout that does not fit the buffer, or a per-thread default
    /// stream; the errors of [`write`](Self::write).
    pub fn into_dlpack(
        mut self,
        layout: &Layout<'_>,
        consumer: Option<&Stream>,
    ) -> Result<NonNull<ManagedTensor>, Refused<Self>> {
        match self.prepare_export(layout, consumer) {
            Ok(prepared) => Ok(prepared.export(self)),
            Err(error) => Err(Refused { value: self, error }),
        }
    }

    /// The part of the export that can fail.
    pub(crate) fn prepare_export(
        &mut self,
        layout: &Layout<'_>,
        consumer: Option<&Stream>,
    ) -> Result<Prepared> {
        const OPERATION: &str = "PinnedBuf::into_dlpack";
        let device_type = if layout.page_locked { Place::CUDA_HOST } else { Place::CPU };
        let place = Place { device_type, device_id: 0 };
        let memory = (self.as_ptr().cast_mut().cast(), self.len() * size_of::<T>());
        let prepared = Prepared::new(OPERATION, memory, place, layout, consumer)?;
        self.write()?;
        Ok(prepared)
    }
}

impl<T: Pod + Send> DeviceBuf<T> {
    /// Gives the buffer to another library as a tensor. Makes later work of `consumer`, the stream
    /// on which that library uses it, wait for every pending use. Does not block.
    ///
    /// The tensor's deleter frees the memory in stream order, after all work that is on the stream
    /// when the deleter is called. A borrowed stream must live as long as the tensor. A tensor that
    /// is never deleted leaks.
    ///
    /// The memory of an emulated device is exported as `kDLExtDev`, which consumers refuse.
    ///
    /// # Errors
    ///
    /// Every error gives the buffer back: [`ErrorKind::InvalidValue`] and
    /// [`ErrorKind::OutOfRange`] for a layout that does not fit the buffer, or a per-thread default
    /// stream; [`ErrorKind::WrongDevice`], [`ErrorKind::StreamCapturing`],
    /// [`ErrorKind::ForkedProcess`].
    #[allow(clippy::result_large_err)] // the error holds the buffer
    pub fn into_dlpack(
        mut self,
        layout: &Layout<'_>,
        consumer: &Stream,
    ) -> Result<NonNull<ManagedTensor>, Refused<Self>> {
        match self.prepare_export(layout, consumer) {
            Ok(prepared) => Ok(prepared.export(self)),
            Err(error) => Err(Refused { value: self, error }),
        }
    }

    /// The part of the export that can fail.
    pub(crate) fn prepare_export(
        &mut self,
        layout: &Layout<'_>,
        consumer: &Stream,
    ) -> Result<Prepared> {
        const OPERATION: &str = "DeviceBuf::into_dlpack";
        let data = ptr::without_provenance_mut(self.as_device_ptr() as usize);
        let (memory, place) = ((data, self.len() * size_of::<T>()), place_of(self.context()));
        let prepared = Prepared::new(OPERATION, memory, place, layout, Some(consumer))?;
        consumer.acquire(self)?;
        Ok(prepared)
    }
}

/// The DLPack device of a device's memory.
pub(super) fn place_of(context: &crate::context::Context) -> Place {
    let device_type = if context.is_cuda() { Place::CUDA } else { Place::EXTENSION };
    Place { device_type, device_id: context.ordinal() }
}
