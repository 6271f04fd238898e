//! The pool whose keeper the calling thread is.

use std::cell::Cell;

thread_local! {
    static POOL: Cell<u64> = const { Cell::new(0) };
}

/// From now on the calling thread is a keeper of the pool of that number.
pub(crate) fn set(pool: u64) {
    POOL.set(pool);
}

/// The number of that pool; 0 if the thread is no keeper.
pub(crate) fn pool() -> u64 {
    POOL.get()
}
