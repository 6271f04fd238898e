//! A mutex and a condition variable without poisoning, which the thread sanitizer can follow.
//!
//! Poisoning is of no use here: no user code runs under a lock of this crate, and every critical
//! section leaves consistent data behind even if it panics.
//!
//! The standard library is compiled without the thread sanitizer, which therefore does not see the
//! slow paths of its locks and reports races where there are none. With `--cfg pinlane_tsan`, which
//! `scripts/sanitize` sets, each lock says itself what it orders.

mod apart;
pub(crate) mod asymmetric;

pub(crate) use std::sync::atomic;

pub(crate) use self::apart::Apart;

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T>(std::sync::MutexGuard<'a, T>);

#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard::locked(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    #[inline]
    fn locked(guard: std::sync::MutexGuard<'a, T>) -> Self {
        annotate::acquire(&*guard);
        MutexGuard(guard)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        annotate::release(&*self.0);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar(std::sync::Condvar::new())
    }

    /// Lets go of the lock, sleeps until notified, perhaps without, and takes the lock again.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        annotate::release(&*guard.0);
        let guard = ManuallyDrop::new(guard);
        // SAFETY: the guard is read once, out of a `ManuallyDrop` that is not used again.
        let guard = unsafe { std::ptr::read(&guard.0) };
        MutexGuard::locked(self.0.wait(guard).unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`wait`](Self::wait), but sleeps no longer than `timeout`.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        annotate::release(&*guard.0);
        let guard = ManuallyDrop::new(guard);
        // SAFETY: the guard is read once, out of a `ManuallyDrop` that is not used again.
        let guard = unsafe { std::ptr::read(&guard.0) };
        let result = self.0.wait_timeout(guard, timeout);
        MutexGuard::locked(result.unwrap_or_else(PoisonError::into_inner).0)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Waits a moment for another thread that will be done in a few instructions, unless it was
/// interrupted.
pub(crate) fn spin(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

pub(crate) mod cell {
    /// A cell whose contents are reached by pointer, with the interface that model checkers need.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Gives `f` the pointer. Dereferencing it is up to the caller's right to the contents.
        #[inline]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }

        /// As [`with_mut`](Self::with_mut), for who only reads.
        #[cfg(feature = "capi")]
        #[inline]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(not(pinlane_tsan))]
mod annotate {
    #[inline]
    pub(super) fn acquire<T>(_: &T) {}
    #[inline]
    pub(super) fn release<T>(_: &T) {}
}

#[cfg(pinlane_tsan)]
mod annotate {
    use std::ffi::c_void;

    unsafe extern "C" {
        fn __tsan_acquire(address: *mut c_void);
        fn __tsan_release(address: *mut c_void);
    }

    /// What was done before the release of the same address has happened.
    pub(super) fn acquire<T>(of: &T) {
        // SAFETY: the sanitizer takes any address, and does not access what is there.
        unsafe { __tsan_acquire(std::ptr::from_ref(of).cast_mut().cast()) }
    }

    pub(super) fn release<T>(of: &T) {
        // SAFETY: as above.
        unsafe { __tsan_release(std::ptr::from_ref(of).cast_mut().cast()) }
    }
}
