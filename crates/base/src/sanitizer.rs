//! Annotations for the program's thread sanitizer, if there is one (ThreadSanitizer, by clang or
//! gcc with `-fsanitize=thread`).
//!
//! It sees the loads and stores of code that was compiled for it, and every call of `memcpy`,
//! `free` and similar functions. It knows the order by locks of the C library and by atomic
//! operations in such code. This library is compiled without it: the sanitizer sees its calls of
//! `memcpy`, but not its locks. So the library announces two things:
//!
//! * where its own code runs ([`ours`]), whose loads and stores the sanitizer must ignore, and
//!   where that code calls the program's functions ([`theirs`]);
//! * what it orders for the program ([`release`], [`acquire`]): a host function before the thread
//!   that waits for it, a block before its next user, a request before its callback.
//!
//! Without a sanitizer that is one load and one branch each. An instrumented build of this library
//! announces nothing: `--cfg pinlane_instrumented`.
//!
//! # Invariants
//!
//! * The sanitizer counts for each thread how often it must ignore accesses. `ours` and `theirs`
//!   restore the count, also after a panic.
//! * The addresses of [`release`] and [`acquire`] only name things. Nothing is stored there.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

pub use self::tag::Tag;
use crate::system as libc;

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Functions of the sanitizer, in the order of [`NAMES`].
static FUNCTIONS: [AtomicPtr<c_void>; 6] = [const { AtomicPtr::new(ptr::null_mut()) }; 6];

const NAMES: [&CStr; 6] = [
    c"AnnotateIgnoreReadsBegin",
    c"AnnotateIgnoreWritesBegin",
    c"AnnotateIgnoreReadsEnd",
    c"AnnotateIgnoreWritesEnd",
    c"__tsan_acquire",
    c"__tsan_release",
];
const BEGIN: [usize; 2] = [0, 1];
const END: [usize; 2] = [2, 3];
const ACQUIRE: usize = 4;
const RELEASE: usize = 5;

thread_local! {
    /// Whether the thread is in our code. It needs no destructor, so it outlives all other
    /// thread-locals.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether there is one.
#[inline]
pub fn is_there() -> bool {
    match STATE.load(Ordering::Acquire) {
        ABSENT => false,
        PRESENT => true,
        _ => look(),
    }
}

/// Several threads may search at the same time, with the same result.
#[cold]
fn look() -> bool {
    let found = NAMES.map(|name| {
        // SAFETY: the name ends with a NUL. It is looked for in what the process has loaded.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    });
    let is_there = !cfg!(pinlane_instrumented) && found.iter().all(|at| !at.is_null());
    for (function, at) in FUNCTIONS.iter().zip(found) {
        function.store(at, Ordering::Relaxed);
    }
    STATE.store(if is_there { PRESENT } else { ABSENT }, Ordering::Release);
    is_there
}

/// Lets the sanitizer ignore the thread's accesses, or check them again.
#[cold]
fn switch(functions: [usize; 2]) {
    for function in functions {
        let at = FUNCTIONS[function].load(Ordering::Relaxed);
        // SAFETY: `STATE` says that it was found under this name: it is a function of the
        // sanitizer, and takes a file and a line in every version.
        let function: unsafe extern "C" fn(*const c_char, c_int) = unsafe { mem::transmute(at) };
        // SAFETY: the name of the file is a C string, and lives forever.
        unsafe { function(c"pinlane".as_ptr(), 0) };
    }
}

#[cold]
fn tell(function: usize, at: usize) {
    let function = FUNCTIONS[function].load(Ordering::Relaxed);
    // SAFETY: `STATE` says that it was found under this name: it is a function of the sanitizer,
    // and takes an address.
    let function: unsafe extern "C" fn(*mut c_void) = unsafe { mem::transmute(function) };
    // SAFETY: it does not access the memory at the address, which belongs to the process.
    unsafe { function(ptr::without_provenance_mut(at)) };
}

/// Restores the state of a thread.
struct Back {
    was_ours: bool,
}

impl Back {
    /// `None` if the state is that already.
    #[cold]
    fn from(ours: bool) -> Option<Self> {
        if IS_OURS.get() == ours {
            return None;
        }
        Back::is_set(ours);
        Some(Back { was_ours: !ours })
    }

    fn is_set(ours: bool) {
        IS_OURS.set(ours);
        switch(if ours { BEGIN } else { END });
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        Back::is_set(self.was_ours);
    }
}

// Every call from C goes through this. One call of `work`, so that it is inlined: otherwise its
// captures and its result go through memory.
#[inline(always)]
fn as_who<R>(ours: bool, work: impl FnOnce() -> R) -> R {
    let _back = if is_there() { Back::from(ours) } else { None };
    work()
}

/// Runs code of this library.
#[inline(always)]
pub fn ours<R>(work: impl FnOnce() -> R) -> R {
    as_who(true, work)
}

/// Runs the program's code from inside ours.
#[inline]
pub fn theirs<R>(work: impl FnOnce() -> R) -> R {
    as_who(false, work)
}

/// Orders the work of this thread so far before the work of any thread after an [`acquire`] of the
/// same address.
#[inline]
pub fn release(at: usize) {
    if is_there() {
        tell(RELEASE, at);
    }
}

/// The name of a thing that stays where it is.
pub fn of<T: ?Sized>(thing: &T) -> usize {
    ptr::from_ref(thing).addr()
}

/// See [`release`].
#[inline]
pub fn acquire(at: usize) {
    if is_there() {
        tell(ACQUIRE, at);
    }
}

mod tag {
    use std::ptr;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// The number of distinct tags. Beyond that, things share a tag: the sanitizer then assumes
    /// more order than the program has, and may miss races.
    const TAGS: usize = 8192;
    static ADDRESSES: [AtomicU64; TAGS] = [const { AtomicU64::new(0) }; TAGS];

    /// A thing that has no address of its own.
    #[derive(Clone, Copy, Debug)]
    pub struct Tag(usize);

    impl Tag {
        /// Another thing.
        pub fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            Tag(NEXT.fetch_add(1, Ordering::Relaxed))
        }

        /// The name of one of its parts; those that have none have part 0.
        #[inline]
        pub fn part(self, number: usize) -> usize {
            let at = self.0.wrapping_mul(61).wrapping_add(number) % TAGS;
            ptr::from_ref(&ADDRESSES[at]).addr()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_sanitizer_nothing_is_told() {
        let tag = of(&STATE);
        let answer = ours(|| {
            release(tag);
            theirs(|| ours(|| 7))
        });
        acquire(tag);
        assert_eq!(answer, 7);
        assert!(!IS_OURS.get());
    }

    #[test]
    fn things_without_an_address_have_different_ones() {
        assert_ne!(Tag::new().part(0), Tag::new().part(0));
    }
}
