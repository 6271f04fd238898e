//! Who handles the two signals: this crate, and other handlers that were there before or come
//! later.
//!
//! The signals belong to the process, and others want them too: interpreters, other libraries,
//! runtimes with signal stacks, reports of crashes.
//!
//! * **Before**: what handled a signal when we came gets all that is not ours ([`pass_on`]), as the
//!   system would have called it.
//! * **After**: while the system's handler is another one ([`is_ours`]), no page is closed, and
//!   closed pages are opened. A message says so once. A library that replaces `sigaction` can do
//!   better ([`exchange`]): the program's handler then comes after ours instead of replacing it.
//! * **Gone**: the library that the handler is in is never unloaded (`crate::process`).
//!
//! # Invariants
//!
//! * Functions here that a signal handler may call take no lock and allocate nothing.
//! * Our handlers run on the thread's signal stack if it has one (`SA_ONSTACK`), with all signals
//!   blocked. So no other handler overwrites their frames while they work on a larger stack.

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::signal::{on_fault, on_trap};
use pinlane_base::lock::Mutex;
use pinlane_base::process::PerProcess;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];
/// The signals of the system's own sets.
const MOST: c_int = 64;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// An action of other code. There are few; they are never freed, because a handler may be about to
/// look at one.
struct Other {
    action: libc::sigaction,
    next: *const Other,
}

/// All of them.
static OTHERS: AtomicPtr<Other> = AtomicPtr::new(ptr::null_mut());
/// What each signal's action would be without us; null if we never handled it.
static BESIDE: [AtomicPtr<Other>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];
/// One thread at a time looks for handlers and takes their place.
static INSTALLING: PerProcess<Mutex<()>> = PerProcess::new();

fn index_of(signal: c_int) -> Option<usize> {
    SIGNALS.iter().position(|&other| other == signal)
}

fn own(index: usize) -> usize {
    let handlers: [Handler; 2] = [on_fault, on_trap];
    handlers[index] as *const () as usize
}

/// The system's own struct: the handler, its flags, where there is one a function that returns from
/// it, and the mask. The system is asked itself, because the C library's function may be replaced.
type Words = [usize; 4];
const MASK: usize = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) { 3 } else { 2 };

fn in_place(index: usize) -> Words {
    let mut action = [0; 4];
    let none = ptr::null::<c_void>();
    // SAFETY: asks only, and there is room for the answer; a set of signals has 8 bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGNALS[index], none, action.as_mut_ptr(), 8) };
    action
}

fn put_in_place(index: usize, action: &Words) {
    let none = ptr::null_mut::<c_void>();
    // SAFETY: the action is the default one, which is always valid, or ours with other flags; a set
    // of signals has 8 bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGNALS[index], action.as_ptr(), none, 8) };
}

/// The flags that our handlers need, and those that they must not have.
const FLAGS: c_int = libc::SA_SIGINFO | libc::SA_ONSTACK;
const NO_FLAGS: c_int = libc::SA_NODEFER | libc::SA_RESETHAND;

/// Whether the system calls our handler. Other code may have put it back by `signal`, which knows
/// no flags: they are put back too.
pub(super) fn is_ours(signal: c_int) -> bool {
    let Some(index) = index_of(signal) else { return false };
    let mut action = in_place(index);
    if action[0] != own(index) {
        return false;
    }
    if action[1] as c_int & (FLAGS | NO_FLAGS) != FLAGS {
        action[1] = action[1] & !(NO_FLAGS as u32 as usize) | FLAGS as usize;
        action[MASK] = usize::MAX;
        put_in_place(index, &action);
    }
    true
}

/// Whether the calling thread blocks faults: the system then ends the process at one.
pub(super) fn is_blocked() -> bool {
    // SAFETY: the struct is of integers, for which 0 is a value; the call fills it.
    unsafe {
        let mut blocked: libc::sigset_t = mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut blocked) != 0
            || libc::sigismember(&raw const blocked, libc::SIGSEGV) != 0
    }
}

/// Whether faults come to this process's handler, on this thread. Says so once if they do not.
pub(crate) fn sees_faults() -> bool {
    let sees = is_ours(libc::SIGSEGV) && !is_blocked();
    if !sees {
        say_unwatched();
    }
    sees
}

/// Handles the signals from now on. False if faults cannot be had: the system refuses, or other
/// code has taken our place, and may call us.
pub(super) fn install() -> bool {
    let _one_at_a_time = INSTALLING.get().lock();
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        if !is_ours(signal) {
            take_place(index);
        }
    }
    is_ours(libc::SIGSEGV)
}

