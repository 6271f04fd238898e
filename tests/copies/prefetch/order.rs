//! Order on the device: the consumer's work comes after the copy, and the next copy after the
//! consumer's work.
//!
//! The consumer here reads with calls of the driver, which track nothing. So the stream itself must
//! wait: the buffers cannot.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use pinlane::driver::{Call, HostFlags};
use pinlane::emulated::Execution;
use pinlane::{
    ErrorKind,
    prefetch::{DeviceBatch, Prefetch},
};

use super::{Rig, contents, pattern};
use crate::common::support::{eventually, raw, watched};

/// Page-locked memory from the driver.
struct Foreign<'r> {
    rig: &'r Rig,
    memory: NonNull<u8>,
    bytes: NonZeroUsize,
}

impl<'r> Foreign<'r> {
    fn new(rig: &'r Rig, bytes: usize) -> Self {
        let bytes = NonZeroUsize::new(bytes).expect("some bytes");
        let memory = rig.emulator.driver().host_alloc(0, bytes.get(), HostFlags::default());
        Foreign { rig, memory: memory.expect("no faults"), bytes }
    }

    /// Enqueues a copy of the batch's slice to the memory on the consumer's stream, untracked.
    fn enqueue(&self, batch: &DeviceBatch) {
        let slice = batch.slice::<u8>("0").expect("a slice of the batch");
        assert_eq!(slice.len(), self.bytes.get());
        let (driver, to) = (self.rig.emulator.driver(), self.memory.as_ptr().cast());
        // SAFETY: the stream is live; the slice lies in one allocation, which a batch that is
        // dropped keeps for as long as the consumer's stream needs it; the memory is page-locked,
        // and read after a synchronize.
        unsafe { driver.copy_d2h(raw(&self.rig.stream), to, slice.as_device_ptr(), slice.len()) }
            .expect("no faults");
    }

    fn read(&self) -> Vec<u8> {
        self.rig.stream.synchronize().expect("no faults");
        // SAFETY: initialised by the driver, and no copy to it is pending.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes.get()) }.to_vec()
    }
}

impl Drop for Foreign<'_> {
    fn drop(&mut self) {
        let _ = self.rig.stream.synchronize();
        // SAFETY: from `host_alloc`, and nothing pending names it.
        let _ = unsafe { self.rig.emulator.driver().host_free(self.memory) };
    }
}

/// Lazy execution runs only what something waits for. Without the wait on the consumer's stream the
/// foreign copy would read the previous contents of the memory.
#[test]
fn foreign_work_on_the_consumers_stream_sees_the_copy() {
    for bytes in [100, 5000, 30_000] {
        for seed in 0..20 {
            watched(move || {
                let rig = Rig::new(Execution::Lazy, seed);
                let batches = (0..8).map(move |number| pattern(number, 0, bytes));
                let foreign = Foreign::new(&rig, bytes);
                for batch in
                    Prefetch::new(batches, &rig.pool, &rig.stream).start().expect("no faults")
                {
                    let batch = batch.expect("no faults");
                    foreign.enqueue(&batch);
                    let number = batch.index() as usize;
                    assert_eq!(foreign.read(), pattern(number, 0, bytes), "batch {number}");
                }
                drop(foreign);
                rig.nothing_is_left();
            });
        }
    }
}

