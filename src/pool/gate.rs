//! A lock that costs its usual owner nothing.
//!
//! Every thread keeps free blocks of its own, in a *lane* that almost always only it enters.
//! Entering must be cheaper than an atomic read-modify-write, which takes longer than the rest of
//! an allocation; yet another thread must be able to reach what is kept there, when the budget is
//! spent or the pool is dropped. So the lanes share a *gate*:
//!
//! ```text
//!   owner of a lane                      whoever needs what all lanes hold
//!     busy = true                          (holds the pool's lock)
//!     light fence                          closed = true
//!     closed? leave and take the lock      heavy fence
//!     ... use the lane ...                 wait until no lane is busy
//!     busy = false (release)               ... use every lane ...
//!                                          closed = false (release)
//! ```
//!
//! # Invariants
//!
//! * Either the owner sees `closed`, or the closer sees `busy`: between each side's store and load
//!   lies a fence. The owner's is free where the kernel offers `membarrier`, which puts a fence
//!   into every running thread of the process on behalf of the closer; elsewhere both are ordinary
//!   fences.
//! * The gate is closed and opened under the pool's lock only. While it is closed, all contents of
//!   all lanes belong to whoever holds that lock.
//! * A lane is busy for a few instructions; its owner never takes the pool's lock meanwhile.

use crate::sync::asymmetric::{self, Fences};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::spin;

/// Shuts all lanes of a pool. Read by every hit, written rarely; so it has a cache line of its own.
#[repr(align(128))]
pub(super) struct Gate {
    closed: AtomicBool,
    fences: Fences,
}

/// One thread's way around the lock.
#[derive(Default)]
pub(super) struct Lane {
    busy: AtomicBool,
}

/// The owner is in its lane, until this drops.
pub(super) struct InLane<'a>(&'a Lane);

impl Gate {
    pub(super) fn new() -> Self {
        Gate { closed: AtomicBool::new(false), fences: asymmetric::fences() }
    }

    /// Lets the owner of `lane`, which is the calling thread, use it; `None` if the gate is closed.
    #[inline]
    pub(super) fn enter<'a>(&self, lane: &'a Lane) -> Option<InLane<'a>> {
        lane.busy.store(true, Ordering::Relaxed);
        self.fences.light();
        let inside = InLane(lane);
        // Acquire: what the last closer did to the lane has happened.
        (!self.closed.load(Ordering::Acquire)).then_some(inside)
    }

    /// Closes the gate. The caller holds the pool's lock, and may use a lane once it has
    /// [waited](Self::wait_for) for it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.fences.heavy();
    }

    /// Returns once the owner of `lane` is not in it. The gate is closed.
    pub(super) fn wait_for(&self, lane: &Lane) {
        let mut spins = 0;
        // Acquire: what the owner did in its lane has happened.
        while lane.busy.load(Ordering::Acquire) {
            spin(&mut spins);
        }
    }

    /// Opens the gate. The caller holds the pool's lock.
    pub(super) fn open(&self) {
        self.closed.store(false, Ordering::Release);
    }

    /// Whether the gate is closed; an answer to rely on needs the pool's lock.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl Drop for InLane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}
