//! One range of memory that other code allocated. This crate or the owner page-locked it
//! (`cudaHostRegister`).
//!
//! ```text
//!   PinnedBuf -- BlockRef --> Registration { block, owner }
//!      | drops, or the owner is asked for, or the borrow is to end
//!      v
//!   every use complete --> unregistered --> the owner is free
//!      | the device cannot say
//!      v
//!   owned: the owner leaks, counted as quarantined
//!   lent:  the borrow never ends; the process does
//! ```
//!
//! # Invariants
//!
//! * The owner is not touched before every recorded use is complete and the runtime has
//!   unregistered the memory. This is the only drop of a buffer that waits. `cudaHostUnregister`
//!   waits anyway.
//! * Every failure leaks the owner. It is kept in a `ManuallyDrop` and taken out at the very end.
//! * A forked child keeps its copy of the memory. The memory belongs to the program, so there is no
//!   `MADV_DONTFORK`: a child that reads its own `Vec` would crash. Copies stay correct if the
//!   kernel copies page-locked pages inside `fork`, as Linux does since 5.9. On older kernels the
//!   parent's next write may go to a new page that the device does not read, no matter which code
//!   page-locked the memory.
//! * No lock is held while the crate waits for a device, calls the runtime, or drops an owner.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use bytemuck::Pod;

use super::block::{Block, BlockOwner, BlockRef};
use super::hazard::Access;
use super::lock;
use super::pinned::{PinnedBuf, PinnedRegion};
use crate::context::Context;
use crate::driver::{Attribute, HostFlags};
use crate::error::{CudaCode, Error, ErrorKind, Remedy, Result};
use crate::process::{
    borrow_cannot_end, call_user, is_mapped, on_ordinary_thread, wait_for_late_ends,
};
use crate::sync::Mutex;

/// What devices do with registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They read and write it.
    Any,
    /// They only read it.
    ToRead,
}

/// Page-locks elements for all devices of the process. Zero bytes return at once.
///
/// # Safety
///
/// * The elements are readable until they have been unregistered. They are writable too, unless
///   they are only to be read.
/// * No operation uses them yet. If they are only to be read, no operation will write to them.
pub(super) unsafe fn page_lock<T>(
    context: &Context,
    operation: &'static str,
    elements: NonNull<[T]>,
    purpose: Purpose,
) -> Result<()> {
    let driver = context.driver(operation)?;
    let (ptr, bytes) = (elements.cast::<u8>(), elements.len() * size_of::<T>());
    if bytes == 0 {
        return Ok(());
    }
    let device = context.ordinal();
    // Only pages that are mapped for reading only need the flag. Two ranges of one page, of which
    // one has it, are refused.
    let needs_flag = purpose == Purpose::ToRead && {
        let start = ptr.addr().get();
        is_mapped(&(start..start + bytes), true) == Some(false)
    };
    let has_flag =
        needs_flag && matches!(driver.attribute(device, Attribute::HostRegisterReadOnly), Ok(1..));
    let flags = HostFlags { portable: true, read_only: has_flag, ..HostFlags::default() };
    // SAFETY: mapped, readable and used by no operation, by the preconditions. If it is not known
    // to be writable, no operation will write to it, and CUDA refuses it without the flag.
    unsafe { lock::register(driver, device, ptr, bytes, flags) }.map_err(|refused| {
        let is_missed = needs_flag && !has_flag;
        let remedy = if is_missed { Remedy::NoReadOnly } else { Remedy::PageLockable };
        not_page_locked(context, refused.code, operation, (ptr, bytes), remedy)
    })
}

#[cold]
fn not_page_locked(
    context: &Context,
    code: CudaCode,
    operation: &'static str,
    (ptr, bytes): (NonNull<u8>, usize),
    of_invalid_value: Remedy,
) -> Error {
    let what = format!("page-locking {bytes} bytes at {ptr:p}");
    let (kind, remedy) = match code {
        CudaCode::HOST_MEMORY_ALREADY_REGISTERED => (
            ErrorKind::InvalidValue,
            Remedy::Words(
                "some of them are page-locked already: register memory only once, and use the \
                 buffer that you got",
            ),
        ),
        CudaCode::INVALID_VALUE => {
            let is_missed = of_invalid_value == Remedy::NoReadOnly;
            let kind = if is_missed { ErrorKind::Unsupported } else { ErrorKind::InvalidValue };
            (kind, of_invalid_value)
        }
        CudaCode::MEMORY_ALLOCATION => (
            ErrorKind::OutOfHostMemory,
            Remedy::Words(
                "raise the limit on locked memory (ulimit -l), or register less at a time",
            ),
        ),
        code => return context.error(code, "cudaHostRegister", what),
    };
    let what = format!("{what} on device {}", context.ordinal());
    Error::new(kind, operation, what, remedy).with_code(code)
}

/// Page-locked memory, its owner and its uses.
pub(super) struct Registration<O> {
    context: Arc<Context>,
    block: Block,
    /// Taken when the registration ends. An owner that is not taken leaks.
    owner: Mutex<Option<ManuallyDrop<Box<O>>>>,
    terms: Terms,
    me: Weak<Self>,
}

