//! The lines of Python that make calls and accesses, if the program is run by CPython.
//!
//! ```text
//!   interpreter  finds CPython and the states of its threads
//!   layout       where its structs have their members            check   whether that is right
//!   memory       reads its memory, also while others change it
//!   frames       the frames of a thread: code objects and instructions
//!   text         strings                                         lines   tables of line numbers
//!   known        what was met: each chain of frames has a number
//!   place        whether a file is the program's own             source  the text of a line
//! ```
//!
//! A call that may be part of a finding notes the number of its chain of frames; only a finding
//! asks for names and lines.
//!
//! # Invariants
//!
//! * Nothing here waits for the GIL or runs code of Python: programs release the GIL around nearly
//!   all calls of CUDA, and accesses are found in a handler of signals.
//! * A thread reads its own frames directly: they do not change while it is in a call. Those of the
//!   main thread, which stand for a thread without Python, are read by the system, which fails
//!   where a load would fault.
//! * Code objects are freed, and others get their addresses. So one that was met is known by its
//!   contents. Only the handler of watchpoints, which must not allocate, notes addresses; they are
//!   read at the next call, by the system.
//! * What does not fit ends the search for good, with a message: then there are no lines of Python.

mod check;
mod frames;
mod interpreter;
mod known;
mod layout;
mod lines;
mod memory;
mod place;
mod source;
mod text;

use pinlane_emulator::{Note, Site};

use self::interpreter::Interpreter;

/// In place of an address of code, the number of a chain of frames: no code lies there.
const TAG: usize = 1 << (usize::BITS - 1);

/// Looks whether there is CPython: once for the process, and before any handler of signals asks.
pub fn look() {
    Interpreter::of_process();
}

/// Whether calls may have lines of Python: asked at each call.
#[inline]
pub fn is_there() -> bool {
    let python = Interpreter::of_process();
    python.inspect(|python| check::at_call(python)).is_some()
}

/// What stands for the frames of the call that is being made; `None` if there are none of Python.
pub fn at_call() -> Option<usize> {
    Some(TAG | frames::here(Interpreter::of_process()?)?)
}

/// The line that the calling thread is in. May be called in the handler of a fault.
pub fn here() -> Option<Site> {
    known::site(frames::here(Interpreter::of_process()?)?)
}

/// Notes the frames that the calling thread is in: in the handler of any signal.
pub fn note(frames: &mut Note) {
    if let Some(python) = Interpreter::of_process() {
        frames::note(python, frames);
    }
}

/// What stands for these frames, as [`at_call`] for those of a call.
pub fn noted(frames: &Note) -> Option<usize> {
    Some(TAG | frames::noted(Interpreter::of_process()?, frames)?)
}

/// The line that [`at_call`] stands for.
pub fn site(at: usize) -> Option<Site> {
    if at & TAG == 0 { None } else { known::site(at & !TAG) }
}
