//! Device memory, allocated and freed in stream order.
//!
//! # Invariants
//!
//! * The allocation itself is recorded as a device write on the device's allocation stream, so that the
//!   first use on any stream is ordered after it by the same mechanism as every other use.
//! * Memory is freed on a stream that waits for every pending use. If that order cannot be established
//!   the memory is quarantined: counted, never freed.
//! * The contents are never read by the host; [`DeviceBuf`] gives out an address, not a slice.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

use super::hazard::{Access, Hazards, Use};
use super::{Operand, Tracked, TrackedMut, byte_count, range, sealed};
use crate::context::Context;
use crate::device::{Device, DeviceInner};
use crate::driver::DevicePtr;
use crate::error::{CudaCode, Result};
use crate::process::on_ordinary_thread;

/// An untyped tracked range of device memory.
pub(crate) struct DeviceRegion {
    device: Arc<DeviceInner>,
    ptr: DevicePtr,
    bytes: usize,
    /// Borrowed memory is not freed.
    owned: bool,
    hazards: Hazards,
}

impl DeviceRegion {
    pub(crate) fn alloc(device: &Arc<DeviceInner>, bytes: usize) -> Result<Self> {
        let mut region = DeviceRegion {
            device: device.clone(),
            ptr: 0,
            bytes,
            owned: bytes > 0,
            hazards: Hazards::default(),
        };
        if bytes == 0 {
            device.context().check_process("Device::alloc")?;
            return Ok(region);
        }
        let stream = device.allocations();
        let submission = stream.submit("Device::alloc", |driver, raw| {
            // SAFETY: the stream is live, private and not capturing (`submit`); the use recorded
            // below orders all work on the address after the allocation.
            unsafe { driver.device_alloc(raw, bytes) }
        })?;
        region.ptr = submission.value.map_err(|code| {
            region.owned = false;
            out_of_memory(device.context(), code, bytes)
        })?;
        // Should the fence have failed, the pending use makes whoever waits for it say so.
        region.hazards.record(Use {
            stream: stream.clone(),
            position: submission.position,
            range: 0..bytes,
            access: Access::Write,
        });
        Ok(region)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.device.context()
    }

    pub(crate) fn operand(&self, range: Range<usize>, access: Access) -> Operand<'_> {
        Operand { context: self.device.context(), hazards: &self.hazards, range, access }
    }
}

#[cold]
fn out_of_memory(context: &Context, code: CudaCode, bytes: usize) -> crate::Error {
    let room = context
        .driver("cudaMemGetInfo")
        .ok()
        .and_then(|driver| driver.memory_info(context.ordinal()).ok())
        .map_or(String::new(), |(free, total)| format!(" ({free} of {total} bytes are free)"));
    context.error(code, "cudaMallocAsync", format_args!("allocating {bytes} bytes{room}"))
}

impl Drop for DeviceRegion {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let (device, ptr, bytes) = (self.device.clone(), self.ptr, self.bytes);
        let pending = self.hazards.take_pending();
        on_ordinary_thread(move || free(&device, ptr, bytes, &pending));
    }
}

fn free(device: &DeviceInner, ptr: DevicePtr, bytes: usize, pending: &[Use]) {
    let Some(driver) = device.context().releaser() else { return };
    // All pending uses on one private stream: freeing there needs no waiting, and delays nothing.
    let home = match pending {
        [only] if only.stream.is_private() => &only.stream,
        _ => device.frees(),
    };
    let ordered = pending.iter().all(|user| home.wait_for(&user.stream, user.position).is_ok());
    // SAFETY: the stream is live, and not capturing since it is private; the memory came from
    // `device_alloc` and its owner is gone, so this is the only free; `ordered` says that every use is
    // ordered before this call: retired, earlier on `home`, or waited for by it.
    let freed = ordered && unsafe { driver.device_free(home.raw(), ptr) }.is_ok();
    if !freed {
        device.context().quarantine(bytes);
    }
}

/// A buffer of `len` elements in the memory of a device.
///
/// The buffer knows which asynchronous operations still use it, on which streams; work on another
/// stream is ordered after them on the device. Dropping it, even in the middle of a copy, frees the
/// memory in stream order, behind the last use.
pub struct DeviceBuf<T: Pod> {
    region: DeviceRegion,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates `len` elements of device memory; the contents are unspecified. Does not wait for the
    /// device: the allocation is made in stream order (`cudaMallocAsync`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfDeviceMemory`](crate::ErrorKind::OutOfDeviceMemory),
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) if the size overflows.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuf<T>> {
        let bytes = byte_count::<T>("Device::alloc", len)?;
        Ok(DeviceBuf { region: DeviceRegion::alloc(&self.inner, bytes)?, len, element: PhantomData })
    }

    /// Borrows device memory that somebody else allocated, so that copies to and from it are tracked.
    /// Dropping the buffer does not free the memory.
    ///
    /// # Safety
    ///
    /// * `ptr .. ptr + len * size_of::<T>()` lies in one allocation on this device, aligned for `T`.
    /// * It stays allocated until every operation enqueued through the buffer is complete.
    /// * Work on it that was enqueued elsewhere before this call is complete, or is ordered before the
    ///   streams that the buffer is used on; work enqueued elsewhere later is ordered by the caller.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) if the size overflows.
    pub unsafe fn borrow_memory<T: Pod>(&self, ptr: DevicePtr, len: usize) -> Result<DeviceBuf<T>> {
        let bytes = byte_count::<T>("Device::borrow_memory", len)?;
        let region = DeviceRegion {
            device: self.inner.clone(),
            ptr,
            bytes,
            owned: false,
            hazards: Hazards::default(),
        };
        Ok(DeviceBuf { region, len, element: PhantomData })
    }
}

