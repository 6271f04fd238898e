//! Faults of the program on pages that are closed.
//!
//! The handler takes the machine's lock and may allocate. That is no rule of signals, but of the
//! place: the fault is a load or store of the program's on page-locked memory, and no code that
//! holds the machine's lock, or is inside the allocator, makes one.
//!
//! To close a page behind one access, the processor is told to trap after one instruction. Where
//! that cannot be done (it is done on x86-64), the page stays open until its next use.
//!
//! Who handled the signals before gets all that is of no watched block. The handler runs on the
//! stack of the thread: a stack that overflows ends the process without the message of Rust's.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};

use super::super::machine::Machine;
use super::super::runtime::Shared;
use super::stand_in;
use super::view::open_all;
use super::{PAGE, Verdict, places};
use crate::sync::sanitizer::ours;

/// The watched blocks of the process, by their first addresses.
static BLOCKS: Mutex<BTreeMap<usize, (usize, Weak<Shared>)>> = Mutex::new(BTreeMap::new());

/// What handled the two signals before.
static FORMER: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];

/// The most pages that one instruction touches: both ends of a string move across two pages.
const PAGES: usize = 4;

thread_local! {
    /// The pages that are open for the instruction which this thread executes; 0 for none.
    static OPENED: Cell<[usize; PAGES]> = const { Cell::new([0; PAGES]) };
}

pub(super) fn register(start: usize, bytes: usize, machine: Weak<Shared>) {
    blocks(|blocks| {
        blocks.insert(start, (bytes, machine));
        places::insert(start..start + bytes);
    });
}

pub(super) fn unregister(start: usize) {
    blocks(|blocks| {
        blocks.remove(&start);
        places::remove(start);
    });
}

fn blocks<R>(work: impl FnOnce(&mut BTreeMap<usize, (usize, Weak<Shared>)>) -> R) -> R {
    work(&mut BLOCKS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The block that an address lies in, and its machine.
fn find(address: usize) -> Option<(usize, usize, Weak<Shared>)> {
    blocks(|blocks| {
        let (&start, (bytes, machine)) = blocks.range(..=address).next_back()?;
        (address - start < *bytes).then(|| (start, *bytes, machine.clone()))
    })
}

/// The process that watches. A child of it has the blocks, but must make no call.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether this is the process that watches, and no child of it.
pub(super) fn is_watching() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Handles the signals from now on. False if the system refuses.
pub(super) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: the structs are of integers and pointers, for which 0 is a value; the handlers
        // are functions of the type that SA_SIGINFO asks for.
        unsafe {
            let mut former: [libc::sigaction; 2] = mem::zeroed();
            for (signal, former) in SIGNALS.into_iter().zip(&mut former) {
                libc::sigaction(signal, ptr::null(), former);
            }
            let _ = FORMER.set(former);
            PROCESS.store(std::process::id(), Ordering::Relaxed);
            let handlers: [unsafe extern "C" fn(_, _, _); 2] = [on_fault, on_trap];
            SIGNALS.into_iter().zip(handlers).all(|(signal, handler)| {
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigemptyset(&raw mut action.sa_mask);
                libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0
            })
        }
    })
}

/// Whether faults of this thread come to [`on_fault`]: the program may have taken the handler, or
/// have blocked the signal.
pub(super) fn is_ours() -> bool {
    // SAFETY: the structs are of integers and pointers, for which 0 is a value; both calls fill
    // them, and change nothing.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let mut blocked: libc::sigset_t = mem::zeroed();
        let handler: unsafe extern "C" fn(_, _, _) = on_fault;
        libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == handler as *const () as usize
            && libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut blocked) == 0
            && libc::sigismember(&raw const blocked, libc::SIGSEGV) == 0
    }
}

/// The program has touched a page that is closed, or something else is wrong.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives the handler both.
    let (address, context) = unsafe { ((*info).si_addr().addr(), &mut *context.cast()) };
    // SAFETY: where the thread keeps its error number.
    let error = unsafe { *libc::__errno_location() };
    let writes = processor::is_write(context);
    match find(address) {
        _ if stand_in::fault(address, writes) => {}
        Some((start, bytes, machine)) => match machine.upgrade() {
            Some(machine) if is_watching() => {
                let touch = |machine: &mut Machine| machine.host_touched(address, writes);
                let verdict = ours(|| machine.with(touch));
                if verdict == Verdict::Once && processor::step(context) {
                    note(address / PAGE * PAGE);
                }
            }
            // Nobody closes its pages any more.
            _ => open_all(start, bytes),
        },
        None => pass_on(signal, info, ptr::from_mut(context).cast()),
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

fn note(page: usize) {
    let mut opened = OPENED.get();
    if let Some(vacant) = opened.iter_mut().find(|other| [0, page].contains(*other)) {
        *vacant = page;
    }
    OPENED.set(opened);
}

/// The processor has executed one instruction, or somebody has set a breakpoint.
unsafe extern "C" fn on_trap(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let opened = OPENED.take();
    if opened[0] == 0 {
        return pass_on(signal, info, context);
    }
    // SAFETY: the system gives it to the handler.
    processor::step_no_more(unsafe { &mut *context.cast() });
    for page in opened.into_iter().filter(|&page| page != 0) {
        if let Some(machine) = find(page).and_then(|(.., machine)| machine.upgrade()) {
            machine.with(|machine| machine.host_has_touched(page));
        }
    }
}

/// Lets the former handler have it.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = usize::from(signal != SIGNALS[0]);
    let Some(former) = FORMER.get().map(|former| &former[index]) else { return };
    match former.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The fault comes again, and ends the process. What somebody has sent must be sent
            // again.
            // SAFETY: the default action is always valid.
            unsafe {
                let mut default: libc::sigaction = mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if signal != libc::SIGSEGV || (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if former.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: with this flag, the action is such a function; it gets what the system gave.
            unsafe { mem::transmute::<usize, Handler>(handler)(signal, info, context) }
        }
        // SAFETY: without the flag, the action is such a function.
        handler => unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal) },
    }
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod processor {
    use libc::ucontext_t;

    /// Of the flags register: trap after the next instruction.
    const TRAP: i64 = 0x100;
    /// Of the error code of a page fault: it was a write.
    const WRITE: i64 = 2;

    pub(super) fn is_write(context: &ucontext_t) -> bool {
        context.uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0
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

    /// Nobody says. A write where only reads are let through must be one; a page that is closed is
    /// written to by an operation, and so a read of it is as wrong as a write.
    pub(super) fn is_write(_: &ucontext_t) -> bool {
        false
    }

    pub(super) fn step(_: &mut ucontext_t) -> bool {
        false
    }

    pub(super) fn step_no_more(_: &mut ucontext_t) {}
}
