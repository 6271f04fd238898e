//! How a thread finds the cache that it has for a pool.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::{Arc, Weak};

use super::cache::Cache;
use super::core::Core;

thread_local! {
    /// The cache used last; null, or one that is in `CACHES`. It needs no destructor, so that a look at it
    /// is one load.
    static LAST: Cell<*const Cache> = const { Cell::new(ptr::null()) };
    static CACHES: RefCell<Caches> = const { RefCell::new(Caches(Vec::new())) };
}

struct Caches(Vec<(Arc<Cache>, Weak<Core>)>);

/// This thread's cache for the pool of that number, if it is the one used last.
///
/// # Safety
///
/// * The reference is not used after this thread keeps another cache, or ends.
#[inline]
pub(super) unsafe fn last<'a>(pool: u64) -> Option<&'a Cache> {
    // SAFETY: what `LAST` points to is in `CACHES`, which keeps it alive until one of the two changes, and
    // by the caller's precondition that is later than the last use.
    let last = unsafe { LAST.get().as_ref() };
    last.filter(|cache| cache.pool == pool)
}

/// This thread's cache for the pool of that number, if it has one; it is then the one used last.
#[cold]
pub(super) fn get(pool: u64) -> Option<Arc<Cache>> {
    let find = |caches: &RefCell<Caches>| {
        let caches = caches.borrow();
        let (cache, _) = caches.0.iter().find(|(cache, _)| cache.pool == pool)?;
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
        caches.0.retain(|(_, core)| core.strong_count() > 0);
        caches.0.push((cache.clone(), core.clone()));
    });
    kept.is_ok()
}

impl Drop for Caches {
    /// The thread ends, and gives its caches back.
    fn drop(&mut self) {
        LAST.set(ptr::null());
        for (cache, core) in self.0.drain(..) {
            if let Some(core) = core.upgrade() {
                core.forget_cache(&cache);
            }
        }
    }
}
