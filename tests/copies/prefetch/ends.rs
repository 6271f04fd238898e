//! The end of a pipeline: early, in the middle, while workers are blocked; and many pipelines at
//! once.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pinlane::emulated::Execution;
use pinlane::{
    ErrorKind,
    prefetch::{FillBatch, Prefetch, Reserved},
};

use super::{Rig, contents, pattern};
use crate::common::support::{Stalled, eventually, raw, watched};

/// An endless producer that counts its batches. Its token shows whether it is alive.
struct Endless(usize, #[allow(dead_code)] Arc<()>);

impl Iterator for Endless {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.0 += 1;
        Some(pattern(self.0 - 1, 0, [100, 8000][self.0 % 2]))
    }
}

#[test]
fn a_consumer_may_stop_at_any_batch() {
    for taken in 0..12 {
        for execution in [Execution::Eager, Execution::Lazy] {
            watched(move || {
                let rig = Rig::new(execution, taken);
                let alive = Arc::new(());
                let mut prefetch = Prefetch::new(Endless(0, alive.clone()), &rig.pool, &rig.stream)
                    .depth(1 + taken as usize % 4)
                    .workers(1 + taken as usize % 3)
                    .ordered(taken % 2 == 0)
                    .start()
                    .expect("no faults");
                let held: Vec<_> = prefetch.by_ref().take(taken as usize).collect();
                drop(prefetch);
                for batch in held {
                    let batch = batch.expect("no faults");
                    let number = batch.index() as usize;
                    let len = [100, 8000][(number + 1) % 2];
                    assert_eq!(contents(&rig.stream, &batch, "0"), pattern(number, 0, len));
                }
                eventually("the producer is dropped", || Arc::strong_count(&alive) == 1);
                rig.nothing_is_left();
            });
        }
    }
}

/// A producer that gets its batches from the test, and counts how often it was asked.
struct Told(Receiver<Vec<u8>>, Arc<AtomicUsize>);

impl Iterator for Told {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.1.fetch_add(1, SeqCst);
        self.0.recv().ok()
    }
}

#[test]
fn dropping_does_not_wait_for_the_producer() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 1);
        let (sender, receiver) = channel();
        let asked = Arc::<AtomicUsize>::default();
        let mut prefetch = Prefetch::new(Told(receiver, asked.clone()), &rig.pool, &rig.stream)
            .workers(3)
            .start()
            .expect("no faults");
        sender.send(pattern(0, 0, 3000)).expect("heard");
        let batch = prefetch.next().expect("one").expect("no faults");
        eventually("a worker waits for the producer", || asked.load(SeqCst) == 2);
        drop(prefetch);
        assert_eq!(contents(&rig.stream, &batch, "0"), pattern(0, 0, 3000));
        drop(batch);
        // A batch that the producer returns after the end is dropped, and its worker ends.
        sender.send(pattern(1, 0, 3000)).expect("the worker is still there");
        eventually("the producer is dropped", || sender.send(Vec::new()).is_err());
        rig.nothing_is_left();
    });
}

#[test]
fn a_consumer_may_stop_waiting() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 1);
        let (sender, receiver) = channel();
        let mut prefetch = Prefetch::new(Told(receiver, Arc::default()), &rig.pool, &rig.stream)
            .start()
            .expect("no faults");
        for timeout in [Duration::ZERO, Duration::from_millis(2)] {
            let begun = Instant::now();
            let waited = prefetch.next_timeout(timeout).expect("it has not ended");
            assert_eq!(waited.expect_err("nothing is there").kind(), ErrorKind::TimedOut);
            assert!(begun.elapsed() >= timeout);
        }
        (0..3).for_each(|n| sender.send(pattern(n, 0, 3000)).expect("heard"));
        drop(sender);
        let long = Duration::from_secs(1000);
        let given =
            [prefetch.next_timeout(long), prefetch.next(), prefetch.next_timeout(Duration::MAX)];
        for (number, batch) in given.into_iter().enumerate() {
            let batch = batch.expect("nothing was lost").expect("no faults");
            assert_eq!(contents(&rig.stream, &batch, "0"), pattern(number, 0, 3000));
        }
        assert!(prefetch.next_timeout(long).is_none());
        drop(prefetch);
        rig.nothing_is_left();
    });
}

