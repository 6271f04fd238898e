//! A lock that costs its usual owner nothing.
//!
//! Every thread keeps free blocks of its own, in a *lane* that almost always only it enters.
//! Entering must be cheaper than an atomic read-modify-write, which takes longer than the rest of
//! an allocation. Yet another thread must be able to reach what is kept there, when the budget is
//! spent or the pool is dropped. So all lanes of a pool share a *gate*:
//!
//! ```text
//!   owner of a lane                      another thread that needs all lanes
//!   (`Core::enter` in hit.rs)              (holds the pool's lock)
//!     busy = true                          open_to = CLOSED
//!     light fence                          heavy fence
//!     not open? leave, take the lock       wait until no lane is busy
//!     ... use the lane ...                 ... use every lane ...
//!     busy = false (release)               open_to = this process (release)
//! ```
//!
//! The gate is open to one process, the one that opened the device. A forked child finds it closed,
//! so a hit checks only one condition.
//!
//! # Invariants
//!
//! * Either the owner sees that the gate is closed, or the closer sees that the lane is busy: each
//!   side has a fence between its store and its load. The owner's fence is free where the kernel
//!   offers `membarrier`, which runs a fence in every running thread of the process on behalf of
//!   the closer. Elsewhere both are ordinary fences.
//! * The gate is closed and opened only under the pool's lock. While it is closed, the contents of
//!   all lanes belong to the holder of that lock.
//! * A lane is busy for a few instructions. During these its owner never takes the pool's lock.

use crate::process::Process;
use crate::sync::asymmetric::{self, Fences};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::spin;

/// The mark of a gate that is open to no process. No process has this mark.
const CLOSED: u32 = u32::MAX;

/// Every hit reads it and few threads write it, so it has cache lines of its own.
#[repr(align(128))]
pub(crate) struct Gate {
    /// The mark of the process that may enter its lanes, or [`CLOSED`].
    pub(crate) open_to: AtomicU32,
    pub(crate) process: Process,
    pub(crate) fences: Fences,
}

impl Gate {
    pub(crate) fn new(process: Process) -> Self {
        let open_to = AtomicU32::new(process.mark);
        Gate { open_to, process, fences: asymmetric::fences() }
    }

    /// Closes the gate. The caller holds the pool's lock. It may use a lane once it has
    /// [waited](Self::wait_for) for it.
    pub(crate) fn close(&self) {
        self.open_to.store(CLOSED, Ordering::Relaxed);
        self.fences.heavy();
    }

    /// Returns once the owner of a lane is not in it. The gate is closed.
    pub(crate) fn wait_for(&self, busy: &AtomicBool) {
        let mut spins = 0;
        // Acquire: sees what the owner did in its lane.
        while busy.load(Ordering::Acquire) {
            spin(&mut spins);
        }
    }

    /// Opens the gate. The caller holds the pool's lock.
    pub(crate) fn open(&self) {
        self.open_to.store(self.process.mark, Ordering::Release);
    }

    /// Whether the gate is closed. The answer lasts only under the pool's lock.
    pub(crate) fn is_closed(&self) -> bool {
        self.open_to.load(Ordering::Relaxed) == CLOSED
    }
}
