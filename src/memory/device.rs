//! Device memory, allocated and freed in stream order.
//!
//! # Invariants
//!
//! * The allocation is recorded as a device write on the device's allocation stream. So the first
//!   use on any stream is ordered after it like any other use.
//! * Memory is freed on a stream that waits for every pending use. If the stream cannot be made to
//!   wait, the memory is quarantined: counted, never freed.
//! * The owner of memory that another library allocated drops when every use is complete. If a use
//!   cannot be waited for, the owner leaks, and the memory counts as quarantined.
//! * The host never reads the contents. [`DeviceBuf`] gives out an address, not a slice.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::hazard::{Access, Hazards, Use};
use super::range::in_bytes;
use super::{Operand, byte_count};
use crate::context::Context;
use crate::driver::DevicePtr;
use crate::error::{CudaCode, Error, Result};
use crate::process::{call_user, on_ordinary_thread};
use crate::timeline::{Exposure, Timeline};
use crate::trace::Work;

/// An untyped tracked range of device memory: two cache lines, of which the first is rarely
/// written.
#[repr(C, align(64))]
pub(crate) struct DeviceRegion {
    context: Arc<Context>,
    ptr: DevicePtr,
    bytes: usize,
    /// The stream to free the memory on. `None` if the memory is borrowed or empty. This is not a
    /// reference to the device, because the device may own the memory.
    frees: Option<Arc<Timeline>>,
    /// Keeps memory that another library allocated.
    owner: Option<Box<dyn Send + Sync>>,
    /// The length of its buffer in elements.
    len: usize,
    hazards: Hazards,
}

impl DeviceRegion {
    /// The offset of its hazards.
    #[cfg(all(test, feature = "emulated"))]
    pub(super) const HAZARDS: usize = std::mem::offset_of!(DeviceRegion, hazards);
}

impl DeviceRegion {
    fn borrowed(context: &Arc<Context>, ptr: DevicePtr, bytes: usize) -> Self {
        let context = context.clone();
        let hazards = Hazards::default();
        DeviceRegion { context, ptr, bytes, frees: None, owner: None, len: 0, hazards }
    }

    fn alloc(heap: &Heap, bytes: usize) -> Result<Self> {
        let stream = &heap.allocations;
        let context = stream.context();
        if bytes == 0 {
            context.check_process("Device::alloc")?;
            return Ok(Self::borrowed(context, 0, 0));
        }
        let submission = stream.submit("Device::alloc", |driver, raw| {
            stream.shown(Work::new("Device::alloc", bytes), || {
                // SAFETY: the stream is live, private and not capturing (`submit`); the use
                // recorded below orders all work on the address after the allocation.
                unsafe { driver.device_alloc(raw, bytes) }
            })
        })?;
        let ptr = submission.value.map_err(|code| out_of_memory(context, code, bytes))?;
        let mut region = Self::borrowed(context, ptr, bytes);
        region.frees = Some(heap.frees.clone());
        // If the fence failed, the use stays pending, and a wait for it returns the error.
        region.hazards.note(stream, submission.fence, 0..bytes, Access::Write);
        Ok(region)
    }

    pub(super) fn operand(&self, range: Range<usize>, access: Access) -> Operand<'_> {
        Operand { context: &self.context, hazards: &self.hazards, range, rows: None, access }
    }
}

#[cold]
fn out_of_memory(context: &Context, code: CudaCode, bytes: usize) -> Error {
    let room = context
        .driver("cudaMemGetInfo")
        .ok()
        .and_then(|driver| driver.memory_info(context.ordinal()).ok())
        .map_or(String::new(), |(free, total)| format!(" ({free} of {total} bytes are free)"));
    context.error(code, "cudaMallocAsync", format_args!("allocating {bytes} bytes{room}"))
}

