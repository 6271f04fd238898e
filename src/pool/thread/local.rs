//! Finds the calling thread's cache for a pool.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Weak};

use super::cache::Cache;
use crate::sync::sanitizer::ours;

const _: () = assert!(std::mem::offset_of!(Cache, shelves) <= 64, "a hit touches two lines");

/// A pool, as the owner of a cache sees it.
pub(crate) trait Home: Send + Sync {
    /// Takes back all that an ending thread kept. Called by the owner of `cache`.
    fn take_back(&self, cache: &Arc<Cache>);
}

thread_local! {
    /// The cache used last; null, or one that is in `CACHES`. It has no destructor, so that reading
    /// it is one load.
    pub(crate) static LAST: Cell<*const Cache> = const { Cell::new(ptr::null()) };
    static CACHES: RefCell<Caches> = RefCell::new(Caches::default());
}

/// Caches by the number of the pool. When there are twice as many as were alive the last time, the
/// caches of dropped pools leave. So a new cache costs the same, however many pools there have
/// been.
#[derive(Default)]
struct Caches {
    by_pool: BTreeMap<u64, (Arc<Cache>, Weak<dyn Home>)>,
    /// How many there may be before the caches of dropped pools leave.
    most: usize,
}

/// The smallest value of `most`.
const FEW: usize = 4;

/// This thread's cache for the pool with this number, if it has one. Makes it the one used last.
pub(crate) fn get(pool: u64) -> Option<Arc<Cache>> {
    let find = |caches: &RefCell<Caches>| {
        let caches = caches.borrow();
        let (cache, _) = caches.by_pool.get(&pool)?;
        LAST.set(Arc::as_ptr(cache));
        Some(cache.clone())
    };
    CACHES.try_with(find).ok().flatten()
}

/// Makes this thread's cache for the pool with this number the one used last. False if it was
/// already, or if there is none.
pub(crate) fn switch_to(pool: u64) -> bool {
    let last = LAST.get();
    get(pool).is_some() && LAST.get() != last
}

/// Keeps `cache` as this thread's cache for `home`. False if the thread is ending.
pub(crate) fn keep(cache: &Arc<Cache>, home: Weak<dyn Home>) -> bool {
    let kept = CACHES.try_with(|caches| {
        let mut caches = caches.borrow_mut();
        LAST.set(ptr::null());
        if caches.by_pool.len() >= caches.most {
            caches.by_pool.retain(|_, (_, home)| home.strong_count() > 0);
            caches.most = (2 * caches.by_pool.len()).max(FEW);
        }
        caches.by_pool.insert(cache.pool, (cache.clone(), home));
    });
    kept.is_ok()
}

impl Drop for Caches {
    /// Gives the caches of an ending thread back.
    fn drop(&mut self) {
        LAST.set(ptr::null());
        ours(|| {
            for (cache, home) in std::mem::take(&mut self.by_pool).into_values() {
                if let Some(home) = home.upgrade() {
                    home.take_back(&cache);
                }
            }
        });
    }
}
