//! Every interleaving of a few threads in the pool: the pool's own code, with the primitives of a
//! model checker instead of the system's.
//!
//! The modules under `pool`, `memory` and `handles` are the crate's source files. Small
//! replacements stand for their dependencies: a stream is a position that a "device" thread
//! advances, page-locked memory is an address, and the models' own threads do the keeper's work.
//! The crate avoids one fence with `membarrier`; here it is an ordinary fence, as on systems
//! without `membarrier`.

#![allow(dead_code, private_interfaces)]

mod handles;
mod models;

/// Explores a model with at most this many switches away from a thread that could continue.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    if ran_in_a_process_of_its_own() {
        return;
    }
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs the calling test again in a process of its own, unless this is that process. Each model
/// maps and unmaps thousands of stacks. If two threads of one process do that at the same time,
/// they wait for each other in the kernel, and take longer than one after the other.
fn ran_in_a_process_of_its_own() -> bool {
    const CHILD: &str = "PINLANE_TEST_MODEL";
    thread_local!(static RAN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    let thread = std::thread::current();
    // The test runner names a test's thread after the test if there are several.
    let test = thread.name().unwrap_or("main");
    if test == "main" || std::env::var_os(CHILD).is_some() {
        return false;
    }
    if !RAN.replace(true) {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        let output = child.env(CHILD, "1").args(["--exact", test]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    }
    true
}

/// Like `src/sync.rs`.
mod sync {
    mod combined;
    #[path = "../../../src/sync/combiner.rs"]
    mod combiner;
    mod locks;
    #[path = "../../../src/sync/offer.rs"]
    mod offer;
    mod offered;
    #[path = "../../../src/sync/spin_lock.rs"]
    mod spin_lock;

    use std::ops::Deref;
    use std::time::Duration;

    pub use loom::sync::MutexGuard;

    pub mod atomic {
        pub use loom::sync::atomic::*;
    }

    pub struct CachePadded<T>(pub T);

    impl<T> Deref for CachePadded<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    pub mod cell {
        /// Access to the contents counts as a write.
        #[derive(Default)]
        pub struct UnsafeExclusive<T>(loom::cell::UnsafeCell<T>);

        impl<T> UnsafeExclusive<T> {
            pub fn new(value: T) -> Self {
                UnsafeExclusive(loom::cell::UnsafeCell::new(value))
            }

            pub fn get(&self) -> *mut T {
                self.0.with_mut(|contents| contents)
            }
        }

        #[derive(Debug)]
        pub struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

        impl<T> UnsafeCell<T> {
            pub fn new(value: T) -> Self {
                UnsafeCell(loom::cell::UnsafeCell::new(value))
            }

            pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
                self.0.with_mut(f)
            }

            pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
                self.0.with(f)
            }
        }
    }

    pub mod asymmetric {
        use loom::sync::atomic::{Ordering, fence};

        #[derive(Clone, Copy)]
        pub struct Fences {
            pub kernel_helps: bool,
        }

        pub fn fences() -> Fences {
            Fences { kernel_helps: false }
        }

        pub fn light() {
            fence(Ordering::SeqCst);
        }

        impl Fences {
            pub fn light(self) {
                light();
            }

            pub fn heavy(self) {
                fence(Ordering::SeqCst);
            }
        }
    }

    pub fn spin(_: &mut u32) {
        loom::thread::yield_now();
    }

    #[derive(Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no panic under a lock")
        }
    }

    #[derive(Default)]
    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub fn new() -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).expect("no panic under a lock")
        }

        pub fn wait_timeout<'a, T>(&self, _: MutexGuard<'a, T>, _: Duration) -> MutexGuard<'a, T> {
            unreachable!("there is no time in a model");
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

mod error {
    #[derive(Debug, PartialEq, Eq)]
    pub struct Error(pub &'static str);
    pub type Result<T, E = Error> = std::result::Result<T, E>;
}

mod process {
    use std::sync::atomic::AtomicU32;

    /// The models' own threads do the work.
    pub mod thread {
        pub struct Thread;

        impl Thread {
            pub fn join(self) -> bool {
                unreachable!("no keeper is started");
            }
        }
    }

    #[derive(Clone, Copy)]
    pub struct Process {
        pub cell: &'static AtomicU32,
        pub mark: u32,
    }

    impl Process {
        /// The only process.
        pub fn current() -> Self {
            static CELL: AtomicU32 = AtomicU32::new(1);
            Process { cell: &CELL, mark: 1 }
        }
    }

    pub fn call_user(f: impl FnOnce()) {
        f();
    }

    pub fn on_ordinary_thread<T>(owned: T, release: impl FnOnce(T), _: impl FnOnce(&mut T)) {
        release(owned);
    }
}

mod wakers {
    pub fn wake(waker: std::task::Waker) {
        waker.wake();
    }
}

mod context {
    use std::sync::atomic::AtomicUsize;

