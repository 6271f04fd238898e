//! A buffer of the C interface, borrowed for the time of a call.
//!
//! # Invariants
//!
//! * Nobody ever waits for a [`Cell`], so it is no lock that work could run under.
//! * Memory that the caller lends is his again when the buffer has been freed. So freeing it is refused where
//!   it could return earlier: while another call still has the buffer, whose end would then be the one that
//!   waits for the device, and inside a host function, where another thread would be.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};

/// What Rust's borrow checker does for Rust programs: shared or exclusive use for the time of a call.
pub struct Cell<T> {
    value: RwLock<T>,
    /// The device that memory is page-locked for, if the caller lends it.
    lent_to: Option<Device>,
}

impl<T> Cell<T> {
    pub(super) fn new(value: T) -> Self {
        Cell { value: RwLock::new(value), lent_to: None }
    }

    /// A buffer of memory that the caller lends.
    pub(super) fn lent(value: T, device: Device) -> Self {
        Cell { value: RwLock::new(value), lent_to: Some(device) }
    }

    pub(super) fn shared(&self, operation: &'static str) -> Result<RwLockReadGuard<'_, T>> {
        match self.value.try_read() {
            Ok(guard) => Ok(guard),
            // A panic cannot leave a buffer half changed: its uses are recorded by one push.
            Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) => Err(busy(operation)),
        }
    }

    pub(super) fn exclusive(&self, operation: &'static str) -> Result<RwLockWriteGuard<'_, T>> {
        match self.value.try_write() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) => Err(busy(operation)),
        }
    }

    /// Whether a cell may be freed, asked while its table gives out no more references to it.
    pub(super) fn check_free(operation: &'static str, this: &Arc<Self>) -> Result<()> {
        let Some(device) = &this.lent_to else { return Ok(()) };
        device.context().driver(operation)?;
        if Arc::strong_count(this) == 1 { Ok(()) } else { Err(busy(operation)) }
    }
}

#[cold]
fn busy(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Busy,
        operation,
        "another thread uses the buffer at this moment",
        "let one thread at a time use a buffer, or hold a lock of your own",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn a_conflicting_use_is_busy_and_never_waits() {
        let cell = Cell::new(1);
        {
            let first = cell.shared("test").expect("free");
            assert_eq!(*cell.shared("test").expect("readers share"), *first);
            assert_eq!(kind(cell.exclusive("test")), Some(ErrorKind::Busy));
        }
        {
            let mut only = cell.exclusive("test").expect("free again");
            *only = 2;
            assert_eq!(kind(cell.shared("test")), Some(ErrorKind::Busy));
            assert_eq!(kind(cell.exclusive("test")), Some(ErrorKind::Busy));
        }
        assert_eq!(*cell.shared("test").expect("free again"), 2);
    }

    #[test]
    fn a_panic_inside_a_use_does_not_lock_the_buffer_for_ever() {
        let cell = Cell::new(1);
        let panicked = std::thread::scope(|scope| {
            let panicking = || {
                let _guard = cell.exclusive("test").expect("free");
                std::panic::resume_unwind(Box::new("on purpose"));
            };
            scope.spawn(panicking).join().is_err()
        });
        assert!(panicked);
        *cell.exclusive("test").expect("usable") += 1;
        assert_eq!(*cell.shared("test").expect("usable"), 2);
    }
}
