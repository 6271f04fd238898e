//! The decisions of the run, in the file that `PINLANE_CUDART_RECORD` names: the text that repeats
//! the run, then each decision in words, a line each. It is written when the process ends, even if
//! by an error of its own.

use std::ffi::{OsString, c_int};
use std::fmt::Write;
use std::{env, fs, mem, ptr};

use pinlane_emulator::Emulator;

use crate::machine;
use crate::run::{self, Run};

/// How a process ends by its own error.
const ERRORS: [c_int; 5] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

fn file() -> Option<OsString> {
    env::var_os("PINLANE_CUDART_RECORD")
}

pub fn is_wanted() -> bool {
    file().is_some()
}

/// Has the file written when the process is killed, too. Handlers that the program has stay.
pub fn at_errors() {
    for signal in ERRORS {
        // SAFETY: `action` and `former` are valid for the calls; the handler has the signature
        // that no flags ask for.
        unsafe {
            let mut former: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, ptr::null(), &raw mut former);
            if former.sa_sigaction == libc::SIG_DFL {
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = killed as *const () as usize;
                action.sa_flags = libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
    }
}

extern "C" fn killed(signal: c_int) {
    // SAFETY: none of the three touches memory of the program. The signal comes again when this
    // handler returns. If the thread holds a lock that is needed here, the alarm ends the process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(5);
        libc::raise(signal);
    }
    if let Some(process) = machine::built().filter(|_| !machine::is_forked()) {
        write(&process.gpu);
    }
}

/// Writes the file, if the environment names one.
pub fn write(gpu: &Emulator) {
    let Some(file) = file() else { return };
    let replay = match run::this() {
        Run::Replayed(given) => Some(given.clone()),
        Run::Drawn { .. } => gpu.replay(),
    };
    let Some(replay) = replay else { return };
    let mut text = format!("{replay}\n");
    for decision in replay.in_words() {
        let _ = writeln!(text, "{decision}");
    }
    if let Err(error) = fs::write(&file, text) {
        eprintln!("pinlane-cudart: cannot write {file:?} ({error})");
    }
}