/// Whose memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// The owner's.
    Owned,
    /// The owner's. The owner has page-locked it, and unlocks it.
    LockedElsewhere,
    /// A caller's. The caller always gets it back.
    Lent,
}

/// Why the registration could not end.
enum NotEnded {
    /// A device may still access the memory.
    InUse(Error),
    /// No device accesses the memory any more, but it is still page-locked.
    Locked(Error),
}

impl<O: Send + 'static> Registration<O> {
    /// `elements` are page-locked, by the caller or by the owner.
    pub(super) fn new<T>(
        context: &Arc<Context>,
        elements: NonNull<[T]>,
        owner: Box<O>,
        terms: Terms,
    ) -> Arc<Self> {
        let (ptr, bytes) = (elements.cast::<u8>(), elements.len() * size_of::<T>());
        Arc::new_cyclic(|me: &Weak<Self>| {
            let this: *const dyn BlockOwner = me.as_ptr();
            let this = NonNull::new(this.cast_mut()).expect("an address of an object");
            Registration {
                context: context.clone(),
                block: Block::new(ptr, bytes, usize::MAX, 0, None, this),
                owner: Mutex::new(Some(ManuallyDrop::new(owner))),
                terms,
                me: me.clone(),
            }
        })
    }

    /// The buffer whose drop ends the registration. Must be called once only.
    pub(super) fn buffer<T: Pod>(self: &Arc<Self>, len: usize) -> PinnedBuf<T> {
        let _ = Arc::into_raw(self.clone());
        // SAFETY: the descriptor lives as long as the registration. The reference that was just
        // leaked keeps that alive until `reclaim` takes it back. This is the only `BlockRef` to it,
        // because the function is called once.
        let block = unsafe { BlockRef::new(NonNull::from(&self.block)) };
        PinnedBuf::new(PinnedRegion::new(block), len)
    }

    /// Blocks until the device is done with the memory, and unregisters it.
    fn unlock(&self, operation: &'static str) -> Result<(), NotEnded> {
        let bytes = self.block.bytes();
        if bytes == 0 {
            return Ok(());
        }
        let driver = self.context.driver(operation).map_err(|error| {
            // The device works on the parent's memory, not on that of a forked child.
            if self.context.is_current() { NotEnded::InUse(error) } else { NotEnded::Locked(error) }
        })?;
        let mut result = Ok(());
        for user in self.block.hazards.pending(&(0..usize::MAX), Access::Write).iter() {
            let finished = user.stream.finish(user.fence.position, operation);
            result = result.and(finished.map_err(NotEnded::InUse));
        }
        result?;
        wait_for_late_ends();
        if self.terms == Terms::LockedElsewhere {
            return Ok(());
        }
        // SAFETY: every use has been recorded and is complete. The caller has the only right to the
        // block, so no further use can come.
        unsafe { driver.host_unregister(self.block.ptr()) }.map_err(|code| {
            let what = format_args!("unregistering {bytes} bytes");
            NotEnded::Locked(self.context.error(code, "cudaHostUnregister", what))
        })
    }

    /// Ends the registration, which must not have ended, and gives the owner back. A failure
    /// changes nothing.
    pub(super) fn give_back(&self, operation: &'static str) -> Result<O> {
        match self.unlock(operation) {
            Ok(()) => {
                let owner = self.owner.lock().take().expect("the buffer has not been dropped");
                Ok(*ManuallyDrop::into_inner(owner))
            }
            Err(NotEnded::InUse(error) | NotEnded::Locked(error)) => Err(error),
        }
    }

    /// Counts the memory of an owner that leaks.
    fn count_lost(&self) {
        self.context.quarantine(self.block.bytes(), "that were registered for copies");
    }

    /// Ends the registration for good, unless it has ended before. Fails only for lent memory.
    pub(super) fn end(&self, operation: &'static str) -> Result<()> {
        let Some(owner) = self.owner.lock().take() else { return Ok(()) };
        match self.unlock(operation) {
            Ok(()) => {
                call_user(|| drop(ManuallyDrop::into_inner(owner)));
                Ok(())
            }
            Err(_) if self.terms != Terms::Lent => {
                self.count_lost();
                Ok(())
            }
            Err(NotEnded::Locked(error)) => Err(error),
            Err(NotEnded::InUse(error)) => {
                let (bytes, ptr) = (self.block.bytes(), self.block.ptr().as_ptr());
                let remedy = "Register memory with its owner, or take it from a pool, if it must \
                              survive the loss of a device";
                borrow_cannot_end(ptr, bytes, &error, remedy)
            }
        }
    }
}

impl<O: Send + 'static> BlockOwner for Registration<O> {
    fn context(&self) -> &Context {
        &self.context
    }

    fn reclaim(&self, _: BlockRef) -> Option<Arc<dyn BlockOwner>> {
        if !self.context.is_current() {
            return None;
        }
        // SAFETY: `buffer` leaked one reference for the block, and the block comes back once.
        let me = unsafe { Arc::from_raw(self.me.as_ptr()) };
        let end = |registration: Arc<Self>| {
            // Only lent memory fails here, and only while a panic unwinds: no caller could get the
            // error.
            let _ = registration.end("Registered::drop");
        };
        on_ordinary_thread(me.clone(), end, |registration| registration.count_lost());
        Some(me)
    }
}