/// The consumer drops a batch while its own untracked work on it has not begun. A later batch in
/// the same memory must wait for that work, on the device.
#[test]
fn memory_is_used_again_behind_foreign_work() {
    for bytes in [100, 30_000] {
        watched(move || {
            let rig = Rig::new(Execution::Lazy, 1);
            let batches = (0..12).map(move |number| pattern(number, 0, bytes));
            let all: Vec<_> = (0..12).map(|_| Foreign::new(&rig, bytes)).collect();
            let other = rig.device.stream().expect("no faults");
            let mut prefetch =
                Prefetch::new(batches, &rig.pool, &rig.stream).depth(2).start().expect("no faults");
            let before = rig.emulator.calls(Call::DeviceAlloc);
            for (number, foreign) in all.iter().enumerate() {
                let batch = prefetch.next().expect("twelve").expect("no faults");
                foreign.enqueue(&batch);
                // Also where the drop cannot record an event.
                if number % 2 == 1 {
                    let dropped = other.launch_host(move || drop(batch)).expect("no faults");
                    dropped.wait().expect("no faults");
                }
            }
            assert!(prefetch.next().is_none());
            let allocated = rig.emulator.calls(Call::DeviceAlloc) - before;
            assert!(allocated <= 3, "{allocated} allocations: the memory is not used again");
            for (number, foreign) in all.iter().enumerate() {
                assert_eq!(foreign.read(), pattern(number, 0, bytes), "batch {number}");
            }
            drop((prefetch, all, other));
            rig.nothing_is_left();
        });
    }
}

/// The stream that the batches are made for, and another one: the buffers' uses order both.
#[test]
fn a_consumer_may_use_another_stream() {
    for execution in [Execution::Eager, Execution::Lazy] {
        watched(move || {
            let rig = Rig::new(execution, 5);
            let other = rig.device.stream().expect("no faults");
            let batches = (0..20).map(|number| pattern(number, 0, 3000 + number));
            let mut sums = rig.device.alloc::<u64>(20).expect("no faults");
            for batch in Prefetch::new(batches, &rig.pool, &rig.stream).start().expect("no faults")
            {
                let batch = batch.expect("no faults");
                let number = batch.index() as usize;
                let sum = sums.slice_mut(number..number + 1).expect("in range");
                other.checksum(batch.slice::<u8>("0").expect("a slice"), sum).expect("no faults");
            }
            let mut found = [0; 20];
            other.download_slice(&sums, &mut found).expect("no faults");
            for (number, sum) in found.into_iter().enumerate() {
                let expected = pinlane::checksum(&pattern(number, 0, 3000 + number));
                assert_eq!(sum, expected, "batch {number}");
            }
            drop((sums, other));
            rig.nothing_is_left();
        });
    }
}

#[test]
fn a_batch_can_be_written_and_outlives_the_pipeline() {
    let rig = Rig::new(Execution::Lazy, 2);
    let batches = (0..3).map(|number| pattern(number, 0, 7000));
    let mut prefetch = Prefetch::new(batches, &rig.pool, &rig.stream).start().expect("no faults");
    let mut batch = prefetch.next().expect("three").expect("no faults");
    drop(prefetch);
    assert_eq!(contents(&rig.stream, &batch, "0"), pattern(0, 0, 7000));
    rig.stream.fill(batch.slice_mut::<u8>("0").expect("a slice"), 9).expect("no faults");
    assert_eq!(contents(&rig.stream, &batch, "0"), [9; 7000]);
    let kind = |error: pinlane::Error| error.kind();
    assert_eq!(batch.slice::<u8>("1").map_err(kind).err(), Some(ErrorKind::InvalidValue));
    assert_eq!(batch.slice::<[u8; 16]>("0").map_err(kind).err(), Some(ErrorKind::InvalidValue));
    batch.ticket().wait().expect("no faults");
    drop(batch);
    rig.nothing_is_left();
}

#[test]
fn a_capturing_stream_gets_nothing_and_loses_nothing() {
    let rig = Rig::new(Execution::Lazy, 2);
    let mut prefetch = Prefetch::new((0..3).map(|n| pattern(n, 0, 900)), &rig.pool, &rig.stream)
        .start()
        .expect("no faults");
    let progress = prefetch.progress();
    eventually("all are ready", || progress.uploaded() == 3);
    rig.emulator.begin_capture(raw(&rig.stream)).expect("not capturing");
    for _ in 0..3 {
        let refused = prefetch.next().expect("an error");
        assert_eq!(refused.map_err(|error| error.kind()).err(), Some(ErrorKind::StreamCapturing));
    }
    let started = Prefetch::new([[1u8]], &rig.pool, &rig.stream).start();
    assert_eq!(started.map_err(|error| error.kind()).err(), Some(ErrorKind::StreamCapturing));
    rig.emulator.end_capture(raw(&rig.stream)).expect("the capture is intact");
    for number in 0..3 {
        let batch = prefetch.next().expect("three").expect("no capture");
        assert_eq!(contents(&rig.stream, &batch, "0"), pattern(number, 0, 900));
    }
    assert!(prefetch.next().is_none());
    drop(prefetch);
    rig.nothing_is_left();
}

