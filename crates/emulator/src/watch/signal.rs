//! Faults of the program on pages that are closed.
//!
//! The handler takes the machine's lock and may allocate. Signal handlers in general must not. This
//! one may because of where the fault is: a load or store of the program on page-locked memory.
//! Code that holds the machine's lock or runs inside the allocator makes no such access. For a
//! fault elsewhere the handler takes no lock and allocates nothing: it passes the fault to the
//! handler that was there before ([`owner`]).
//!
//! To close a page after one access, the handler makes the processor trap after one instruction.
//! This works on x86-64. Elsewhere the page stays open until its next use.
//!
//! A forked child has its parent's handlers and blocks, perhaps with closed pages. The child opens
//! these pages without asking a machine: in the child, a lock that another thread of the parent
//! held is never released.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fmt::Debug;
use std::ops::Range;
use std::ptr;
use std::sync::Weak;

use super::view::{PAGE, open_all};
use super::{owner, places, points, stack, stand_in};
use pinlane_base::lock::Mutex;
use pinlane_base::process::PerProcess;
use pinlane_base::sanitizer::ours;

/// The machine of a block, as the handlers know it.
pub(crate) trait Faulted: Send + Sync + Debug {
    /// The program has touched a range in a closed page of the block.
    fn touched(&self, touched: Range<usize>, writes: bool) -> Verdict;

    /// The access for which a page was opened is over.
    fn has_touched(&self, address: usize);
}

/// What the handler of a fault does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The page is open: the access is made again.
    Again,
    /// The page is open for this access, and is closed after it.
    Once,
}

type Blocks = BTreeMap<usize, (usize, Weak<dyn Faulted>)>;

/// The watched blocks of the process, by their first addresses.
static BLOCKS: PerProcess<Mutex<Blocks>> = PerProcess::new();

/// The most pages that one instruction touches: both ends of a string move across two pages.
const PAGES: usize = 4;

thread_local! {
    /// The pages that are open for the instruction which this thread executes; 0 for none.
    static OPENED: Cell<[usize; PAGES]> = const { Cell::new([0; PAGES]) };
}

#[cfg(test)]
thread_local! {
    /// How many accesses of the thread were let through one by one.
    pub(crate) static STEPS: Cell<u32> = const { Cell::new(0) };
}

pub(super) fn register(start: usize, bytes: usize, machine: Weak<dyn Faulted>) {
    let mut blocks = BLOCKS.get().lock();
    blocks.insert(start, (bytes, machine));
    places::BLOCKS.insert(start..start + bytes);
}

pub(super) fn unregister(start: usize) {
    let mut blocks = BLOCKS.get().lock();
    if let Some((bytes, _)) = blocks.remove(&start) {
        places::BLOCKS.remove(&(start..start + bytes));
    }
}

/// The machine of the block that an address lies in, if this process has made the block.
fn find(address: usize) -> Option<Weak<dyn Faulted>> {
    let blocks = BLOCKS.known()?.lock();
    let (&start, (bytes, machine)) = blocks.range(..=address).next_back()?;
    (address - start < *bytes).then(|| machine.clone())
}