fn take_place(index: usize) {
    let is_nobody =
        |action: &libc::sigaction| [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    // SAFETY: the structs are of integers and pointers, for which 0 is a value; the handlers are
    // functions of the type that SA_SIGINFO asks for.
    unsafe {
        let mut former: libc::sigaction = mem::zeroed();
        libc::sigaction(SIGNALS[index], ptr::null(), &raw mut former);
        if !BESIDE[index].load(Ordering::Acquire).is_null() && !is_nobody(&former) {
            return;
        }
        known(&mem::zeroed()); // for `pass_on`, which must not allocate
        BESIDE[index].store(known(&former), Ordering::Release);
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = own(index);
        action.sa_flags = FLAGS | (former.sa_flags & libc::SA_RESTART);
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(SIGNALS[index], &raw const action, ptr::null_mut());
    }
}

/// The action as one of [`OTHERS`]. Allocates if it is new.
fn known(action: &libc::sigaction) -> *mut Other {
    let mut new: Option<Box<Other>> = None;
    loop {
        let first = OTHERS.load(Ordering::Acquire);
        if let Some(other) = find(|other| is_same(other, action)) {
            return other;
        }
        let mut made =
            new.take().unwrap_or_else(|| Box::new(Other { action: *action, next: ptr::null() }));
        made.next = first;
        let made = Box::into_raw(made);
        match OTHERS.compare_exchange(first, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return made,
            // SAFETY: no other thread has seen it.
            Err(_) => new = Some(unsafe { Box::from_raw(made) }),
        }
    }
}

/// One of [`OTHERS`].
fn find(is_it: impl Fn(&libc::sigaction) -> bool) -> Option<*mut Other> {
    let mut at: *const Other = OTHERS.load(Ordering::Acquire);
    // SAFETY: null, or one that is never freed.
    while let Some(other) = unsafe { at.as_ref() } {
        if is_it(&other.action) {
            return Some(at.cast_mut());
        }
        at = other.next;
    }
    None
}

fn is_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    // SAFETY: both are sets of the C library's.
    let has =
        |action: &libc::sigaction, signal| unsafe { libc::sigismember(&action.sa_mask, signal) };
    one.sa_sigaction == other.sa_sigaction
        && one.sa_flags == other.sa_flags
        && (1..=MOST).all(|signal| has(one, signal) == has(other, signal))
}

/// The program calls `sigaction`. Returns the action that it has set before, and notes the new one,
/// which gets signals after our handler. `None` if we do not handle the signal: then the C library
/// does it.
pub(crate) fn exchange(signal: c_int, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let index = index_of(signal)?;
    // SAFETY: null, or one that is never freed.
    let former = unsafe { BESIDE[index].load(Ordering::Acquire).as_ref() }?;
    if !is_ours(signal) {
        return None;
    }
    if let Some(new) = new {
        BESIDE[index].store(known(new), Ordering::Release);
    }
    Some(former.action)
}

/// Passes the signal to the action that would handle it without us. The action is called as the
/// system would call it: with its mask, and only once if it asked for that.
///
/// # Safety
///
/// * It is called by the handler of the signal, with what that got.
pub(super) unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(index) = index_of(signal) else { return };
    let beside = BESIDE[index].load(Ordering::Acquire);
    // SAFETY: null, or one that is never freed.
    let action = unsafe { beside.as_ref() }.map(|other| &other.action);
    // SAFETY: the system gives it to the handler.
    let is_sent = unsafe { (*info).si_code } <= 0;
    match action.map_or(libc::SIG_DFL, |action| action.sa_sigaction) {
        // A fault cannot be ignored.
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => end_by(index, is_sent),
        handler => {
            let action = action.expect("its handler was just read");
            // SAFETY: promised by the caller.
            unsafe { take_mask(signal, action, context.cast()) };
            if action.sa_flags & libc::SA_RESETHAND != 0
                && let Some(default) = find(|other| other.sa_sigaction == libc::SIG_DFL)
            {
                let _ = BESIDE[index].compare_exchange(
                    beside,
                    default,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with this flag, the action is such a function.
                unsafe { mem::transmute::<usize, Handler>(handler)(signal, info, context) }
            } else {
                // SAFETY: without the flag, the action is such a function.
                unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal) }
            }
        }
    }
}

/// Blocks what the system would block for the action.
///
/// # Safety
///
/// * The context is what the system gave the handler.
unsafe fn take_mask(signal: c_int, action: &libc::sigaction, context: *const libc::ucontext_t) {
    // SAFETY: the structs are of integers, for which 0 is a value. The system's set in the context
    // has 8 bytes.
    unsafe {
        let mut mask: libc::sigset_t = mem::zeroed();
        let interrupted = (&raw const (*context).uc_sigmask).cast::<u64>();
        (&raw mut mask).cast::<u64>().write(interrupted.read());
        for other in (1..=MOST).filter(|&other| libc::sigismember(&action.sa_mask, other) == 1) {
            libc::sigaddset(&raw mut mask, other);
        }
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut());
    }
}

/// Ends the process by the signal, when the handler has returned. A fault then comes again; a
/// signal that was sent, and a breakpoint, must be sent again.
fn end_by(index: usize, is_sent: bool) {
    let signal = SIGNALS[index];
    // The default action is a struct of zeros.
    put_in_place(index, &[0; 4]);
    if is_sent || signal != libc::SIGSEGV {
        // SAFETY: no preconditions.
        unsafe { libc::raise(signal) };
    }
}

/// Says once that nothing is watched any more, and why.
#[cold]
pub(super) fn say_unwatched() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let why = if is_ours(libc::SIGSEGV) {
        "a thread blocks SIGSEGV. Do not block it where CUDA is called".to_owned()
    } else {
        let handler = in_place(0)[0];
        let owner = file_of(handler).unwrap_or_else(|| "somebody else".to_owned());
        format!(
            "SIGSEGV is handled by {owner}. Let that be installed before the first machine that \
             watches, which passes on all faults but its own"
        )
    };
    // Not `eprintln`, which panics if standard error is closed.
    let _ = writeln!(
        std::io::stderr(),
        "pinlane: the emulated device does not see any more what the host does to page-locked \
         memory: {why}."
    );
}

/// The program or library that a function is in.
fn file_of(function: usize) -> Option<String> {
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&function) {
        return Some("nobody".to_owned());
    }
    let at = ptr::without_provenance(function);
    // SAFETY: the struct is of pointers, for which 0 is a value; the call fills it, and its name
    // stays while the library is loaded.
    unsafe {
        let mut found: libc::Dl_info = mem::zeroed();
        if libc::dladdr(at, &raw mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned())
    }
}
