//! Which pool the calling thread is a keeper of.

use std::cell::Cell;

thread_local! {
    static POOL: Cell<u64> = const { Cell::new(0) };
}

/// Makes the calling thread a keeper of the pool with this number.
pub(crate) fn set(pool: u64) {
    POOL.set(pool);
}

/// The number of that pool; 0 if the thread is not a keeper.
pub(crate) fn pool() -> u64 {
    POOL.get()
}
