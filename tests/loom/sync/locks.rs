//! The lock for a few instructions (`src/sync/spin_lock.rs`).

use std::sync::Arc;

use loom::thread;

use super::spin_lock::SpinLock;
use crate::explore;

#[test]
fn a_lock_gives_its_value_to_one_thread_at_a_time() {
    explore(3, || {
        let lock = Arc::new(SpinLock::<[u32; 2]>::default());
        let add = |lock: &SpinLock<[u32; 2]>| {
            let mut both = lock.lock();
            both[0] += 1;
            assert_eq!(both[0], both[1] + 1, "nobody else is in between");
            both[1] += 1;
        };
        let theirs = lock.clone();
        let other = thread::spawn(move || (0..2).for_each(|_| add(&theirs)));
        (0..2).for_each(|_| add(&lock));
        other.join().unwrap();
        assert_eq!(*lock.lock(), [4, 4]);
    });
}
