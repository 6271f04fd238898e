//! Data of the program that launches own.
//!
//! When nothing needs a launch any more, its data is dropped at the end of the next call, with
//! nothing locked: the program may then make calls.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use crate::machine;

/// A function of the program.
pub type Function = unsafe extern "C" fn(*mut c_void);

/// What a program gives a launch.
pub struct Data {
    number: u64,
    data: *mut c_void,
    drop: Option<Function>,
    /// Held while it is lent; true once it is dropped.
    is_over: Mutex<bool>,
}

// SAFETY: the program says that its functions may be called with the data on any thread
// (`pinlane_launch`), one at a time: `is_over` is locked while one runs.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

/// Data that nothing needs any more.
struct Dropped {
    drop: Function,
    data: *mut c_void,
}

// SAFETY: as for `Data`.
unsafe impl Send for Dropped {}

impl Dropped {
    fn drop_now(self) {
        // SAFETY: the program says that this may be called, once; there is one `Dropped` for each
        // piece of data, and this consumes it.
        unsafe { (self.drop)(self.data) };
    }
}

/// All data that is not dropped.
static ALIVE: Mutex<BTreeMap<u64, Weak<Data>>> = Mutex::new(BTreeMap::new());
static DROPPED: Mutex<Vec<Dropped>> = Mutex::new(Vec::new());
static ARE_DROPPED: AtomicBool = AtomicBool::new(false);

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Data {
    pub fn new(data: *mut c_void, drop: Option<Function>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        static AT_EXIT: Once = Once::new();
        // It runs before the destructors of what is older than the first launch. If it cannot be
        // registered, `report.rs` calls it later.
        AT_EXIT.call_once(|| {
            // SAFETY: a function of this library, which is never unloaded.
            unsafe { libc::atexit(drop_all) };
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let data = Arc::new(Data { number, data, drop, is_over: Mutex::new(false) });
        locked(&ALIVE).insert(number, Arc::downgrade(&data));
        data
    }

    /// Lends the data for the time of the call; `None` once it is dropped.
    pub fn lend<R>(&self, with: impl FnOnce(*mut c_void) -> R) -> Option<R> {
        let is_over = locked(&self.is_over);
        (!*is_over).then(|| with(self.data))
    }

    /// The data, the first time.
    fn end(&self, is_over: &mut bool) -> Option<Dropped> {
        let (is_first, data) = (!std::mem::replace(is_over, true), self.data);
        self.drop.filter(|_| is_first).map(|drop| Dropped { drop, data })
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        locked(&ALIVE).remove(&self.number);
        // Perhaps under the machine's lock.
        let dropped = self.end(&mut locked(&self.is_over));
        if let Some(dropped) = dropped {
            locked(&DROPPED).push(dropped);
            ARE_DROPPED.store(true, Ordering::Release);
        }
    }
}

/// Drops the data that nothing needs any more. No lock is held when it is called.
#[inline]
pub fn drop_data() {
    if ARE_DROPPED.load(Ordering::Acquire) && !machine::is_forked() {
        drop_waiting();
    }
}

#[cold]
fn drop_waiting() {
    ARE_DROPPED.store(false, Ordering::Relaxed);
    let dropped = std::mem::take(&mut *locked(&DROPPED));
    dropped.into_iter().for_each(Dropped::drop_now);
}

/// The process ends. What is lent on another thread stays.
pub extern "C" fn drop_all() {
    if machine::is_forked() {
        return;
    }
    let alive: Vec<Arc<Data>> = locked(&ALIVE).values().filter_map(Weak::upgrade).collect();
    for data in &alive {
        let dropped = data.is_over.try_lock().ok().and_then(|mut over| data.end(&mut over));
        dropped.into_iter().for_each(Dropped::drop_now);
    }
    drop(alive);
    drop_waiting();
}
