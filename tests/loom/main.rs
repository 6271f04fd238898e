//! Every interleaving of a few threads in the pool: its own code, with the primitives of a model
//! checker in place of the system's.
//!
//! The modules under `pool`, `memory` and `handles` are the crate's source files. Small stand-ins
//! replace what they build on: a stream is a position that a "device" thread moves on, page-locked
//! memory is an address, and the models' own threads do the keeper's work. The fence that the
//! kernel makes free in the crate is an ordinary one here, as on systems without `membarrier`.

#![allow(dead_code, private_interfaces)]

mod handles;
mod models;

/// Explores with at most so many switches away from a thread that could continue. One model after
/// the other: each maps and unmaps thousands of stacks, and the kernel makes two that do so at once
/// wait for each other, for more than both take.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// As `src/sync.rs`.
mod sync {
    use std::ops::Deref;
    use std::time::Duration;

    pub use loom::sync::MutexGuard;

    pub mod atomic {
        pub use loom::sync::atomic::*;
    }

    pub struct Apart<T>(pub T);

    impl<T> Deref for Apart<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    pub mod cell {
        /// Reaching the contents counts as a write.
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

        impl Fences {
            pub fn light(self) {
                fence(Ordering::SeqCst);
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
        /// The only one that there is.
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

    /// Counts what has been given back.
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

    /// A stream: what its device is done with, and what the host knows of that.
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
    #[path = "../../../src/pool/books.rs"]
    pub mod books;
    #[path = "../../../src/pool/cache.rs"]
    pub mod cache;
    #[path = "../../../src/pool/core.rs"]
    pub mod core;
    #[path = "../../../src/pool/gate.rs"]
    pub mod gate;
    #[path = "../../../src/pool/hit.rs"]
    pub mod hit;
    #[path = "../../../src/pool/index.rs"]
    pub mod index;
    #[path = "../../../src/pool/parked.rs"]
    pub mod parked;
    #[path = "../../../src/pool/queue.rs"]
    pub mod queue;
    #[path = "../../../src/pool/reclaim.rs"]
    pub mod reclaim;
    #[path = "../../../src/pool/retire.rs"]
    pub mod retire;
    #[path = "../../../src/pool/stats.rs"]
    pub mod stats;
    #[path = "../../../src/pool/store.rs"]
    pub mod store;
    #[path = "../../../src/pool/take.rs"]
    pub mod take;

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

    pub mod grow {
        use std::ptr::NonNull;
        use std::sync::atomic::Ordering;

        use crate::context::Context;

        pub const LEAST_PART: usize = 8 << 20;

        pub struct Memory(pub usize);

        impl Memory {
            pub fn seam(&self) -> usize {
                usize::MAX
            }

            pub fn ptr(&self) -> NonNull<u8> {
                NonNull::dangling()
            }

            pub fn bytes(&self) -> usize {
                self.0
            }

            /// # Safety
            ///
            /// * As the crate's.
            pub unsafe fn release(self, context: &Context) -> bool {
                context.released.fetch_add(self.0, Ordering::Relaxed);
                true
            }
        }
    }

    /// The index of a model is its own: see `index.rs`.
    pub mod known {
        use std::ptr::NonNull;

        use crate::memory::block::Block;

        pub struct Known;

        impl Known {
            pub fn new(_: NonNull<u8>, _: usize, _: NonNull<[Block]>) -> Self {
                Known
            }
        }

        impl Drop for Known {
            fn drop(&mut self) {}
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
        use super::classes::Size;
        use super::stats::{Brief, Stats};
        use crate::error::Error;

        pub fn not_ready(_: &'static str, _: Size) -> Error {
            Error("not ready")
        }

        pub fn exhausted(_: &'static str, _: Size, _: &Stats) -> Error {
            Error("exhausted")
        }

        pub fn hopeless(_: &'static str, _: Size, _: &Stats) -> Error {
            Error("hopeless")
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

    /// The models do the keeper's work themselves.
    pub mod keeper {
        use super::books::Books;
        use super::core::Core;
        use crate::error::Result;

        impl Core {
            pub fn call_keeper(&self, _: &'static str, _: &mut Books) -> Result<()> {
                Ok(())
            }

            pub fn is_keeper(&self) -> bool {
                false
            }
        }
    }

    /// As the crate's, with the model's threads, of which each uses one pool.
    pub mod local {
        use std::cell::RefCell;
        use std::ptr;
        use std::sync::{Arc, Weak};

        use super::cache::Cache;

        pub trait Home {
            fn take_back(&self, cache: &Arc<Cache>);
        }

        loom::thread_local! {
            static CACHE: RefCell<Option<(Arc<Cache>, Weak<dyn Home>)>> = RefCell::new(None);
        }

        pub struct Last;

        pub static LAST: Last = Last;

        impl Last {
            pub fn get(&self) -> *const Cache {
                let of = |kept: &(Arc<Cache>, _)| Arc::as_ptr(&kept.0);
                CACHE.with(|slot| slot.borrow().as_ref().map_or(ptr::null(), of))
            }
        }

        pub fn get(pool: u64) -> Option<Arc<Cache>> {
            let cache = CACHE.with(|slot| slot.borrow().as_ref().map(|(cache, _)| cache.clone()));
            cache.filter(|cache| cache.pool == pool)
        }

        pub fn switch_to(_: u64) -> bool {
            false
        }

        pub fn keep(cache: &Arc<Cache>, home: Weak<dyn Home>) -> bool {
            CACHE.with(|slot| *slot.borrow_mut() = Some((cache.clone(), home)));
            true
        }

        /// The thread ends.
        pub fn end() {
            let last = CACHE.with(|slot| slot.borrow_mut().take());
            if let Some((cache, home)) = last
                && let Some(home) = home.upgrade()
            {
                home.take_back(&cache);
            }
        }
    }
}
