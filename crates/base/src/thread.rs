//! Threads of this crate.
//!
//! They are started by `pthread_create`. A thread of the standard library takes a lock of the whole
//! process when it starts and when it ends (for its message about stack overflows). In a child that
//! is forked at that moment the lock stays held forever, and the child can neither start nor end
//! such a thread. Threads of this crate never take it (soundness rule 22).
//!
//! Otherwise they are like the standard library's: they inherit the signal mask, thread-locals are
//! dropped at their end, and a panic ends only the thread, after its message. They have no signal
//! stack.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::process::{Process, discard_panic};
use crate::sanitizer::ours;
use crate::system as libc;

/// The bytes that the system keeps of a thread's name; the last one is 0.
type Name = [u8; 16];

thread_local! {
    static NAME: Cell<Name> = const { Cell::new([0; 16]) };
}

/// The name of the calling thread; empty for none.
pub fn name() -> String {
    let name = NAME.get();
    let own = name.split(|&byte| byte == 0).next().unwrap_or_default();
    if own.is_empty() {
        return std::thread::current().name().unwrap_or_default().to_owned();
    }
    String::from_utf8_lossy(own).into_owned()
}

/// A thread that can be joined. If this is dropped, the thread continues detached.
pub struct Thread {
    id: libc::pthread_t,
    process: Process,
}

impl Thread {
    /// Blocks until it has ended. False if it panicked. In a forked child, where it does not exist,
    /// false at once.
    pub fn join(self) -> bool {
        let thread = ManuallyDrop::new(self);
        if !thread.process.is_current() {
            return false;
        }
        let mut panicked = ptr::null_mut();
        // SAFETY: a thread of this process, neither joined nor detached yet: both take the
        // `Thread`. `panicked` is a live pointer for the call to write.
        if unsafe { libc::pthread_join(thread.id, &raw mut panicked) } != 0 {
            // Its borrows must not end before it.
            std::process::abort();
        }
        panicked.is_null()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.process.is_current() {
            // SAFETY: a thread of this process, neither joined nor detached yet: both take the
            // `Thread`.
            unsafe { libc::pthread_detach(self.id) };
        }
    }
}

/// No thread could be started. This has the values for the thread: a device may use them, so only
/// the caller drops them (soundness rule 19).
pub struct Refused<T> {
    /// The cause.
    pub error: io::Error,
    /// The value for the thread.
    pub owned: T,
}

/// The data of a new thread.
struct Start<T, W> {
    name: Name,
    owned: T,
    work: W,
}

/// Starts a thread that calls `work(owned)`. Keeps 15 bytes of the name. Put values that must not
/// be dropped without a thread into `owned`, not into the closure.
pub fn start<T: Send + 'static>(
    name: &str,
    owned: T,
    work: impl FnOnce(T) + Send + 'static,
) -> Result<Thread, Refused<T>> {
    // SAFETY: both are `'static`.
    unsafe { start_borrowing(name, owned, work) }
}

/// Calls `here` on this thread and `work` on up to `count` others at the same time, and returns
/// when all calls have returned. There are fewer others, or none, if no more can be started.
///
/// # Panics
///
/// If a call panics.
pub fn with_helpers<R>(
    name: &str,
    count: usize,
    work: &(dyn Fn() + Sync),
    here: impl FnOnce() -> R,
) -> R {
    struct Helpers(Vec<Thread>);

    impl Helpers {
        fn join(&mut self) -> bool {
            let panicked = self.0.drain(..).map(Thread::join).filter(|returned| !returned);
            panicked.count() == 0
        }
    }

    impl Drop for Helpers {
        fn drop(&mut self) {
            self.join();
        }
    }

    let mut helpers = Helpers(Vec::with_capacity(count));
    for _ in 0..count {
        // SAFETY: `helpers` waits for it before this function ends, also if `here` panics, so
        // `work` is borrowed for as long.
        match unsafe { start_borrowing(name, work, |work| work()) } {
            Ok(helper) => helpers.0.push(helper),
            Err(_) => break,
        }
    }
    let result = here();
    assert!(helpers.join(), "a helper thread panicked");
    result
}