impl Drop for DeviceRegion {
    fn drop(&mut self) {
        let (ptr, bytes) = (self.ptr, self.bytes);
        if self.frees.is_none() && self.owner.is_none() {
            return;
        }
        let pending = self.hazards.take_pending();
        if let Some(frees) = self.frees.take() {
            let lost = |(frees, _): &mut (Arc<Timeline>, _)| count_lost(frees.context(), bytes);
            let free = move |(frees, pending): (_, Vec<Use>)| free(&frees, ptr, bytes, &pending);
            on_ordinary_thread((frees, pending), free, lost);
        } else if let Some(owner) = self.owner.take() {
            let end = move |(context, owner, pending): (Arc<Context>, _, Vec<Use>)| {
                give_back(&context, owner, bytes, &pending);
            };
            let lost = |(context, ..): &mut (Arc<Context>, _, _)| count_lost(context, bytes);
            on_ordinary_thread((self.context.clone(), owner, pending), end, lost);
        }
    }
}

/// Counts memory that is never freed.
fn count_lost(context: &Context, bytes: usize) {
    context.quarantine(bytes, "in the memory");
}

/// Drops the owner when every use is complete.
fn give_back(context: &Context, owner: Box<dyn Send + Sync>, bytes: usize, pending: &[Use]) {
    let mut complete = context.is_current();
    for user in pending.iter().filter(|_| context.is_current()) {
        complete &= user.stream.finish(user.fence.position, "DeviceBuf::drop").is_ok();
    }
    if complete {
        call_user(|| drop(owner));
    } else {
        std::mem::forget(owner);
        count_lost(context, bytes);
    }
}

fn free(frees: &Arc<Timeline>, ptr: DevicePtr, bytes: usize, pending: &[Use]) {
    let context = frees.context();
    let Some(driver) = context.releaser() else { return };
    // If all pending uses are on one sealed stream of the memory's device, the free goes there: it
    // needs no wait and delays nothing. On a blocking stream the free would wait for the legacy
    // stream, and later work of the blocking stream for the free.
    let is_home = |stream: &Timeline| {
        stream.exposure() == Exposure::Sealed && stream.raw().device == context.ordinal()
    };
    let home = match pending {
        [only] if is_home(&only.stream) => &only.stream,
        _ => frees,
    };
    let precedes =
        |user: &Use| home.wait_for(&user.stream, user.fence.position, "DeviceBuf::drop").is_ok();
    let ordered = pending.iter().all(precedes);
    // SAFETY: the stream is live, and not capturing because only this crate has it. The memory came
    // from `device_alloc` and its owner is gone, so this is the only free. `ordered` says that
    // every use is ordered before this call: it is retired, or earlier on `home`, or `home` waits
    // for it.
    let freed = ordered && unsafe { driver.device_free(home.raw(), ptr) }.is_ok();
    if !freed {
        count_lost(context, bytes);
    }
}

/// A buffer of `len` elements in the memory of a device.
///
/// The buffer knows which asynchronous operations still use it, and on which streams. Work on
/// another stream that conflicts with them waits for them, on the device. Dropping the buffer, even
/// in the middle of a copy, frees the memory in stream order, after the last use.
pub struct DeviceBuf<T: Pod> {
    region: DeviceRegion,
    element: PhantomData<T>,
}

/// Where the device memory of a device is allocated and freed.
pub(crate) struct Heap {
    /// Memory is allocated in the order of this stream, which has no other work.
    pub(crate) allocations: Arc<Timeline>,
    /// Memory is freed in the order of this stream, which waits for the memory's uses.
    pub(crate) frees: Arc<Timeline>,
}

impl<T: Pod> DeviceBuf<T> {
    /// Allocates `len` elements.
    pub(crate) fn alloc(heap: &Heap, len: usize) -> Result<Self> {
        let region = DeviceRegion::alloc(heap, byte_count::<T>("Device::alloc", len)?)?;
        Ok(Self::of(region, len))
    }

