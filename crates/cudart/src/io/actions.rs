//! `sigaction` and its kin, for the two signals that a machine which watches handles itself.
//!
//! A handler that the program installs later would replace the machine's, and get faults of correct
//! code. So it comes after the machine's instead: the machine passes it the signals that are not
//! its own, and the program sees no difference. Calls for other signals, and all calls before the
//! machine is built, go straight to the C library.

use std::ffi::{c_int, c_void};
use std::mem::{transmute, zeroed};

use libc::{sigaction as Action, sighandler_t};
use pinlane_emulator::Emulator;

use super::real::Real;

static SIGACTION: Real = Real::new(c"sigaction");
static SIGNAL: Real = Real::new(c"signal");
static SYSV_SIGNAL: Real = Real::new(c"__sysv_signal");

/// For the constructor of the library.
pub static ALL: &[&Real] = &[&SIGACTION, &SIGNAL, &SYSV_SIGNAL];

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    if [libc::SIGSEGV, libc::SIGTRAP].contains(&signal) {
        // SAFETY: NULL or an action, as the program promises to the call.
        let former = unsafe { Emulator::exchange_action(signal, new.as_ref()) };
        if let Some(former) = former {
            // SAFETY: NULL or room for an action, as above.
            if let Some(old) = unsafe { old.as_mut() } {
                *old = former;
            }
            return 0;
        }
    }
    type Function = Option<unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int>;
    // SAFETY: the C library's function of that name has this type; NULL is `None`.
    match unsafe { transmute::<*mut c_void, Function>(SIGACTION.address()) } {
        // SAFETY: the arguments are the program's own.
        Some(real) => unsafe { real(signal, new, old) },
        None => super::real::missing::<isize>() as c_int,
    }
}

/// What one of the functions `signal` does: gives the handler before.
fn handle(real: &Real, signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    if [libc::SIGSEGV, libc::SIGTRAP].contains(&signal) {
        // SAFETY: the struct is of integers and pointers, for which 0 is a value.
        let mut action: Action = unsafe { zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // SAFETY: what the program gives is a handler.
        let former = unsafe { Emulator::exchange_action(signal, Some(&action)) };
        if let Some(former) = former {
            return former.sa_sigaction;
        }
    }
    type Function = Option<unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t>;
    // SAFETY: the C library's functions of these names have this type; NULL is `None`.
    match unsafe { transmute::<*mut c_void, Function>(real.address()) } {
        // SAFETY: the arguments are the program's own.
        Some(real) => unsafe { real(signal, handler) },
        None => libc::SIG_ERR,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    handle(&SIGNAL, signal, handler, libc::SA_RESTART)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    handle(&SIGNAL, signal, handler, libc::SA_RESTART)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    handle(&SIGNAL, signal, handler, libc::SA_RESTART)
}

/// What `signal` is in programs that ask for System V or strict ISO C.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    handle(&SYSV_SIGNAL, signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    handle(&SYSV_SIGNAL, signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}
