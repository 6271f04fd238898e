//! The process of a call, and whether it is ending.
//!
//! After `fork` a child must not use its parent's private objects: their locks may be held forever,
//! and the parent's threads do not exist. Every [`Process`] mark taken before the fork is stale in
//! the child.

use std::any::Any;
use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::system as libc;

static EXITING: AtomicBool = AtomicBool::new(false);

pub(crate) extern "C" fn note_exit() {
    EXITING.store(true, Ordering::Relaxed);
}

/// Whether the process is ending: `main` has returned, or a thread has called `exit`.
pub fn is_exiting() -> bool {
    EXITING.load(Ordering::Relaxed)
}

/// A mark of the process that took it.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Holds the mark of the process that reads it; 0 in a child that has not taken one.
    pub cell: &'static AtomicU32,
    /// Neither 0 nor `u32::MAX`.
    pub mark: u32,
}

impl Process {
    /// The mark of the calling process.
    pub fn current() -> Self {
        // No descendant takes the same mark: a child continues its parent's count.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let cell = cell();
        let known = cell.load(Ordering::Relaxed);
        if known != 0 {
            return Process { cell, mark: known };
        }
        let new = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = match cell.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: `note_exit` is a plain function and stays for the whole life of the
                // process. If this fails, the end of the process is not noticed.
                unsafe { libc::atexit(note_exit) };
                new
            }
            Err(first) => first,
        };
        Process { cell, mark }
    }

    /// Whether a mark is that of the calling process. Takes no mark, no lock and no memory.
    #[inline(always)]
    pub fn has_mark(mark: u32) -> bool {
        // SAFETY: null, or a cell that stays for the whole life of the process.
        let cell = unsafe { CELL.load(Ordering::Acquire).as_ref() };
        cell.is_some_and(|cell| mark != 0 && cell.load(Ordering::Relaxed) == mark)
    }

    /// Whether the calling process took this mark, and not an ancestor of it. One load.
    #[inline]
    pub fn is_current(self) -> bool {
        self.cell.load(Ordering::Relaxed) == self.mark
    }
}

/// Identifies the process that asks first, not its children. Takes no lock.
pub struct FirstProcess(AtomicU32);

impl FirstProcess {
    /// No process has asked.
    pub const fn new() -> Self {
        FirstProcess(AtomicU32::new(0))
    }

    /// Whether the calling process asks first, or has done so.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        Process::has_mark(self.0.load(Ordering::Relaxed)) || self.may_become_current()
    }

    #[cold]
    fn may_become_current(&self) -> bool {
        let mark = Process::current().mark;
        let first = self.0.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed);
        first.is_ok() || first == Err(mark)
    }
}

static CELL: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The cell with the mark of the process. A forked child finds 0 there: the kernel gives it a page
/// of zeros, even after `clone` or `_Fork`, after which the C library runs no handlers. Kernels
/// before 4.14 do not, so a handler writes the 0. A child that shares its parent's memory (`vfork`,
/// `CLONE_VM`) counts as its parent.
fn cell() -> &'static AtomicU32 {
    static ORDINARY: AtomicU32 = AtomicU32::new(0);
    let known = CELL.load(Ordering::Acquire);
    // SAFETY: null, or a cell that stays for the whole life of the process.
    if let Some(cell) = unsafe { known.as_ref() } {
        return cell;
    }
    // SAFETY: `mark_is_stale` is a plain function, stays for the whole life of the process, and
    // makes only atomic accesses, which are allowed in a forked child. Registering it twice does no
    // harm. If it fails (out of memory), only the kernel's page of zeros remains.
    unsafe { libc::pthread_atfork(None, None, Some(mark_is_stale)) };
    let new = wiped_cell().unwrap_or(&ORDINARY);
    let place = ptr::from_ref(new).cast_mut();
    match CELL.compare_exchange(ptr::null_mut(), place, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            stay_loaded();
            new
        }
        // SAFETY: another thread was first, with a cell that stays. This one's page leaks.
        Err(first) => unsafe { &*first },
    }
}

/// Keeps the library of this code loaded if `dlclose` would unload it: handlers of signals and of
/// the end of the process remain, and so do threads. Not called in a forked child, where the
/// linker's lock may be held forever.
fn stay_loaded() {
    // SAFETY: the struct is of pointers, for which 0 is a value; the first call fills it. The
    // second one loads nothing: the library of that name is the one that runs.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(stay_loaded as *const c_void, &raw mut found) != 0
            && !found.dli_fname.is_null()
        {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(found.dli_fname, flags);
        }
    }
}

