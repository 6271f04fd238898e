//! What a pool does that does not show from outside.

use std::sync::Arc;

use super::PinnedPool;
use super::cache::Cache;
use super::classes::Size;
use crate::device::Device;
use crate::driver::emulated::Emulator;
use crate::error::ErrorKind;
use crate::sync::atomic::Ordering::Relaxed;

/// To look at what other threads keep stops them all. A thread that is in its lane shows whether
/// somebody waits for it.
#[test]
fn c_rule_16_a_pool_that_has_nothing_is_asked_without_stopping_threads() {
    let device = Device::of_emulator(&Emulator::builder().build(), 0).expect("no faults");
    let pool = PinnedPool::builder(&device).build().expect("no faults");
    let core = &pool.handle.core;
    let other = Arc::new(Cache::new(core.id, 1 << 20));
    core.lock().caches.push(other.clone());

    other.busy.store(true, Relaxed);
    let none = pool.try_alloc::<u8>(4096).map(drop).map_err(|error| error.kind());
    assert_eq!(none, Err(ErrorKind::NotReady));
    other.busy.store(false, Relaxed);

    // What it keeps is found: of this size, but not of another.
    let block = pool.alloc::<u8>(4096).expect("it grows");
    drop(block);
    core.lock().collect(&core.gate, |_| true);
    core.gate.open();
    let size = Size::of(4096, 1).expect("small");
    let class = size.class().expect("threads keep it");
    loop {
        let mut books = core.lock();
        let Some(block) = books.store.take(size) else { break };
        // SAFETY: under the pool's lock, and no thread owns this cache.
        unsafe {
            assert!(other.room(class) > 0);
            other.push(class, block);
        }
    }
    other.busy.store(true, Relaxed);
    let none = pool.try_alloc::<u8>(8192).map(drop).map_err(|error| error.kind());
    assert_eq!(none, Err(ErrorKind::NotReady));
    other.busy.store(false, Relaxed);
    assert!(pool.try_alloc::<u8>(4096).is_ok());
}
