//! Batches that are dropped where nothing can be recorded on the consumer's stream: in host
//! functions, and on threads that do not own a per-thread default stream. Their memory is reused
//! after the consumer's work, and none is lost.

use std::sync::mpsc::channel;
use std::thread;

use pinlane::emulated::Execution;
use pinlane::prefetch::{Batches, DeviceBatch, Prefetch};
use pinlane::{PinnedBuf, Stream};

use super::{Rig, pattern};
use crate::common::refused::refuse_threads;
use crate::common::support::watched;

const LEN: usize = 3000;
const BATCHES: usize = 40;

fn start(rig: &Rig, consumer: &Stream) -> Batches {
    let batches = (0..BATCHES).map(|number| pattern(number, 0, LEN));
    Prefetch::new(batches, &rig.pool, consumer).depth(2).start().expect("no faults")
}

/// Downloads of batches, which the test checks when everything has been dropped.
#[derive(Default)]
struct Seen(Vec<PinnedBuf<u8>>);

impl Seen {
    /// Takes the next batch, and lets the consumer's stream read it.
    fn take(&mut self, rig: &Rig, consumer: &Stream, batches: &mut Batches) -> DeviceBatch {
        let batch = batches.next().expect("another one").expect("no faults");
        let mut host = rig.pool.alloc::<u8>(LEN).expect("there is room");
        let slice = batch.slice::<u8>("0").expect("its only slice");
        consumer.download(slice, &mut host).expect("no faults");
        self.0.push(host);
        batch
    }

    fn check(self) {
        for (number, host) in self.0.iter().enumerate() {
            assert_eq!(host.read().expect("no faults"), pattern(number, 0, LEN), "{number}");
        }
    }
}

fn on_machines(test: impl Fn(Rig) + Send + Sync + 'static) {
    watched(move || {
        for seed in 0..6 {
            let executions = [Execution::Eager, Execution::Lazy, Execution::Random];
            test(Rig::new(executions[seed as usize % 3], seed));
        }
    });
}

#[test]
fn batches_may_be_dropped_in_host_functions() {
    on_machines(|rig| {
        let (consumer, other) = (rig.stream.clone(), rig.device.stream().unwrap());
        let mut batches = start(&rig, &consumer);
        let (mut seen, before) = (Seen::default(), rig.emulator.usage().device_bytes);
        for number in 0..BATCHES {
            let batch = seen.take(&rig, &consumer, &mut batches);
            // The consumer's stream, or an unrelated one.
            let stream = if number % 2 == 0 { &consumer } else { &other };
            stream.launch_host(move || drop(batch)).unwrap().wait().unwrap();
        }
        seen.check();
        let most = rig.emulator.usage().device_bytes - before;
        assert!(most <= BATCHES / 2 * LEN, "{most} bytes: memory is not used again");
        assert_eq!(rig.device.quarantined_bytes(), 0);
        drop((batches, consumer, other));
        rig.nothing_is_left();
    });
}

#[test]
fn batches_of_a_per_thread_stream_may_be_dropped_on_other_threads() {
    on_machines(|rig| {
        let consumer = rig.device.per_thread_stream();
        let mut batches = start(&rig, &consumer);
        let (mut seen, before) = (Seen::default(), rig.emulator.usage().device_bytes);
        for _ in 0..BATCHES {
            let batch = seen.take(&rig, &consumer, &mut batches);
            thread::spawn(move || drop(batch)).join().unwrap();
        }
        seen.check();
        let most = rig.emulator.usage().device_bytes - before;
        assert!(most <= BATCHES / 2 * LEN, "{most} bytes: memory is not used again");
        assert_eq!(rig.device.quarantined_bytes(), 0);
        drop((batches, consumer));
        rig.nothing_is_left();
    });
}

/// The pipeline has ended, so no worker and no consumer collects the memory.
#[test]
fn batches_may_be_dropped_anywhere_when_their_pipeline_is_gone() {
    on_machines(|rig| {
        for in_host_function in [false, true] {
            for consumer in [rig.stream.clone(), rig.device.per_thread_stream()] {
                let mut batches = start(&rig, &consumer);
                let mut seen = Seen::default();
                let held: Vec<_> =
                    (0..3).map(|_| seen.take(&rig, &consumer, &mut batches)).collect();
                drop(batches);
                if in_host_function {
                    let function = move || drop(held);
                    rig.device.stream().unwrap().launch_host(function).unwrap().wait().unwrap();
                } else {
                    thread::spawn(move || drop(held)).join().unwrap();
                }
                seen.check();
                assert_eq!(rig.device.quarantined_bytes(), 0);
            }
        }
        rig.nothing_is_left();
    });
}

/// If no thread can be started, dropped batches wait for the pipeline. If the pipeline has ended
/// too, their memory is lost, and counted.
#[test]
fn without_threads_batches_wait_for_their_pipeline() {
    on_machines(|rig| {
        let mut batches = start(&rig, &rig.stream);
        let mut seen = Seen::default();
        let stream = rig.device.stream().unwrap();
        stream.launch_host(refuse_threads).unwrap();
        for _ in 0..10 {
            let batch = seen.take(&rig, &rig.stream, &mut batches);
            stream.launch_host(move || drop(batch)).unwrap().wait().unwrap();
        }
        let last = seen.take(&rig, &rig.stream, &mut batches);
        drop(batches);
        seen.check();
        assert_eq!(rig.device.quarantined_bytes(), 0);
        let bytes = last.slice::<u8>("0").expect("its only slice").len();
        let (tell, told) = channel();
        let function = move || {
            drop(last);
            tell.send(()).unwrap();
        };
        stream.launch_host(function).unwrap().wait().unwrap();
        told.recv().expect("it was dropped");
        assert!(rig.device.quarantined_bytes() >= bytes);
        assert_eq!(rig.emulator.findings(), []);
    });
}
