//! Threads that combine their work, many times; `tests/loom` explores every order of a few.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::thread;

use super::atomic::Ordering;
use super::{Combiner, Turn};

/// Asks for each number; the answer is its square.
fn ask(combiner: &Combiner<u64, u64>, number: u64, most: &AtomicU64) -> u64 {
    let together = |numbers: &[u64]| {
        most.fetch_max(numbers.len() as u64, Ordering::Relaxed);
        numbers.iter().map(|number| number * number).collect()
    };
    match combiner.ask(number, || true, together) {
        Turn::Alone { _work } => {
            thread::yield_now();
            number * number
        }
        Turn::Answered(answer) => answer,
    }
}

#[test]
fn every_thread_gets_its_own_answer() {
    let (combiner, most, start) = (Combiner::default(), AtomicU64::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for thread in 0..8 {
            let (combiner, most, start) = (&combiner, &most, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..20_000 {
                    let number = n * 8 + thread;
                    assert_eq!(ask(combiner, number, most), number * number);
                }
            });
        }
    });
    assert!(most.load(Ordering::Relaxed) > 1, "some were answered together");
}

#[test]
fn a_thread_that_may_not_wait_works_at_the_same_time() {
    let combiner = Combiner::<u64, u64>::default();
    let first = combiner.ask(1, || false, |_| unreachable!("nobody waits"));
    assert!(matches!(first, Turn::Alone { _work: Some(_) }));
    let second = combiner.ask(2, || false, |_| unreachable!("nobody waits"));
    assert!(matches!(second, Turn::Alone { _work: None }));
    drop(first);
    let third = combiner.ask(3, || false, |_| unreachable!("nobody waits"));
    assert!(matches!(third, Turn::Alone { _work: Some(_) }));
}

#[test]
fn who_waits_for_a_thread_that_panics_works_alone() {
    let (combiner, most) = (Combiner::default(), AtomicU64::new(0));
    let first = combiner.ask(1, || false, |_| unreachable!("nobody waits"));
    thread::scope(|scope| {
        let panics = |number| {
            let combiner = &combiner;
            scope.spawn(move || {
                let asked = AssertUnwindSafe(|| {
                    matches!(
                        combiner.ask(number, || true, |_| panic!("as it must")),
                        Turn::Alone { .. }
                    )
                });
                catch_unwind(asked)
            })
        };
        let others = [2, 3].map(panics);
        while combiner.waiting() < 2 {
            thread::yield_now();
        }
        drop(first);
        let ends = others.map(|other| other.join().expect("caught"));
        assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1, "one has asked for both");
        assert!(ends.into_iter().flatten().all(|is_alone| is_alone));
    });
    assert_eq!(ask(&combiner, 5, &most), 25, "the combiner works on");
}
