//! Page-locks new memory, and gives it back.
//!
//! There are two ways. [`Register`](PageLocking::Register) takes memory from the system, touches it
//! with several threads and page-locks it in place. [`Allocate`](PageLocking::Allocate) leaves this
//! to the runtime. An emulated machine that watches the host sees only memory that it has
//! allocated, so there the pool does not register.
//!
//! Memory is registered in one call if the system allows it. It may refuse one large call where it
//! grants several: drivers from R580 on refuse 512 GiB, Linux 6.11 to 6.13 more than 2 GiB. Then
//! the pool registers in parts, which shrink until the first one works. The runtime refuses a copy
//! that spans two registrations, so a block knows its [seams](crate::memory::block), at which
//! copies are split. Slabs of several blocks have no seams.
//!
//! If the system has no memory left, the pool does not try another way: the system promises more
//! than it has, and kills the process when the memory is touched.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

use super::limits;
use super::pages::{Pages, keep_from_children, leave_to_children};
use crate::context::Context;
use crate::driver::{Attribute, Driver, HostFlags, Ordinal};
use crate::error::{CudaCode, Error};
use crate::memory::lock::{self, NotRegistered};
use crate::pool::books::stats::Fallbacks;
use crate::pool::classes::PAGE;
use crate::pool::options::{Options, PageLocking};
use crate::process::wait_for_late_ends;

/// The smallest part that is registered. No slab of several blocks is larger.
pub(crate) const LEAST_PART: usize = 8 << 20;

/// Pause between two registrations: `cudaHostRegister` keeps other threads' CUDA calls waiting.
const PAUSE: Duration = Duration::from_micros(100);

/// Page-locked memory. Dropping it leaks it; see [`release`](SlabMemory::release).
pub(crate) struct SlabMemory {
    ptr: NonNull<u8>,
    bytes: usize,
    locked_by: LockedBy,
}

enum LockedBy {
    /// In parts of this many bytes; `usize::MAX` if in one part.
    Registration(ManuallyDrop<Pages>, usize),
    Allocation,
}

// SAFETY: a `SlabMemory` owns memory that is not tied to a thread.
unsafe impl Send for SlabMemory {}

impl SlabMemory {
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// No operation may span a multiple of this many bytes.
    pub(crate) fn seam(&self) -> usize {
        match self.locked_by {
            LockedBy::Registration(_, part) => part,
            LockedBy::Allocation => usize::MAX,
        }
    }

    /// Gives the memory back to the system. Blocks, and may wait for the device. If the runtime
    /// refuses, returns false, and the memory leaks: it may still be page-locked.
    ///
    /// # Safety
    ///
    /// * No operation that names the memory is pending on any stream.
    /// * It is no longer accessed.
    /// * The calling thread is not inside a host function.
    pub(crate) unsafe fn release(self, context: &Context) -> bool {
        let Some(driver) = context.releaser() else { return false };
        wait_for_late_ends();
        match self.locked_by {
            LockedBy::Registration(pages, part) => {
                // SAFETY: `register` registered these parts, and by the caller's precondition no
                // operation is pending.
                let done = unsafe { unregister(driver, self.ptr, self.bytes, part) };
                if done {
                    drop(ManuallyDrop::into_inner(pages));
                }
                done
            }
            // SAFETY: the memory came from `host_alloc`. The rest is the caller's precondition.
            LockedBy::Allocation => unsafe { free(driver, self.ptr, self.bytes) },
        }
    }
}

/// Gives memory of [`allocate`] back; false if it leaks.
///
/// # Safety
///
/// * The memory came from `driver.host_alloc`, with this length, and is not freed.
/// * No operation that names it is pending on any stream, and it is no longer accessed.
/// * The calling thread is not inside a host function.
unsafe fn free(driver: &dyn Driver, ptr: NonNull<u8>, bytes: usize) -> bool {
    // Children get the pages again, because the runtime may reuse them. Where it forbids the
    // advice, it does not share them.
    let _ = leave_to_children(ptr, bytes);
    // SAFETY: the caller's preconditions.
    let freed = unsafe { driver.host_free(ptr) }.is_ok();
    if !freed {
        let _ = keep_from_children(ptr, bytes);
    }
    freed
}

