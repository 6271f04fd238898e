//! Page-locking new memory, and giving it back.
//!
//! Two ways: [`Register`](PageLocking::Register) takes memory from the system, touches it with several
//! threads and page-locks it in place; [`Allocate`](PageLocking::Allocate) leaves all of that to the
//! runtime.
//!
//! `cudaHostRegister` keeps other threads' CUDA calls waiting while it runs, so that memory may be
//! registered in parts. A copy must not span two registrations (the runtime refuses it), and so a block
//! knows its [seams](crate::memory::block), at which copies are split. Slabs of several blocks have none.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

use super::classes::PAGE;
use super::limits;
use super::pages::Pages;
use crate::context::Context;
use crate::driver::{Attribute, Driver, DriverResult, HostFlags, Ordinal};
use crate::error::{CudaCode, Error};

/// How a pool gets page-locked memory.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PageLocking {
    /// `mmap` with huge pages on the device's NUMA node, touched by several threads, then
    /// `cudaHostRegister`. Where that is not possible the pool falls back to `Allocate`, and
    /// [`PoolStats::fallbacks`](crate::PoolStats::fallbacks) counts it.
    #[default]
    Register,
    /// `cudaHostAlloc`.
    Allocate,
}

/// How a pool page-locks.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) how: PageLocking,
    pub(super) flags: HostFlags,
    pub(super) threads: usize,
    /// The most that is registered at a time.
    pub(super) part: usize,
}

/// The least that is registered at a time: no slab of several blocks is larger.
pub(super) const LEAST_PART: usize = 8 << 20;

/// From here on it is worth asking first whether the system has so much.
const LARGE: usize = 64 << 20;

/// Between two registrations, so that other threads' calls get a turn.
const PAUSE: Duration = Duration::from_micros(100);

/// What was not to be had as asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fallbacks {
    pub(super) not_registered: bool,
    pub(super) small_pages: bool,
    pub(super) other_node: bool,
}

/// Page-locked memory. Dropping it leaks it; see [`release`](Memory::release).
pub(super) struct Memory {
    ptr: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

enum Origin {
    /// In parts of so many bytes.
    Registered(ManuallyDrop<Pages>, usize),
    Allocated,
}

// SAFETY: a `Memory` owns memory that is not tied to a thread.
unsafe impl Send for Memory {}

impl Memory {
    pub(super) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// No operation may span a multiple of this many bytes.
    pub(super) fn seam(&self) -> usize {
        match self.origin {
            Origin::Registered(_, part) => part,
            Origin::Allocated => usize::MAX,
        }
    }

    /// Gives the memory back to the system. Blocks, and may wait for the device. If the runtime refuses,
    /// the memory leaks: it may still be page-locked.
    ///
    /// # Safety
    ///
    /// * No operation that names the memory is pending on any stream.
    /// * Nobody accesses it any more.
    /// * The calling thread is not inside a host function.
    pub(super) unsafe fn release(self, context: &Context) -> bool {
        let Some(driver) = context.releaser() else { return false };
        match self.origin {
            Origin::Registered(pages, part) => {
                // SAFETY: `register` registered these parts, and no operation is pending, by the caller's
                // precondition.
                let done = unsafe { unregister(driver, self.ptr, self.bytes, part) };
                if done {
                    drop(ManuallyDrop::into_inner(pages));
                }
                done
            }
            // SAFETY: the memory came from `host_alloc` and is freed once, since `self` is consumed; the
            // rest is the caller's precondition.
            Origin::Allocated => unsafe { driver.host_free(self.ptr) }.is_ok(),
        }
    }
}

/// Why memory was not page-locked.
pub(super) enum Failure {
    /// The runtime may not be called here.
    Refused(Error),
    /// The runtime's call failed.
    Runtime(&'static str, CudaCode),
}

/// Page-locks `bytes`, a multiple of a page, aligned to `align`. Blocks for a time that grows with the size.
pub(super) fn page_lock(
    context: &Context,
    options: &Options,
    bytes: usize,
    align: usize,
) -> Result<(Memory, Fallbacks), Failure> {
    let driver = context.driver("PinnedPool::alloc").map_err(Failure::Refused)?;
    let mut fallbacks = Fallbacks::default();
    // Only registered memory can have more than a page's alignment, and only allocated memory can be
    // write-combined.
    if options.how == PageLocking::Register && !options.flags.write_combined || align > PAGE {
        match register(driver, context.ordinal(), options, bytes, align, &mut fallbacks) {
            Ok(memory) => return Ok((memory, fallbacks)),
            Err(code) if code.is_sticky() || align > PAGE => {
                return Err(Failure::Runtime("cudaHostRegister", code));
            }
            Err(_) => fallbacks.not_registered = true,
        }
    }
    match driver.host_alloc(context.ordinal(), bytes, options.flags) {
        Ok(ptr) => Ok((Memory { ptr, bytes, origin: Origin::Allocated }, fallbacks)),
        Err(code) => Err(Failure::Runtime("cudaHostAlloc", code)),
    }
}

fn register(
    driver: &dyn Driver,
    device: Ordinal,
    options: &Options,
    bytes: usize,
    align: usize,
    fallbacks: &mut Fallbacks,
) -> DriverResult<Memory> {
    // `cudaHostAlloc`, which is tried then, fails if there is not so much.
    if bytes >= LARGE && bytes > limits::available() {
        return Err(CudaCode::MEMORY_ALLOCATION);
    }
    let node = driver.attribute(device, Attribute::HostNumaNode);
    let node = node.ok().and_then(|node| u32::try_from(node).ok());
    let mapped = Pages::map(bytes, align, node);
    let (pages, report) = mapped.map_err(|_| CudaCode::MEMORY_ALLOCATION)?;
    fallbacks.small_pages = report.huge_pages_refused;
    fallbacks.other_node = report.numa_node_refused;
    let part = options.part;
    let flags = HostFlags { write_combined: false, ..options.flags };
    let mut registered = 0;
    let all = pages.populate(options.threads, part, |range| {
        if range.start > 0 {
            std::thread::sleep(PAUSE);
        }
        // SAFETY: the range lies in the pages, which are mapped, readable and writable, and are unmapped
        // only after they have been unregistered.
        unsafe {
            let start = pages.ptr().add(range.start);
            driver.host_register(device, start, range.len(), flags)?;
        }
        registered = range.end;
        Ok(())
    });
    let (ptr, pages) = (pages.ptr(), ManuallyDrop::new(pages));
    if let Err(code) = all {
        // SAFETY: these parts have just been registered, and nobody knows of them.
        if unsafe { unregister(driver, ptr, registered, part) } {
            drop(ManuallyDrop::into_inner(pages));
        }
        return Err(code);
    }
    Ok(Memory { ptr, bytes, origin: Origin::Registered(pages, part) })
}

/// Unregisters `bytes` that were registered in parts; false if that failed for some.
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