    /// Counts the bytes that have been given back.
    #[derive(Default)]
    pub struct Context {
        pub released: AtomicUsize,
    }

    impl Context {
        pub fn process(&self) -> crate::process::Process {
            crate::process::Process::current()
        }

        pub fn is_current(&self) -> bool {
            true
        }

        pub fn driver(&self, _: &'static str) -> crate::error::Result<()> {
            Ok(())
        }

        pub fn check_process(&self, _: &'static str) -> crate::error::Result<()> {
            Ok(())
        }
    }
}

mod timeline {
    use crate::error::Result;
    use crate::sync::atomic::{AtomicU64, Ordering};

    /// A stream: the position that its device has completed, and the one that the host knows.
    pub struct Timeline {
        pub done: AtomicU64,
        pub known: AtomicU64,
    }

    impl Timeline {
        pub fn new() -> Self {
            Timeline { done: AtomicU64::new(0), known: AtomicU64::new(0) }
        }

        /// The device is done with everything below `position`.
        pub fn finish(&self, position: u64) {
            self.done.store(position, Ordering::Release);
        }

        pub fn advance(&self) -> Result<()> {
            let done = self.done.load(Ordering::Acquire);
            self.known.fetch_max(done, Ordering::Release);
            Ok(())
        }

        pub fn id(&self) -> u64 {
            std::ptr::from_ref(self).addr() as u64
        }

        pub fn is_retired(&self, position: u64) -> bool {
            position < self.known.load(Ordering::Acquire)
        }
    }
}

mod memory {
    #[path = "../../../src/memory/block.rs"]
    pub mod block;

    pub mod hazard;
}

mod pool {
    #[path = "../../../src/pool/books/mod.rs"]
    pub mod books;
    #[path = "../../../src/pool/core.rs"]
    pub mod core;

    pub mod by_address {
        #[path = "../../../../src/pool/by_address/index.rs"]
        pub mod index;

        pub mod known;
    }

    /// The models do the keeper's work themselves.
    pub mod keeper {
        use super::books::Books;
        use super::core::Core;
        use crate::error::Result;

        pub mod grow;
        #[path = "../../../../src/pool/keeper/reclaim.rs"]
        pub mod reclaim;
        #[path = "../../../../src/pool/keeper/retire.rs"]
        pub mod retire;
        #[path = "../../../../src/pool/keeper/take.rs"]
        pub mod take;

        impl Core {
            pub fn call_keeper(&self, _: &'static str, _: &mut Books) -> Result<()> {
                Ok(())
            }

            pub fn is_keeper(&self) -> bool {
                false
            }
        }
    }

    pub mod thread {
        #[path = "../../../../src/pool/thread/cache.rs"]
        pub mod cache;
        #[path = "../../../../src/pool/thread/gate.rs"]
        pub mod gate;
        #[path = "../../../../src/pool/thread/hit.rs"]
        pub mod hit;
        #[path = "../../../../src/pool/thread/stack.rs"]
        pub mod stack;

        pub mod local;
    }

    /// The models of the index.
    mod index_models;
    /// How the models use the pool.
    pub mod rig;

    /// One class, so that a cache is small enough to explore.
    pub mod classes {
        pub const PAGE: usize = 4096;
        pub const MAX_ALIGN: usize = 2 << 20;
        pub const LARGEST_KEPT: usize = 1;
        pub const KEPT_CLASSES: usize = 1;

        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct Size {
            pub bytes: usize,
            pub align: usize,
        }

        impl Size {
            pub fn class(self) -> Option<usize> {
                Some(0)
            }

            pub fn accepts(self, other: Size) -> bool {
                self == other
            }
        }

        pub fn class_bytes(_: usize) -> usize {
            PAGE
        }
    }

    pub mod options {
        pub struct Options {
            pub max_bytes: usize,
            pub thread_cache_bytes: usize,
            pub watermarks: Option<(usize, usize)>,
        }
    }

    pub mod errors {
        use super::books::stats::{Brief, Stats};
        use super::classes::Size;
        use crate::error::Error;

        pub fn not_ready(_: &'static str, _: Size) -> Error {
            Error("not ready")
        }

        pub fn unserved(_: &'static str, _: Size, _: &Stats) -> Error {
            Error("unserved")
        }

        pub fn timed_out(_: &'static str, _: Size, _: Brief) -> Error {
            Error("timed out")
        }
    }

    pub mod trace {
        use std::time::Duration;

        use crate::error::Error;

        pub fn waited(_: usize, _: Duration) {}
        pub fn failed(_: usize, _: &Error) {}
        pub fn failed_elsewhere(_: usize, _: &Error) {}
        pub fn released(_: usize, _: usize) {}
        pub fn quarantined(_: usize) {}
    }
}
