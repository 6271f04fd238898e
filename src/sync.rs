//! Locks without poisoning, and other small tools for threads.
//!
//! Poisoning is useless here: no user code runs under a lock of this crate, and every critical
//! section leaves its data consistent even if it panics.

pub(crate) mod asymmetric;
mod combiner;
mod offer;
mod spin_lock;
#[cfg(test)]
mod tests;

pub(crate) use std::sync::atomic;

pub(crate) use combiner::{Combiner, Turn};
pub(crate) use offer::Offer;
pub(crate) use pinlane_base::lock::{Condvar, Mutex, MutexGuard};
pub(crate) use pinlane_base::sanitizer;
pub(crate) use spin_lock::{SpinGuard, SpinLock};
use std::ops::Deref;

/// A value on its own cache lines: several threads write it, and others read its neighbours.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Waits a moment for another thread that needs only a few more instructions, unless it was
/// interrupted.
pub(crate) fn spin(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Cells that a model checker can follow.
pub(crate) mod cell {
    /// A cell that one thread at a time reaches: the model checker counts each `get` as a write.
    pub(crate) use std::cell::UnsafeCell as UnsafeExclusive;

    /// A cell that several threads may read at once.
    #[cfg(feature = "capi")]
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    #[cfg(feature = "capi")]
    impl<T> UnsafeCell<T> {
        #[cfg(test)]
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Passes the pointer to `f`. To dereference it, the caller needs the right to the
        /// contents.
        #[inline]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }

        /// As [`with_mut`](Self::with_mut), to read only.
        #[inline]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }
    }
}
