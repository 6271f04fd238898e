//! Like the crate's, with the model's threads. Each uses one pool.

use std::cell::RefCell;
use std::ptr;
use std::sync::{Arc, Weak};

use super::cache::Cache;

pub trait Home {
    fn take_back(&self, cache: &Arc<Cache>);
}

loom::thread_local! {
    static CACHE: RefCell<Option<(Arc<Cache>, Weak<dyn Home>)>> = RefCell::new(None);
}

pub struct Last;

pub static LAST: Last = Last;

impl Last {
    pub fn get(&self) -> *const Cache {
        let of = |kept: &(Arc<Cache>, _)| Arc::as_ptr(&kept.0);
        CACHE.with(|slot| slot.borrow().as_ref().map_or(ptr::null(), of))
    }
}

pub fn get(pool: u64) -> Option<Arc<Cache>> {
    let cache = CACHE.with(|slot| slot.borrow().as_ref().map(|(cache, _)| cache.clone()));
    cache.filter(|cache| cache.pool == pool)
}

pub fn switch_to(_: u64) -> bool {
    false
}

pub fn keep(cache: &Arc<Cache>, home: Weak<dyn Home>) -> bool {
    CACHE.with(|slot| *slot.borrow_mut() = Some((cache.clone(), home)));
    true
}

/// The thread ends.
pub fn end() {
    let last = CACHE.with(|slot| slot.borrow_mut().take());
    if let Some((cache, home)) = last
        && let Some(home) = home.upgrade()
    {
        home.take_back(&cache);
    }
}