/// The handler of faults: the program has touched a closed page, or the fault has another cause.
pub(super) unsafe extern "C" fn on_fault(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: where the thread keeps its error number.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: the system gives the handler both. A signal that was sent has no address.
    let (address, context) = unsafe {
        let is_fault = (*info).si_code > 0;
        (is_fault.then(|| (*info).si_addr().addr()), &mut *context.cast::<libc::ucontext_t>())
    };
    let is_good = address.is_some_and(|address| {
        let may_be_ours = places::BLOCKS.find(&(address..address.saturating_add(1))).is_some();
        (may_be_ours || stand_in::is_running())
            && stack::with_room(|| make_good(address, &mut *context))
    });
    if !is_good {
        // SAFETY: this is the handler.
        unsafe { owner::pass_on(signal, info, ptr::from_mut(context).cast()) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// Opens what the access needs. False if the address is in no watched memory.
fn make_good(address: usize, context: &mut libc::ucontext_t) -> bool {
    let writes = processor::is_write(context);
    if stand_in::fault(address, writes) {
        return true;
    }
    let Some(place) = places::BLOCKS.find(&(address..address + 1)) else { return false };
    let machine = if place.is_own { find(address) } else { None };
    let Some(machine) = machine.and_then(|machine| machine.upgrade()) else {
        // No machine closes its pages any more.
        return open_all(place.range.start, place.range.len());
    };
    let touched = address..address + bytes_of(address, place.range.start, context);
    let verdict = ours(|| machine.touched(touched, writes));
    #[cfg(test)]
    STEPS.set(STEPS.get() + u32::from(verdict == Verdict::Once));
    if verdict == Verdict::Once && owner::is_ours(libc::SIGTRAP) && processor::step(context) {
        note(address / PAGE * PAGE);
    }
    true
}

/// How many bytes of its page an access uses that faults at this address.
fn bytes_of(address: usize, block: usize, context: &libc::ucontext_t) -> usize {
    let in_page = address % PAGE;
    if in_page == 0 && address != block {
        return 1; // it may have begun on the page before
    }
    processor::bytes(context).min(PAGE - in_page)
}

fn note(page: usize) {
    let mut opened = OPENED.get();
    if let Some(vacant) = opened.iter_mut().find(|other| [0, page].contains(*other)) {
        *vacant = page;
    }
    OPENED.set(opened);
}

/// The handler of traps: after a single step, after an access to a watchpoint, or at a breakpoint
/// of the program.
pub(super) unsafe extern "C" fn on_trap(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: where the thread keeps its error number.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: the system gives both to the handler.
    let is_known = unsafe { points::on_trap(&*info, &*context.cast()) };
    let opened = OPENED.take();
    if opened[0] == 0 {
        if !is_known {
            // SAFETY: this is the handler.
            unsafe { owner::pass_on(signal, info, context) };
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = error };
        return;
    }
    // SAFETY: the system gives it to the handler.
    processor::step_no_more(unsafe { &mut *context.cast() });
    stack::with_room(|| {
        for page in opened.into_iter().filter(|&page| page != 0) {
            if let Some(machine) = find(page).and_then(|machine| machine.upgrade()) {
                machine.has_touched(page);
            }
        }
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod processor {
    use std::arch::x86_64::__cpuid_count;

    use libc::ucontext_t;

    use crate::watch::operand;

    /// Of the flags register: trap after the next instruction.
    const TRAP: i64 = 0x100;
    /// Of the error code of a page fault: it was a write.
    const WRITE: i64 = 2;

    pub(super) fn is_write(context: &ucontext_t) -> bool {
        context.uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0
    }

    /// How many bytes the instruction that faults loads or stores; 1 if that is not known.
    pub(super) fn bytes(context: &ucontext_t) -> usize {
        let code = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        let code: *const u8 = std::ptr::with_exposed_provenance(code);
        // SAFETY: the processor has read the whole instruction from there, and no byte behind it is
        // asked for.
        operand::bytes((0..).map(|n| unsafe { code.add(n).read() }), |mask| register(context, mask))
    }

    /// The value of a mask register, k1 to k7, if the system has saved it.
    fn register(context: &ucontext_t, number: u8) -> Option<u64> {
        /// Where an area that is longer than those of FXSAVE says so, and its length.
        const EXTENDED: usize = 464;
        /// The mark of such an area.
        const MAGIC: u32 = 0x4650_5853;
        /// Which components are not in their initial state. Then all registers are 0.
        const IN_USE: usize = 512;
        /// The component of the mask registers.
        const MASKS: u32 = 5;
        let area: *const u8 = context.uc_mcontext.fpregs.cast();
        if area.is_null() {
            return None;
        }
        // SAFETY: the system has saved at least the 512 bytes of FXSAVE there.
        let [magic, length] = unsafe { area.add(EXTENDED).cast::<[u32; 2]>().read_unaligned() };
        // SAFETY: each processor of this architecture has the instruction.
        #[allow(unused_unsafe, reason = "it is a safe function in newer versions of Rust")]
        let masks = unsafe { __cpuid_count(13, MASKS) };
        let place = masks.ebx as usize + 8 * usize::from(number);
        if magic != MAGIC || place < IN_USE + 64 || place + 8 > length as usize {
            return None;
        }
        // SAFETY: the area is so long.
        unsafe {
            let in_use = area.add(IN_USE).cast::<u64>().read_unaligned();
            let value = area.add(place).cast::<u64>().read_unaligned();
            Some(if in_use >> MASKS & 1 == 0 { 0 } else { value })
        }
    }

    /// Makes the thread trap after one instruction. False if that would end the process.
    pub(super) fn step(context: &mut ucontext_t) -> bool {
        // SAFETY: the set is that of the system.
        let blocked = unsafe { libc::sigismember(&raw const context.uc_sigmask, libc::SIGTRAP) };
        if blocked == 0 {
            context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP;
        }
        blocked == 0
    }

    pub(super) fn step_no_more(context: &mut ucontext_t) {
        context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
    }
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
mod processor {
    use libc::ucontext_t;

    /// The system does not say. A fault where only reads are let through must be a write; a page
    /// that is closed is written to by an operation, and so a read of it is as wrong as a write.
    pub(super) fn is_write(_: &ucontext_t) -> bool {
        false
    }

    pub(super) fn bytes(_: &ucontext_t) -> usize {
        1
    }

    pub(super) fn step(_: &mut ucontext_t) -> bool {
        false
    }

    pub(super) fn step_no_more(_: &mut ucontext_t) {}
}
