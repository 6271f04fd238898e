//! Threads that combine their work (`src/sync/combiner.rs`).

use std::sync::Arc;

use loom::thread;

use super::cell::UnsafeExclusive;
use super::combiner::{Combiner, Turn};
use crate::explore;

/// What only one thread at a time may touch.
#[derive(Default)]
struct Desk {
    combiner: Combiner<u32, u32>,
    sum: UnsafeExclusive<u32>,
}

// SAFETY: the model checks that one thread at a time touches the sum.
unsafe impl Sync for Desk {}
// SAFETY: as above.
unsafe impl Send for Desk {}

impl Desk {
    fn add(&self, number: u32) -> u32 {
        // SAFETY: the model checks it.
        unsafe { *self.sum.get() += number };
        number + 100
    }

    fn ask(&self, number: u32) -> u32 {
        let together = |numbers: &[u32]| numbers.iter().map(|&number| self.add(number)).collect();
        match self.combiner.ask(number, || true, together) {
            Turn::Alone { _work } => self.add(number),
            Turn::Answered(answer) => answer,
        }
    }
}

/// Two threads, because a third that waits would wait forever in some order of the model: both of
/// those that wait only let the other go first.
#[test]
fn two_threads_get_their_own_answers() {
    explore(4, || {
        let desk = Arc::new(Desk::default());
        let theirs = Arc::clone(&desk);
        let other = thread::spawn(move || {
            assert_eq!(theirs.ask(1), 101);
            assert_eq!(theirs.ask(2), 102);
        });
        assert_eq!(desk.ask(4), 104);
        assert_eq!(desk.ask(8), 108);
        other.join().unwrap();
        // SAFETY: the only thread that is left.
        assert_eq!(unsafe { *desk.sum.get() }, 1 + 2 + 4 + 8);
    });
}

/// Even if another thread waits for it.
#[test]
fn a_thread_that_does_not_join_works_alone() {
    explore(4, || {
        let combiner = Arc::new(Combiner::<u32, u32>::default());
        let theirs = Arc::clone(&combiner);
        let other = thread::spawn(move || {
            drop(theirs.ask(1, || true, |numbers: &[u32]| numbers.to_vec()));
        });
        for number in [2, 3] {
            let turn = combiner.ask(number, || false, |_| unreachable!("it does not join"));
            assert!(matches!(turn, Turn::Alone { .. }));
        }
        other.join().unwrap();
    });
}
