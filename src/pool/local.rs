//! How a thread finds the cache that it has for a pool.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;
use std::sync::{Arc, Weak};

use super::cache::Cache;
use super::core::Core;

thread_local! {
    /// The cache used last; null, or one that is in `CACHES`. It needs no destructor, so that a
    /// look at it is one load.
    static LAST: Cell<*const Cache> = const { Cell::new(ptr::null()) };
    static CACHES: RefCell<Caches> = RefCell::new(Caches::default());
}

/// By the number of the pool. Those of pools that are gone leave when there are twice as many as
/// were alive the last time, so that a new one costs the same however many there are.
#[derive(Default)]
struct Caches {
    by_pool: HashMap<u64, (Arc<Cache>, Weak<Core>), BuildHasherDefault<ByNumber>>,
    /// How many there may be before those of pools that are gone leave.
    most: usize,
}

/// So many caches are few.
const FEW: usize = 4;

/// Pools are numbered one after the other, by nobody who could choose the numbers: spreading them
/// is enough.
#[derive(Default)]
struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // The table takes both ends, and the upper bits depend on all below.
        self.0.rotate_left(32)
    }
}

/// This thread's cache for the pool of that number, if it is the one used last.
///
/// # Safety
///
/// * The reference is not used after this thread keeps another cache, or ends.
#[inline]
pub(super) unsafe fn last<'a>(pool: u64) -> Option<&'a Cache> {
    // SAFETY: what `LAST` points to is in `CACHES`, which keeps it alive until one of the two
    // changes, and by the caller's precondition that is later than the last use.
    let last = unsafe { LAST.get().as_ref() };
    last.filter(|cache| cache.pool == pool)
}

/// This thread's cache for the pool of that number, if it has one; it is then the one used last.
#[cold]
pub(super) fn get(pool: u64) -> Option<Arc<Cache>> {
    let find = |caches: &RefCell<Caches>| {
        let caches = caches.borrow();
        let (cache, _) = caches.by_pool.get(&pool)?;
        LAST.set(Arc::as_ptr(cache));
        Some(cache.clone())
    };
    CACHES.try_with(find).ok().flatten()
}

/// Keeps `cache` as this thread's for `core`. False if the thread is ending.
pub(super) fn keep(cache: &Arc<Cache>, core: &Weak<Core>) -> bool {
    let kept = CACHES.try_with(|caches| {
        let mut caches = caches.borrow_mut();
        LAST.set(ptr::null());
        if caches.by_pool.len() >= caches.most {
            caches.by_pool.retain(|_, (_, core)| core.strong_count() > 0);
            caches.most = (2 * caches.by_pool.len()).max(FEW);
        }
        caches.by_pool.insert(cache.pool, (cache.clone(), core.clone()));
    });
    kept.is_ok()
}

impl Drop for Caches {
    /// The thread ends, and gives its caches back.
    fn drop(&mut self) {
        LAST.set(ptr::null());
        for (_, (cache, core)) in self.by_pool.drain() {
            if let Some(core) = core.upgrade() {
                core.forget_cache(&cache);
            }
        }
    }
}