/// # Safety
///
/// * The borrows of `owned` and `work` outlive the thread.
unsafe fn start_borrowing<T: Send, W: FnOnce(T) + Send>(
    name: &str,
    owned: T,
    work: W,
) -> Result<Thread, Refused<T>> {
    let mut kept = Name::default();
    let bytes = name.len().min(kept.len() - 1);
    kept[..bytes].copy_from_slice(&name.as_bytes()[..bytes]);
    let start = Box::into_raw(Box::new(Start { name: kept, owned, work }));
    // SAFETY: a `Start` of these types, which nothing else has. The caller ensures that its borrows
    // live long enough.
    match unsafe { create(run::<T, W>, start.cast()) } {
        Ok(id) => Ok(Thread { id, process: Process::current() }),
        Err(error) => {
            // SAFETY: just made, and no thread has it.
            let Start { owned, .. } = *unsafe { Box::from_raw(start) };
            Err(Refused { error, owned })
        }
    }
}

/// # Safety
///
/// * `run` may be called with `data` once, on any thread.
unsafe fn create(
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    data: *mut c_void,
) -> io::Result<libc::pthread_t> {
    let check = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let mut how = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut id = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: `how` is initialised by the first call and used until it is destroyed; `id` is live
    // for the call to write, and is read only if it has. The new thread calls `run` with `data`,
    // which the caller allows. A size that the system does not take leaves its own.
    unsafe {
        check(libc::pthread_attr_init(how.as_mut_ptr()))?;
        libc::pthread_attr_setstacksize(how.as_mut_ptr(), stack_bytes());
        let code = libc::pthread_create(id.as_mut_ptr(), how.as_ptr(), run, data);
        libc::pthread_attr_destroy(how.as_mut_ptr());
        check(code)?;
        Ok(id.assume_init())
    }
}

/// As for the standard library's threads: 2 MiB, or the size in the environment.
fn stack_bytes() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let asked = std::env::var_os("RUST_MIN_STACK");
    let bytes = asked.and_then(|text| text.to_str()?.parse().ok()).unwrap_or(2 << 20);
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// The thread. Null, or not null after a panic.
extern "C" fn run<T, W: FnOnce(T)>(start: *mut c_void) -> *mut c_void {
    // SAFETY: `start_borrowing` made it of these types, and gave it to this thread alone.
    let Start { name, owned, work } = *unsafe { Box::from_raw(start.cast::<Start<T, W>>()) };
    NAME.set(name);
    // SAFETY: the name ends with a 0, within 16 bytes. A failure leaves the thread without it.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr().cast()) };
    match catch_unwind(AssertUnwindSafe(|| ours(|| work(owned)))) {
        Ok(()) => ptr::null_mut(),
        Err(payload) => {
            discard_panic(payload);
            ptr::without_provenance_mut(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_has_its_name_and_drops_its_locals() {
        struct Local(std::sync::mpsc::Sender<&'static str>);
        impl Drop for Local {
            fn drop(&mut self) {
                let _ = self.0.send("dropped");
            }
        }
        thread_local! {
            static LOCAL: Cell<Option<Local>> = const { Cell::new(None) };
        }
        let (sender, said) = channel();
        let (asked, name_of) = channel();
        let work = move |local| {
            LOCAL.set(Some(local));
            let _ = asked.send((name(), std::fs::read_to_string("/proc/thread-self/comm").ok()));
        };
        let started = start("a-name-of-more-than-15-bytes", Local(sender), work);
        assert!(started.ok().expect("a thread").join());
        let (name, comm) = name_of.recv().unwrap();
        assert_eq!(name, "a-name-of-more-");
        assert!(comm.is_none_or(|comm| comm.trim_end() == name));
        assert_eq!(said.recv(), Ok("dropped"));
    }

    #[test]
    fn a_panic_ends_the_thread_alone() {
        let quiet = |()| std::panic::resume_unwind(Box::new("on purpose"));
        assert!(!start("panics", (), quiet).ok().expect("a thread").join());
        let work = || std::panic::resume_unwind(Box::new("on purpose"));
        let all = catch_unwind(|| with_helpers("panics", 2, &work, || ()));
        assert!(all.is_err());
    }

    #[test]
    fn helpers_end_before_what_they_borrow() {
        let (count, stop) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            while stop.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            count.fetch_add(1, Ordering::Relaxed);
        };
        let here = || {
            stop.store(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("on purpose"));
        };
        let ended = catch_unwind(AssertUnwindSafe(|| with_helpers("helps", 3, &work, here)));
        assert!(ended.is_err());
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