    /// Names `len` elements of memory that other code owns. The caller meets the preconditions of
    /// [`Device::borrow_memory`](crate::Device::borrow_memory).
    pub(crate) fn borrowed(context: &Arc<Context>, ptr: DevicePtr, len: usize) -> Result<Self> {
        const OPERATION: &str = "Device::borrow_memory";
        let bytes = byte_count::<T>(OPERATION, len)?;
        if ptr.checked_add(bytes as DevicePtr).is_none() {
            let what = format!("{bytes} bytes at {ptr:#x} do not fit in an address space");
            let remedy = "pass the address and the size of device memory";
            return Err(Error::invalid(OPERATION, what, remedy));
        }
        let region = DeviceRegion::borrowed(context, ptr, bytes);
        Ok(Self::of(region, len))
    }

    /// `region` has as many bytes as `len` elements.
    fn of(mut region: DeviceRegion, len: usize) -> Self {
        region.len = len;
        DeviceBuf { region, element: PhantomData }
    }
}

impl<T: Pod> DeviceBuf<T> {
    /// Counts the memory and never frees it, because it may still be in use.
    pub(crate) fn quarantine(mut self) {
        self.region.frees = None;
        self.count_lost();
    }

    /// Counts the memory. The caller then forgets it.
    pub(crate) fn count_lost(&self) {
        count_lost(&self.region.context, self.region.bytes);
    }

    /// The same memory, kept alive by `owner`, which drops after the buffer when no use is pending.
    pub(crate) fn keeping(mut self, owner: Box<dyn Send + Sync>) -> Self {
        self.region.owner = Some(owner);
        self
    }

    pub(crate) fn context(&self) -> &Context {
        &self.region.context
    }

    #[inline]
    pub(super) fn region(&self) -> &DeviceRegion {
        &self.region
    }

    /// A range of bytes, as a part of an operation.
    pub(crate) fn operand_of(&self, bytes: Range<usize>, access: Access) -> Operand<'_> {
        self.region.operand(bytes, access)
    }

    /// Whether one copy may cover that range of bytes: a buffer lies in one allocation.
    pub(crate) fn is_one_piece(&self, _bytes: Range<usize>) -> bool {
        true
    }

    /// Its address, as CUDA takes it.
    pub(crate) fn exposed_address(&self) -> u64 {
        self.region.ptr
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// The device address of the first element, for kernels and libraries; see
    /// [`Stream::foreign`](crate::Stream::foreign). 0 if the buffer is empty.
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.region.ptr
    }
}

impl<T: Pod> fmt::Debug for DeviceBuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuf")
            .field("device", &self.region.context.ordinal())
            .field("ptr", &format_args!("{:#x}", self.region.ptr))
            .field("len", &self.region.len)
            .finish()
    }
}

/// A shared view of a part of a [`DeviceBuf`].
pub struct DeviceSlice<'a, T: Pod> {
    pub(super) region: &'a DeviceRegion,
    pub(super) range: Range<usize>,
    pub(super) element: PhantomData<&'a [T]>,
}

/// An exclusive view of a part of a [`DeviceBuf`].
pub struct DeviceSliceMut<'a, T: Pod> {
    /// Several views share it. Their ranges are disjoint, and each view is exclusive.
    pub(super) region: &'a DeviceRegion,
    pub(super) range: Range<usize>,
    pub(super) element: PhantomData<&'a mut [T]>,
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// The same memory, without its type.
    pub(crate) fn as_bytes(&self) -> DeviceBytes<'a> {
        DeviceBytes::new(self.region, in_bytes::<T>(&self.range))
    }
}

macro_rules! device_view {
    ($view:ident) => {
        impl<'a, T: Pod> $view<'a, T> {
            /// The device address of the first element; see [`DeviceBuf::as_device_ptr`].
            #[must_use]
            pub fn as_device_ptr(&self) -> DevicePtr {
                self.region.ptr + in_bytes::<T>(&self.range).start as DevicePtr
            }

            /// The same bytes as elements of another type.
            ///
            /// # Errors
            ///
            /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if the bytes are not a whole number
            /// of elements, or not aligned for them.
            pub fn cast<U: Pod>(self) -> Result<$view<'a, U>> {
                let range = cast_range::<T, U>(self.region.ptr, &self.range)?;
                Ok($view { region: self.region, range, element: PhantomData })
            }

            #[inline]
            pub(crate) fn context(&self) -> &Arc<Context> {
                &self.region.context
            }
        }

        /// Consumes the view, so that the result of an exclusive view is used exclusively too.
        impl<'a, T: Pod> From<$view<'a, T>> for DeviceBytes<'a> {
            #[inline]
            fn from(view: $view<'a, T>) -> Self {
                DeviceBytes::new(view.region, in_bytes::<T>(&view.range))
            }
        }
    };
}