extern "C" fn mark_is_stale() {
    // SAFETY: null, or a cell that stays for the whole life of the process.
    if let Some(cell) = unsafe { CELL.load(Ordering::Relaxed).as_ref() } {
        cell.store(0, Ordering::Relaxed);
    }
}

/// A cell in a page that a child gets empty; `None` where the kernel cannot do that.
fn wiped_cell() -> Option<&'static AtomicU32> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // The kernel rounds it up to a page.
    let bytes = size_of::<AtomicU32>();
    // SAFETY: a new mapping at an address of the system's choice replaces none.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page is mapped and ours; the advice changes no contents here.
    if unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: the mapping is ours, and nothing else has its address.
        unsafe { libc::munmap(page, bytes) };
        return None;
    }
    // SAFETY: the page is aligned, readable and writable, reads as zeros, and is never unmapped.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

/// A value that every process makes for itself. In a forked child the parent's locks may be held
/// forever, and its threads do not exist. Values are never freed, because a thread may be about to
/// look at one.
pub struct PerProcess<T>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    process: Process,
    value: T,
    /// The parent's: kept reachable, so that no leak checker reports it.
    _former: *mut Owned<T>,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    /// No process has made a value.
    pub const fn new() -> Self {
        PerProcess(AtomicPtr::new(ptr::null_mut()))
    }

    /// The calling process's value, made at the first call. Takes no lock.
    pub fn get(&'static self) -> &'static T {
        let known = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a value that is never freed.
        match unsafe { known.as_ref() } {
            Some(owned) if owned.process.is_current() => &owned.value,
            _ => self.first_in_place_of(known),
        }
    }

    /// The calling process's value, if it has made one. Allocates nothing.
    pub fn known(&'static self) -> Option<&'static T> {
        // SAFETY: null, or a value that is never freed.
        let known = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        known.process.is_current().then_some(&known.value)
    }

    #[cold]
    fn first_in_place_of(&'static self, known: *mut Owned<T>) -> &'static T {
        let (process, value) = (Process::current(), T::default());
        let new = Box::into_raw(Box::new(Owned { process, value, _former: known }));
        match self.0.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just made, and never freed from now on.
            Ok(_) => unsafe { &(*new).value },
            Err(first) => {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: another thread of this process was first: its value is not null and never
                // freed.
                unsafe { &(*first).value }
            }
        }
    }
}

/// Calls user code whose panic must not reach ours.
pub fn call_user(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        discard_panic(payload);
    }
}

/// Ends a panic of user code. The payload is the user's too, and dropping it may panic again. The
/// second payload is forgotten.
pub fn discard_panic(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

/// Whether all of a range of addresses is mapped and readable, and writable if the caller asks for
/// that. `None` if the system does not say (`/proc/self/maps`).
pub fn is_mapped(range: &Range<usize>, writable: bool) -> Option<bool> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut reached = range.start;
    for line in maps.lines() {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        if end <= reached {
            continue;
        }
        let permits = rest.starts_with('r') && (!writable || rest[1..].starts_with('w'));
        if start > reached || !permits {
            return Some(false);
        }
        reached = end;
        if reached >= range.end {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// The exit status of a forked child that runs `check` only.
    fn in_a_child(check: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child takes no lock but those of the C library, which survive a fork, and
        // ends with `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let verdict = catch_unwind(AssertUnwindSafe(check)).unwrap_or(100);
            // SAFETY: no preconditions.
            unsafe { libc::_exit(verdict) };
        }
        let mut status = 0;
        // SAFETY: `status` is a live `int` for the call to write.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child crashed: status {status:#x}");
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_forked_child_has_values_of_its_own() {
        static COUNT: PerProcess<AtomicUsize> = PerProcess::new();
        assert!(COUNT.known().is_none());
        COUNT.get().store(7, Ordering::Relaxed);
        let seen = in_a_child(|| {
            let inherits = COUNT.known().is_some();
            let first = COUNT.get().swap(9, Ordering::Relaxed);
            let (again, known) = (COUNT.get(), COUNT.known());
            let kept = again.load(Ordering::Relaxed) == 9;
            let same = known.is_some_and(|known| std::ptr::eq(known, again));
            i32::from(inherits) + 2 * i32::from(first != 0) + 4 * i32::from(!kept || !same)
        });
        assert_eq!(seen, 0, "1: the parent's is known; 2: it is got; 4: its own is not kept");
        assert_eq!(COUNT.get().load(Ordering::Relaxed), 7);
    }
}