/// Why memory was not page-locked.
pub(crate) enum NotLocked {
    /// The runtime may not be called here.
    Refused(Error),
    /// The system does not have enough memory; with the amount that it has, if known.
    NoMemory(Option<usize>),
    /// The system page-locks no more, not even a small part; with how many bytes of this memory it
    /// did.
    Full(usize),
    /// The runtime's call failed.
    Runtime(&'static str, CudaCode),
}

/// Page-locks `bytes`, a multiple of a page, aligned to `align`: in one call, or with at most as
/// many bytes in a call as `parts` says, and in smaller parts if the system refuses that. Blocks
/// for a time that grows with the size.
pub(crate) fn page_lock(
    context: &Context,
    options: &Options,
    parts: Option<usize>,
    bytes: usize,
    align: usize,
) -> Result<(SlabMemory, Fallbacks), NotLocked> {
    let driver = context.driver("PinnedPool::alloc").map_err(NotLocked::Refused)?;
    limits::ask_for(bytes).map_err(|available| NotLocked::NoMemory(Some(available)))?;
    let mut fallbacks = Fallbacks::default();
    // Only registered memory can be aligned to more than a page, and only allocated memory can be
    // write-combined, or be watched.
    let register_it = options.page_locking == PageLocking::Register
        && !options.flags.write_combined
        && !driver.watches_allocated_memory();
    let mut refused_in_parts = false;
    if register_it || align > PAGE {
        let mapped = map(driver, context.ordinal(), bytes, align);
        let registered = mapped.and_then(|(pages, refused)| {
            fallbacks = refused;
            register(driver, context, options, parts, pages)
        });
        match registered {
            Ok(memory) => {
                fallbacks.in_parts = memory.seam() < bytes;
                return Ok((memory, fallbacks));
            }
            Err(NotLocked::Runtime(_, code)) if !code.is_sticky() && align <= PAGE => {
                fallbacks.not_registered = true;
            }
            Err(NotLocked::Full(0)) if align <= PAGE => {
                fallbacks.not_registered = true;
                refused_in_parts = true;
            }
            Err(failure) => return Err(failure),
        }
    }
    match allocate(context, driver, bytes, options.flags) {
        Ok(memory) => Ok((memory, fallbacks)),
        Err(NotLocked::Runtime(_, CudaCode::MEMORY_ALLOCATION))
            if refused_in_parts || bytes <= LEAST_PART =>
        {
            Err(NotLocked::Full(0))
        }
        Err(failure) => Err(failure),
    }
}

/// Leaves mapping and page-locking to the runtime.
fn allocate(
    context: &Context,
    driver: &dyn Driver,
    bytes: usize,
    flags: HostFlags,
) -> Result<SlabMemory, NotLocked> {
    let failed = |code| NotLocked::Runtime("cudaHostAlloc", code);
    let ptr = driver.host_alloc(context.ordinal(), bytes, flags).map_err(failed)?;
    if keep_from_children(ptr, bytes).is_ok() {
        return Ok(SlabMemory { ptr, bytes, locked_by: LockedBy::Allocation });
    }
    // SAFETY: it was just allocated and has no other user; the driver may be called here.
    if !unsafe { free(driver, ptr, bytes) } {
        context.quarantine(bytes, "that were to grow a pool");
    }
    Err(failed(CudaCode::NOT_SUPPORTED))
}

/// Maps memory for `device`, untouched.
fn map(
    driver: &dyn Driver,
    device: Ordinal,
    bytes: usize,
    align: usize,
) -> Result<(Pages, Fallbacks), NotLocked> {
    let node = driver.attribute(device, Attribute::HostNumaNode);
    let node = node.ok().and_then(|node| u32::try_from(node).ok());
    Pages::map(bytes, align, node).map_err(|error| match error.kind() {
        io::ErrorKind::OutOfMemory => NotLocked::NoMemory(None),
        _ => NotLocked::Runtime("cudaHostRegister", CudaCode::MEMORY_ALLOCATION),
    })
}

/// Registers `pages` in the given parts, which shrink until the first one works.
fn register(
    driver: &dyn Driver,
    context: &Context,
    options: &Options,
    parts: Option<usize>,
    pages: Pages,
) -> Result<SlabMemory, NotLocked> {
    let (ptr, bytes) = (pages.ptr(), pages.bytes());
    let mut part = parts.unwrap_or(usize::MAX);
    // The pages leak if they may still be page-locked.
    let pages = ManuallyDrop::new(pages);
    loop {
        let (registered, answer) = register_parts(driver, context.ordinal(), options, &pages, part);
        let Err(NotRegistered { code, may_be_locked }) = answer else {
            return Ok(SlabMemory { ptr, bytes, locked_by: LockedBy::Registration(pages, part) });
        };
        // SAFETY: these parts have just been registered and have no other user.
        if !unsafe { unregister(driver, ptr, registered, part) } || may_be_locked {
            context.quarantine(bytes, "that were to grow a pool");
            return Err(NotLocked::Runtime("cudaHostRegister", code));
        }
        let may_shrink = parts.is_some() && may_be_too_large(code);
        let smaller = smaller_part(part.min(bytes)).filter(|_| may_shrink);
        match smaller {
            Some(smaller) if registered == 0 => part = smaller,
            _ => {
                drop(ManuallyDrop::into_inner(pages));
                // An earlier part was registered, or no part is smaller: the size of a call is not
                // the obstacle.
                let full = registered > 0 || part.min(bytes) <= LEAST_PART;
                return Err(match code {
                    CudaCode::MEMORY_ALLOCATION if full => NotLocked::Full(registered),
                    code => NotLocked::Runtime("cudaHostRegister", code),
                });
            }
        }
    }
}

/// Touches `pages` and registers them part by part, until one fails. Returns how many bytes are
/// registered.
fn register_parts(
    driver: &dyn Driver,
    device: Ordinal,
    options: &Options,
    pages: &Pages,
    part: usize,
) -> (usize, Result<(), NotRegistered>) {
    let flags = HostFlags { write_combined: false, ..options.flags };
    let mut registered = 0;
    let answer = pages.populate(options.growth_threads, part, |range| {
        if range.start > 0 {
            std::thread::sleep(PAUSE);
        }
        // SAFETY: the range lies in the pages, which are mapped, readable and writable, and are
        // unmapped only after they have been unregistered. They have no other user yet.
        unsafe {
            let start = pages.ptr().add(range.start);
            lock::register(driver, device, start, range.len(), flags)?;
        }
        registered = range.end;
        Ok(())
    });
    (registered, answer)
}

/// The next size to try after `part`: a power of two, so that all seams lie at multiples of
/// [`LEAST_PART`].
fn smaller_part(part: usize) -> Option<usize> {
    (part > LEAST_PART).then(|| (1 << (part - 1).ilog2()).max(LEAST_PART))
}

/// Whether smaller parts may help against `code`. The runtime returns `MEMORY_ALLOCATION` when the
/// driver or the kernel refuses the size of one call; older runtimes return other codes.
fn may_be_too_large(code: CudaCode) -> bool {
    let never = [CudaCode::NOT_SUPPORTED, CudaCode::NOT_PERMITTED, CudaCode::CUDART_UNLOADING];
    !code.is_sticky() && !never.contains(&code)
}

/// Unregisters `bytes` that were registered in parts; false if that failed for a part.
///
/// # Safety
///
/// * The parts were registered by `driver`, and no operation that names them is pending.
unsafe fn unregister(driver: &dyn Driver, ptr: NonNull<u8>, bytes: usize, part: usize) -> bool {
    let mut all = true;
    for start in (0..bytes).step_by(part) {
        // SAFETY: the caller's precondition; the part starts in the memory.
        all &= unsafe { driver.host_unregister(ptr.add(start)) }.is_ok();
    }
    all
}