#[test]
fn dropping_does_not_wait_for_a_closure_or_the_device() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 1);
        let (sender, receiver) = channel::<()>();
        let receiver = Arc::new(Mutex::new(receiver));
        let inside = Arc::new(AtomicUsize::new(0));
        let (entered, heard) = (inside.clone(), receiver.clone());
        let batches = (0..).map(move |_| {
            let (entered, heard) = (entered.clone(), heard.clone());
            FillBatch::new([Reserved::of::<u8>("0", 100)], move |_| {
                entered.fetch_add(1, SeqCst);
                let _ = heard.lock().unwrap().recv();
                Ok::<(), pinlane::Error>(())
            })
        });
        let prefetch =
            Prefetch::new(batches, &rig.pool, &rig.stream).workers(2).start().expect("no faults");
        eventually("both are inside", || inside.load(SeqCst) == 2);
        drop(prefetch);
        drop(sender);

        // The consumer makes no progress. Only the workers wait for the memory that it used.
        rig.emulator.stall(raw(&rig.stream)).expect("a live stream");
        let batches = (0..).map(|n| pattern(n, 0, 8000));
        let mut prefetch =
            Prefetch::new(batches, &rig.pool, &rig.stream).start().expect("no faults");
        for _ in 0..3 {
            drop(prefetch.next().expect("many").expect("no faults"));
        }
        // A drop that waited would never return.
        drop(prefetch);
        rig.emulator.release(raw(&rig.stream)).expect("a live stream");
        rig.stream.synchronize().expect("no faults");
        rig.nothing_is_left();
    });
}

#[test]
fn many_pipelines_at_once() {
    const PIPELINES: usize = 64;
    for execution in [Execution::Eager, Execution::Lazy] {
        watched(move || {
            let rig = Rig::new(execution, 9);
            thread::scope(|scope| {
                for at in 0..PIPELINES {
                    let rig = &rig;
                    scope.spawn(move || {
                        let stream = rig.device.stream().expect("no faults");
                        let len = [50, 700, 5000, 9001][at % 4];
                        let batches = (0..8).map(move |number| pattern(at + number, 0, len));
                        let prefetch = Prefetch::new(batches, &rig.pool, &stream)
                            .depth(1 + at % 3)
                            .workers(1 + at % 2)
                            .start()
                            .expect("threads and streams");
                        let stops = if at % 5 == 0 { 3 } else { 8 };
                        let mut seen = 0;
                        for (number, batch) in prefetch.take(stops).enumerate() {
                            let batch = batch.expect("no faults");
                            let found = contents(&stream, &batch, "0");
                            assert_eq!(found, pattern(at + number, 0, len), "pipeline {at}");
                            seen += 1;
                        }
                        assert_eq!(seen, stops);
                    });
                }
            });
            rig.nothing_is_left();
        });
    }
}

#[test]
fn a_pipeline_moves_between_threads() {
    let rig = Rig::new(Execution::Lazy, 1);
    let mut prefetch = Prefetch::new((0..4).map(|n| pattern(n, 0, 5000)), &rig.pool, &rig.stream)
        .start()
        .expect("no faults");
    let progress = prefetch.progress();
    let first = prefetch.next().expect("four").expect("no faults");
    let rest = thread::spawn(move || prefetch.map(|batch| batch.map_err(|e| e.kind())).collect());
    let rest: Vec<Result<_, ErrorKind>> = rest.join().expect("no panic");
    assert_eq!((first.index(), rest.len(), progress.yielded()), (0, 3, 4));
    for batch in rest.into_iter().map(|batch| batch.expect("no faults")) {
        let number = batch.index() as usize;
        assert_eq!(contents(&rig.stream, &batch, "0"), pattern(number, 0, 5000));
    }
    drop(first);
    rig.nothing_is_left();
}

/// Waits for a message when it is dropped.
struct Waits(Mutex<Receiver<()>>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.get_mut().unwrap().recv().unwrap();
    }
}

/// A thread that loads finds the last block of a stream to be free, so the stream ends there.
#[test]
fn the_owner_of_a_stream_that_ends_on_a_loading_thread_may_wait_for_a_batch() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 1);
        let (own, mut gpu) = (rig.device.stream().unwrap(), rig.device.alloc::<u8>(3000).unwrap());
        let (got, is_there) = channel();
        // SAFETY: a stream of this device. The stream itself outlives the borrowed one.
        let borrowed =
            unsafe { rig.device.borrow_stream_of(Waits(Mutex::new(is_there)), own.as_raw()) };
        let stalled = Stalled::new(&rig.emulator, &own);
        let host = rig.pool.alloc::<u8>(3000).unwrap();
        borrowed.upload(&host, &mut gpu).unwrap();
        // When a thread ends, what it has dropped is the pool's.
        thread::spawn(move || drop(host)).join().unwrap();
        drop((gpu, borrowed));
        let (begin, begins) = channel();
        let batches = (0..3).map(move |number| {
            begins.recv().unwrap();
            pattern(number, 0, 100)
        });
        let mut batches = Prefetch::new(batches, &rig.pool, &rig.stream).start().unwrap();
        drop(stalled);
        (0..3).for_each(|_| begin.send(()).unwrap());
        drop(batches.next().expect("a batch").unwrap());
        got.send(()).unwrap();
        drop((batches, own));
        rig.nothing_is_left();
    });
}
