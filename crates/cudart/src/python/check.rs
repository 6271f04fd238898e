//! Whether the layout says what CPython's own functions say.

use std::sync::atomic::Ordering;

use super::frames;
use super::interpreter::Interpreter;
use super::known;
use super::memory::Changing;

/// Asks once, as soon as a call is made by a thread that holds the GIL.
#[inline]
pub fn at_call(python: &Interpreter) {
    if !python.is_checked.load(Ordering::Relaxed) {
        ask(python);
    }
}

#[cold]
fn ask(python: &Interpreter) {
    let Some(state) = python.holder() else { return };
    // What it asks may collect garbage, which may make calls.
    if python.is_checked.swap(true, Ordering::Relaxed) {
        return;
    }
    let found = frames::innermost(&python.objects.layout, &Changing, state.addr());
    let found =
        found.and_then(|(code, offset)| Some((code, known::line(&python.objects, code, offset)?)));
    let api = &python.api;
    // SAFETY: the thread holds the GIL, and this is its state. A frame has a code object. What the
    // functions give is released.
    let said = unsafe {
        let frame = (api.frame)(state);
        if frame.is_null() {
            python.is_checked.store(false, Ordering::Relaxed);
            return;
        }
        let code = (api.code)(frame);
        let said = (code.addr(), (api.line)(frame));
        (api.release)(code);
        (api.release)(frame);
        said
    };
    // A line that is not known is none of both.
    if found.is_none_or(|(code, line)| code != said.0 || said.1 > 0 && line != said.1 as u32) {
        python.refuse("its frames are not what its functions say");
    }
}
