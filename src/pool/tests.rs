//! Tests of behaviour that does not show from outside.

use std::sync::Arc;
use std::time::Instant;

use super::PinnedPool;
use super::books::queue::{Queue, Request, Waiter};
use super::classes::Size;
use super::thread::cache::Cache;
use crate::device::Device;
use crate::driver::emulated::Emulator;
use crate::error::ErrorKind;
use crate::sync::atomic::Ordering::Relaxed;

/// Looking at what other threads keep stops them all. A thread that stays in its lane shows whether
/// a caller waits for it.
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

    // A kept block of this size is found, but not one of another size.
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

/// A freed block is offered once for each requested size, however long the queue is.
#[test]
fn memory_is_looked_for_once_for_each_size_in_the_queue() {
    let mut queue = Queue::default();
    let sizes = [4096, 8192, 4096].map(|bytes| Size::of(bytes, 1).expect("small"));
    let request = |size| Request {
        operation: "test",
        size,
        gives_up: false,
        waiter: Waiter::Thread,
        since: Instant::now(),
        waited: false,
        reply: Arc::default(),
    };
    let numbers: Vec<_> = (0..3000).map(|n| queue.push(request(sizes[n % 3]))).collect();
    let asked = |queue: &mut Queue| {
        let mut asked = Vec::new();
        let served = queue.serve(|size| {
            asked.push(size.bytes);
            None
        });
        assert!(served.is_empty());
        asked
    };
    assert_eq!(asked(&mut queue), [4096, 8192]);
    let sizes_of = |queue: &Queue| queue.sizes().map(|size| size.bytes).collect::<Vec<_>>();
    assert_eq!(sizes_of(&queue), [4096, 8192]);
    assert_eq!(queue.of_sizes(&[sizes[1]].into()).len(), 1000);
    // The first requests leave, from the front and from the back.
    let early = numbers[..2500].iter().rev().filter(|&number| number % 3 != 1);
    early.for_each(|&number| assert!(queue.remove(number).is_some()));
    assert!(queue.remove(numbers[0]).is_none());
    assert_eq!(sizes_of(&queue), [4096, 8192], "others ask for the size of those that left");
    assert_eq!(asked(&mut queue), [8192, 4096], "the oldest comes first");
    let others = queue.first_of_each_size(queue.first());
    assert_eq!(others.keys().copied().collect::<Vec<_>>(), [4, 2501]);
    let small = queue.of_sizes(&[sizes[0]].into());
    small.into_iter().for_each(|number| drop(queue.remove(number)));
    assert_eq!(sizes_of(&queue), [8192]);
    numbers.iter().for_each(|&number| drop(queue.remove(number)));
    assert!(sizes_of(&queue).is_empty());
    assert!(queue.is_empty() && queue.first().is_none());
    assert!(asked(&mut queue).is_empty());
}