/// The crate cannot know when the consumer's stream will use the memory.
#[test]
fn memory_that_is_dropped_in_a_capture_is_never_freed() {
    let rig = Rig::new(Execution::Lazy, 2);
    let batches = [pattern(0, 0, 900)];
    let mut prefetch = Prefetch::new(batches, &rig.pool, &rig.stream).start().expect("no faults");
    let batch = prefetch.next().expect("one").expect("no faults");
    let foreign = Foreign::new(&rig, 900);
    foreign.enqueue(&batch);
    rig.emulator.begin_capture(raw(&rig.stream)).expect("not capturing");
    drop(batch);
    rig.emulator.end_capture(raw(&rig.stream)).expect("the capture is intact");
    drop(prefetch);
    assert_eq!(foreign.read(), pattern(0, 0, 900));
    drop(foreign);
    rig.leaves(1024);
}

/// A ready batch costs the consumer one call at most: the wait.
#[test]
fn a_ready_batch_costs_one_call() {
    for bytes in [100, 20_000] {
        let rig = Rig::new(Execution::Lazy, 4);
        let (sender, receiver) = std::sync::mpsc::channel();
        (0..3).for_each(|number| sender.send(pattern(number, 0, bytes)).expect("heard"));
        let mut prefetch =
            Prefetch::new(receiver, &rig.pool, &rig.stream).start().expect("no faults");
        let progress = prefetch.progress();
        eventually("all are ready", || progress.uploaded() == 3);
        // The workers wait for the producer. Their only calls ask whether the next batch has
        // arrived.
        let counts = || Call::ALL.map(|call| rig.emulator.calls(call));
        for _ in 0..3 {
            let before = counts();
            let batch = prefetch.next().expect("three").expect("no faults");
            let made: Vec<_> = Call::ALL
                .into_iter()
                .zip(before.into_iter().zip(counts()))
                .filter(|&(call, (before, after))| after > before && call != Call::EventQuery)
                .map(|(call, (before, after))| (call, after - before))
                .collect();
            assert!(made.is_empty() || made == [(Call::StreamWaitEvent, 1)], "{made:?}");
            drop(batch);
        }
        drop((sender, prefetch));
        rig.nothing_is_left();
    }
}

/// An idle worker has asked already.
#[test]
fn a_consumer_that_comes_late_asks_the_device_for_nothing() {
    let rig = Rig::new(Execution::Eager, 1);
    let batches = (0..2).map(|number| pattern(number, 0, 2000));
    let mut batches = Prefetch::new(batches, &rig.pool, &rig.stream).depth(1).start().unwrap();
    let calls = || {
        [Call::EventQuery, Call::StreamWaitEvent, Call::EventRecord]
            .map(|call| rig.emulator.calls(call))
    };
    let quiet = Cell::new((calls(), Instant::now()));
    eventually("the worker has nothing to do", || {
        if calls() != quiet.get().0 {
            quiet.set((calls(), Instant::now()));
        }
        let long = quiet.get().1.elapsed() > Duration::from_millis(50);
        batches.progress().uploaded() == 1 && long
    });
    let before = rig.emulator.calls(Call::StreamWaitEvent);
    batches.next().unwrap().unwrap();
    assert_eq!(rig.emulator.calls(Call::StreamWaitEvent), before);
}