device_view!(DeviceSlice);
device_view!(DeviceSliceMut);

/// Device memory that a batch names, without its type: where it is, and where to record its uses.
#[derive(Clone, Copy)]
pub(crate) struct DeviceBytes<'a> {
    region: &'a DeviceRegion,
    ptr: DevicePtr,
    bytes: usize,
    /// Whether other code allocated it. Only then may two regions overlap.
    borrowed: bool,
}

impl<'a> DeviceBytes<'a> {
    #[inline]
    fn new(region: &'a DeviceRegion, range: Range<usize>) -> Self {
        let ptr = region.ptr + range.start as DevicePtr;
        DeviceBytes { region, ptr, bytes: range.len(), borrowed: region.frees.is_none() }
    }

    #[inline]
    pub(crate) fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The address behind its last byte.
    #[inline]
    pub(crate) fn end(&self) -> DevicePtr {
        self.ptr + self.bytes as DevicePtr
    }

    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        self.borrowed
    }

    #[inline]
    pub(crate) fn context(&self) -> &'a Arc<Context> {
        &self.region.context
    }

    /// `bytes` of its bytes from `start` on, which must lie in it.
    pub(crate) fn part(&self, start: usize, bytes: usize) -> Self {
        debug_assert!(start + bytes <= self.bytes);
        DeviceBytes { ptr: self.ptr + start as DevicePtr, bytes, ..*self }
    }

    /// Identifies the buffer among all that exist.
    #[inline]
    pub(crate) fn home(&self) -> usize {
        std::ptr::from_ref(self.region).addr()
    }

    /// Whether `next` begins where this one ends, in one buffer.
    #[inline]
    pub(crate) fn is_followed_by(&self, next: &DeviceBytes<'_>) -> bool {
        self.end() == next.ptr && self.home() == next.home()
    }

    pub(crate) fn operand(&self, access: Access) -> Operand<'a> {
        self.region.operand(self.range(), access)
    }

    #[inline]
    pub(crate) fn hazards(&self) -> &'a Hazards {
        &self.region.hazards
    }

    /// Its bytes, counted from the start of the buffer.
    #[inline]
    pub(crate) fn range(&self) -> Range<usize> {
        let start = (self.ptr - self.region.ptr) as usize;
        start..start + self.bytes
    }
}

/// The elements of `U` that are the same bytes as `range` of `T`, in memory that begins at `base`.
///
/// Ranges count elements from the region's start. So the bytes before the range must be a whole
/// number of elements too.
fn cast_range<T, U>(base: DevicePtr, range: &Range<usize>) -> Result<Range<usize>> {
    let bytes = in_bytes::<T>(range);
    let (size, align) = (size_of::<U>(), align_of::<U>());
    let refused = |what, remedy| Err(Error::invalid("DeviceSlice::cast", what, remedy));
    if size == 0 || !bytes.start.is_multiple_of(size) || !bytes.end.is_multiple_of(size) {
        let what = format!("bytes {} .. {} as elements of {size} bytes", bytes.start, bytes.end);
        return refused(what, "begin and end the view at multiples of the new element's size");
    }
    let address = base + bytes.start as DevicePtr;
    if !address.is_multiple_of(align as DevicePtr) {
        return refused(
            format!("elements that are aligned to {align} bytes, at the address {address:#x}"),
            "borrow or import memory whose address is a multiple of the elements' alignment",
        );
    }
    Ok(bytes.start / size..bytes.end / size)
}