impl<T: Pod> DeviceBuf<T> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device address of the first element, for kernels and libraries; see
    /// [`Stream::foreign`](crate::Stream::foreign). 0 if there are no bytes.
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.region.ptr
    }

    /// A view of the elements in `range`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) if the range does not lie in the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        let range = range::resolve("DeviceBuf::slice", range, self.len)?;
        Ok(DeviceSlice { region: &self.region, range, element: PhantomData })
    }

    /// A view of the elements in `range` that may be written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) if the range does not lie in the buffer.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        let range = range::resolve("DeviceBuf::slice_mut", range, self.len)?;
        Ok(DeviceSliceMut { region: &mut self.region, range, element: PhantomData })
    }

    /// The whole buffer as a view.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { region: &self.region, range: 0..self.len, element: PhantomData }
    }

    /// The whole buffer as a view that may be written.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { region: &mut self.region, range: 0..self.len, element: PhantomData }
    }
}

impl<T: Pod> fmt::Debug for DeviceBuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuf")
            .field("device", &self.region.context().ordinal())
            .field("ptr", &format_args!("{:#x}", self.region.ptr))
            .field("len", &self.len)
            .finish()
    }
}

/// A shared view of a part of a [`DeviceBuf`].
pub struct DeviceSlice<'a, T: Pod> {
    region: &'a DeviceRegion,
    range: Range<usize>,
    element: PhantomData<&'a [T]>,
}

/// An exclusive view of a part of a [`DeviceBuf`].
pub struct DeviceSliceMut<'a, T: Pod> {
    region: &'a mut DeviceRegion,
    range: Range<usize>,
    element: PhantomData<&'a mut [T]>,
}

impl<T: Pod> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        DeviceSlice { region: self.region, range: self.range.clone(), element: PhantomData }
    }
}

fn in_bytes<T>(range: &Range<usize>) -> Range<usize> {
    range.start * size_of::<T>()..range.end * size_of::<T>()
}

impl<T: Pod> DeviceSlice<'_, T> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The device address of the first element; see [`DeviceBuf::as_device_ptr`].
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.region.ptr + in_bytes::<T>(&self.range).start as DevicePtr
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.region.context()
    }
}

impl<T: Pod> DeviceSliceMut<'_, T> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The device address of the first element; see [`DeviceBuf::as_device_ptr`].
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.region.ptr + in_bytes::<T>(&self.range).start as DevicePtr
    }

    /// The same view, for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { region: self.region, range: self.range.clone(), element: PhantomData }
    }

    /// The same view, shared.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { region: self.region, range: self.range.clone(), element: PhantomData }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.region.context()
    }
}

impl<'a, T: Pod> From<&'a DeviceBuf<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuf<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuf<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuf<T>) -> Self {
        buffer.as_slice_mut()
    }
}

impl<T: Pod> sealed::Sealed for DeviceBuf<T> {
    fn reading(&self) -> Operand<'_> {
        self.region.operand(0..self.region.bytes, Access::Read)
    }
}

impl<T: Pod> sealed::SealedMut for DeviceBuf<T> {
    fn writing(&mut self) -> Operand<'_> {
        self.region.operand(0..self.region.bytes, Access::Write)
    }
}

impl<T: Pod> sealed::Sealed for DeviceSlice<'_, T> {
    fn reading(&self) -> Operand<'_> {
        self.region.operand(in_bytes::<T>(&self.range), Access::Read)
    }
}

impl<T: Pod> sealed::Sealed for DeviceSliceMut<'_, T> {
    fn reading(&self) -> Operand<'_> {
        self.region.operand(in_bytes::<T>(&self.range), Access::Read)
    }
}

impl<T: Pod> sealed::SealedMut for DeviceSliceMut<'_, T> {
    fn writing(&mut self) -> Operand<'_> {
        self.region.operand(in_bytes::<T>(&self.range), Access::Write)
    }
}

impl<T: Pod> Tracked for DeviceBuf<T> {}
impl<T: Pod> TrackedMut for DeviceBuf<T> {}
impl<T: Pod> Tracked for DeviceSlice<'_, T> {}
impl<T: Pod> Tracked for DeviceSliceMut<'_, T> {}
impl<T: Pod> TrackedMut for DeviceSliceMut<'_, T> {}
