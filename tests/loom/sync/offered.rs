//! Threads that take offered seats (`src/sync/offer.rs`).

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::cell::UnsafeCell;
use super::offer::Offer;
use crate::explore;

/// What seats are of: whoever has one reads the number, and the owner changes it afterwards.
struct Job {
    number: UnsafeCell<usize>,
    done: AtomicUsize,
}

// SAFETY: the model checks that nobody reads the number while it is written.
unsafe impl Sync for Job {}
// SAFETY: as above.
unsafe impl Send for Job {}

fn job(number: usize) -> Arc<Job> {
    Arc::new(Job { number: UnsafeCell::new(number), done: AtomicUsize::new(0) })
}

/// Takes a seat if there is one, and reads the number of the job.
fn help(offer: &Offer<Job>) {
    if let Some(taken) = offer.take() {
        // SAFETY: the owner waits until this thread is counted.
        let job = unsafe { &*taken.of };
        // SAFETY: the model checks it.
        let number = job.number.with(|number| unsafe { *number });
        assert!(number == 1 || number == 2, "the job is open");
        job.done.fetch_add(1, Ordering::Release);
    }
}

/// Makes an offer, ends it, waits for those who have taken seats, and closes the job.
fn own(offer: &Offer<Job>, job: &Job, seats: usize) {
    offer.make(job, seats);
    thread::yield_now();
    let taken = seats - offer.withdraw();
    while job.done.load(Ordering::Acquire) != taken {
        thread::yield_now();
    }
    // SAFETY: the model checks it.
    job.number.with_mut(|number| unsafe { *number = 99 });
}

/// Nobody has a job that is closed, and every seat that was taken is of the job that it was offered
/// for.
#[test]
fn a_seat_is_of_the_job_that_offered_it() {
    explore(3, || {
        let offer = Arc::new(Offer::default());
        let jobs = [job(1), job(2)];
        let helpers: Vec<_> = (0..2)
            .map(|_| {
                let offer = Arc::clone(&offer);
                thread::spawn(move || help(&offer))
            })
            .collect();
        own(&offer, &jobs[0], 2);
        own(&offer, &jobs[1], 1);
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
        assert_eq!(offer.left(), 0);
    });
}

/// No more threads than seats.
#[test]
fn one_seat_is_taken_once() {
    explore(3, || {
        let offer = Arc::new(Offer::default());
        let one = job(1);
        offer.make(&*one, 1);
        let other = Arc::clone(&offer);
        let other = thread::spawn(move || help(&other));
        help(&offer);
        other.join().unwrap();
        assert_eq!(one.done.load(Ordering::Relaxed), 1);
        assert_eq!(offer.withdraw(), 0);
    });
}

/// Whoever takes the last seat has the job that it was of, though another one is offered at once,
/// while the first is still open.
#[test]
fn the_last_seat_is_of_its_job_while_another_is_offered() {
    explore(3, || {
        let offer = Arc::new(Offer::default());
        let jobs = [job(1), job(2)];
        offer.make(&*jobs[0], 1);
        let other = Arc::clone(&offer);
        let other = thread::spawn(move || help(&other));
        while offer.left() > 0 {
            thread::yield_now();
        }
        assert_eq!(offer.withdraw(), 0);
        offer.make(&*jobs[1], 1);
        assert_eq!(offer.withdraw(), 1);
        other.join().unwrap();
        let done = jobs.each_ref().map(|job| job.done.load(Ordering::Relaxed));
        assert_eq!(done, [1, 0], "of the first, and not of the second");
    });
}
