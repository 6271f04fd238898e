//! A lock for a few instructions: one atomic read-modify-write, where a mutex of the standard
//! library takes two.
//!
//! Releasing is a plain store, so nobody can be woken then. A thread that finds the lock taken
//! spins, then lets others run, and then sleeps in short intervals: the holder may have been
//! interrupted, and may even need the core of a waiter with a higher priority.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::atomic::{AtomicBool, Ordering};
use super::cell::UnsafeExclusive;
use super::spin;

/// A value behind such a lock. Its word comes first, the value 8 bytes after it.
#[derive(Default)]
#[repr(C)]
pub(crate) struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeExclusive<T>,
}

// SAFETY: the lock gives the value to one thread after the other, and `T: Send` is required.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above: two threads never have the value at once.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// Blocks until no other thread holds the lock.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        if !self.take() {
            self.wait();
        }
        SpinGuard(self)
    }

    #[inline]
    fn take(&self) -> bool {
        let taken = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut tries = 0;
        loop {
            pause(&mut tries);
            if self.take() {
                return;
            }
        }
    }

    /// The value, to which the caller has exclusive access.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: the lock is borrowed exclusively.
        unsafe { &mut *self.value.get() }
    }
}

/// How often a thread tries before it sleeps; most of these times it has let others run before.
const SLEEP_AFTER: u32 = 256;

/// Waits a moment for another thread, which may have been interrupted.
pub(crate) fn pause(tries: &mut u32) {
    if *tries < SLEEP_AFTER {
        spin(tries);
    } else {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// The right to the value. Dropping it releases the lock.
pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}
