//! Small copies that several threads enqueue on one stream at the same moment become one batch.
//!
//! The driver takes the calls of all threads for a stream one after the other, and those that wait
//! sleep. On an H200, 16 threads that each wait for a copy of 4 KiB on one stream take 85 to 135 us
//! for one; if one of them enqueues the copies of all as a batch, 35 to 50. A thread that is alone
//! pays one atomic operation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::marks::{Fence, Mark};
use super::small_copy::{Enqueued, SmallCopy};
use super::submit::Submission;
use super::{Exposure, Fencing, Timeline};
use crate::driver::{CopyKind, Driver, DriverResult, Item, RawStream, copy_item};
use crate::error::Result;
use crate::sync::Turn;
use crate::trace::{Kind, Work, nvtx_range};

impl Timeline {
    /// As [`submit_to`](Self::submit_to) with `enqueue`, which enqueues `copy` and catches panics.
    /// If other threads submit small copies here at the same moment, one of them enqueues all.
    #[inline]
    pub(crate) fn submit_merged(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
        copy: SmallCopy,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> thread::Result<DriverResult<()>>,
    ) -> Result<Submission<thread::Result<DriverResult<()>>>> {
        let alone = || self.submit_to(driver, operation, Fencing::Shared, enqueue);
        if self.exposure() != Exposure::Sealed {
            return alone();
        }
        // A recording shows each copy. Tools that listen by NVTX see each call.
        let mut _shown = None;
        let joins = || {
            let joins = !driver.tells_callers_apart() && self.context.recording.get().is_none();
            let work = || Work::new(operation, copy.item.bytes as usize);
            _shown = joins.then(|| nvtx_range(Kind::Enqueue, work)).flatten();
            joins
        };
        let together = |copies: &[SmallCopy]| self.enqueue_together(driver, operation, copies);
        match self.combiner.ask(copy, joins, together) {
            Turn::Alone { _work } => {
                _shown = None;
                if _work.is_none() {
                    // It may have waited, and the stream may be captured by now.
                    self.open(operation)?;
                }
                alone()
            }
            Turn::Answered(Enqueued { fence, result }) => {
                Ok(Submission { fence, value: result, fenced: Ok(()) })
            }
        }
    }

    /// Enqueues copies of several threads, and an event for all. Without an outcome, if other code
    /// has got the stream's handle since the threads asked: then each works alone.
    #[cold]
    fn enqueue_together(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
        copies: &[SmallCopy],
    ) -> Vec<Enqueued> {
        if self.exposure() != Exposure::Sealed {
            return Vec::new();
        }
        let covers = self.recorded();
        let mut results: Vec<_> = copies.iter().map(|_| Ok(Ok(()))).collect();
        for kind in [CopyKind::H2D, CopyKind::D2H] {
            let (numbers, items): (Vec<usize>, Vec<Item>) = (copies.iter().enumerate())
                .filter(|(_, copy)| copy.kind == kind)
                .map(|(number, copy)| (number, copy.item))
                .unzip();
            if self.enqueue_batch(driver, kind, &items) {
                continue;
            }
            for (number, item) in numbers.into_iter().zip(items) {
                // SAFETY: the stream is live; the copy keeps its preconditions (`SmallCopy::new`).
                let enqueue = || unsafe { copy_item(driver, self.raw, kind, item) };
                results[number] = catch_unwind(AssertUnwindSafe(enqueue));
            }
        }
        let mut marks = self.lock();
        let push = |result| {
            let position = marks.push(Mark { covers, done: false, event: None });
            Enqueued { fence: Fence { position, covers }, result }
        };
        let enqueued: Vec<_> = results.into_iter().map(push).collect();
        self.publish(&marks);
        drop(marks);
        self.close_group(operation);
        if let Some(last) = enqueued.last() {
            self.sweep_sometimes(driver, last.fence.position);
        }
        enqueued
    }

    /// Whether the copies have been enqueued as a batch. If not, some may be all the same: to make
    /// them once more copies the same bytes, because nobody writes to the sources.
    fn enqueue_batch(&self, driver: &dyn Driver, kind: CopyKind, items: &[Item]) -> bool {
        let device = self.context.ordinal();
        if items.len() < 2 || driver.supports_batches(device) != Ok(true) || !are_apart(items) {
            return items.is_empty();
        }
        // SAFETY: the stream is live. Each copy keeps its preconditions (`SmallCopy::new`), and no
        // two overlap.
        let enqueue = || unsafe { driver.copy_batch(self.raw, kind, items) };
        matches!(catch_unwind(AssertUnwindSafe(enqueue)), Ok(Ok(())))
    }
}

/// Whether no destination overlaps another one. The copies have one kind, so no destination
/// overlaps a source.
fn are_apart(items: &[Item]) -> bool {
    let mut ranges: Vec<_> = items.iter().map(|item| (item.dst, item.bytes)).collect();
    ranges.sort_unstable();
    ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::{Device, create_stream};
    use crate::driver::emulated::{Builder, Emulator, Fault};
    use crate::driver::{Call, DevicePtr, Poll, StreamFlags};
    use crate::error::{CudaCode, ErrorKind};
    use crate::memory::{DeviceBuf, PinnedBuf};
    use crate::pool::PinnedPool;

    const EACH: usize = 256;
    const THREADS: usize = 4;
    const CALLS: [Call; 3] = [Call::CopyBatch, Call::CopyH2D, Call::EventRecord];

    /// A position, and what the driver returned for its copy.
    type Outcome = (u64, DriverResult<()>);

    struct Rig {
        emulator: Emulator,
        device: Device,
        stream: Arc<Timeline>,
        host: PinnedBuf<u8>,
    }

    impl Rig {
        fn new(builder: Builder) -> Self {
            let emulator = builder.races(false).build();
            let device = Device::of_emulator(&emulator, 0).expect("no faults");
            let stream = create_stream(device.context(), StreamFlags::default());
            let pool = PinnedPool::builder(&device).build().expect("no faults");
            let mut host = pool.alloc::<u8>(THREADS * EACH).expect("no faults");
            for (n, block) in host.write().expect("idle").chunks_mut(EACH).enumerate() {
                block.fill(n as u8 + 1);
            }
            Rig { emulator, device, stream: stream.expect("no faults"), host }
        }

        /// A thread for each place copies a block there, while another has the combiner, which
        /// then calls `before`. Gives each thread's position and result, and how many of each of
        /// `CALLS` were made.
        fn try_enqueue(
            &self,
            gpu: &DeviceBuf<u8>,
            places: [usize; THREADS],
            before: impl FnOnce(),
        ) -> (Vec<Result<Outcome>>, [u64; 3]) {
            let copy = |n: usize| {
                let src = self.host.as_ptr().expose_provenance() + n * EACH;
                let dst = gpu.as_device_ptr() + (places[n] * EACH) as DevicePtr;
                let item = Item { src: src as u64, dst, bytes: EACH as u64 };
                // SAFETY: a page-locked block, and a place that the emulated device checks; both
                // live until the stream is idle, and nobody else uses them.
                unsafe { SmallCopy::new(CopyKind::H2D, item) }
            };
            let driver = self.stream.open("a test").expect("no faults");
            let counted = || CALLS.map(|call| self.emulator.calls(call));
            let earlier = counted();
            let results: Vec<_> = thread::scope(|scope| {
                let turn = self.stream.combiner.ask(copy(0), || false, |_| unreachable!());
                let submit = |n| {
                    let copy = copy(n);
                    scope.spawn(move || {
                        let alone = |_: &dyn Driver, _| unreachable!("others wait");
                        let submit = self.stream.submit_merged(driver, "a test", copy, alone);
                        submit.map(|submission| {
                            assert!(submission.fenced.is_ok());
                            (submission.fence.position, submission.value.expect("no panic"))
                        })
                    })
                };
                let threads: Vec<_> = (0..THREADS).map(submit).collect();
                while self.stream.combiner.waiting() < THREADS {
                    thread::yield_now();
                }
                before();
                drop(turn);
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let after = counted();
            (results, std::array::from_fn(|n| after[n] - earlier[n]))
        }

        /// The same without refusals.
        fn enqueue(
            &self,
            gpu: &DeviceBuf<u8>,
            places: [usize; THREADS],
        ) -> (Vec<Outcome>, [u64; 3]) {
            let (results, made) = self.try_enqueue(gpu, places, || {});
            let results: Vec<_> = results.into_iter().map(|it| it.expect("no faults")).collect();
            let mut positions: Vec<_> = results.iter().map(|&(position, _)| position).collect();
            positions.sort_unstable();
            positions.dedup();
            assert_eq!(positions.len(), THREADS, "each has a position of its own");
            (results, made)
        }

        /// The same, with the contents of the device's memory after it instead of positions.
        fn upload(&self, places: [usize; THREADS]) -> (Vec<DriverResult<()>>, [u64; 3], Vec<u8>) {
            let gpu = self.device.alloc::<u8>(THREADS * EACH).expect("no faults");
            self.stream.synchronize("a test").expect("no faults");
            let (results, made) = self.enqueue(&gpu, places);
            for &(position, _) in &results {
                self.stream.wait(position, "a test").expect("no faults");
            }
            let mut back = vec![0; THREADS * EACH];
            let stream = self.device.stream().expect("no faults");
            stream.download_slice(&gpu, &mut back).expect("no faults");
            (results.into_iter().map(|(_, result)| result).collect(), made, back)
        }
    }

    fn sent(places: [usize; THREADS]) -> Vec<u8> {
        let mut bytes = vec![0; THREADS * EACH];
        for (n, place) in places.into_iter().enumerate() {
            bytes[place * EACH..][..EACH].fill(n as u8 + 1);
        }
        bytes
    }

    #[test]
    fn copies_of_several_threads_are_one_batch_with_one_event() {
        let rig = Rig::new(Emulator::builder());
        let (results, made, back) = rig.upload([3, 1, 0, 2]);
        assert_eq!((results, made), (vec![Ok(()); THREADS], [1, 0, 1]));
        assert!(back == sent([3, 1, 0, 2]));
    }

    #[test]
    fn a_driver_without_batches_gets_a_call_for_each_copy() {
        let rig = Rig::new(Emulator::builder().batches(false));
        let (results, made, back) = rig.upload([0, 1, 2, 3]);
        assert_eq!((results, made), (vec![Ok(()); THREADS], [0, THREADS as u64, 1]));
        assert!(back == sent([0, 1, 2, 3]));
    }

    #[test]
    fn destinations_that_overlap_are_no_batch() {
        let rig = Rig::new(Emulator::builder());
        let (results, made, _) = rig.upload([0, 1, 1, 3]);
        assert_eq!((results, made), (vec![Ok(()); THREADS], [0, THREADS as u64, 1]));
    }

    #[test]
    fn a_copy_that_is_refused_is_the_error_of_its_own_thread() {
        let refused = Fault::once(Call::CopyH2D, CudaCode::INVALID_VALUE).nth(3);
        let rig = Rig::new(Emulator::builder().batches(false).fault(refused));
        let (results, ..) = rig.upload([0, 1, 2, 3]);
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1, "{results:?}");
    }

    #[test]
    fn a_batch_that_fails_is_made_by_single_calls() {
        let fault = Fault::forever(Call::CopyBatch, CudaCode::INVALID_VALUE);
        let rig = Rig::new(Emulator::builder().fault(fault));
        let (results, made, back) = rig.upload([0, 1, 2, 3]);
        assert_eq!((results, made[1]), (vec![Ok(()); THREADS], THREADS as u64));
        assert!(back == sent([0, 1, 2, 3]));
    }

    #[test]
    fn a_batch_that_was_enqueued_although_its_call_failed_is_made_again() {
        let fault = Fault::once(Call::CopyBatch, CudaCode::INVALID_VALUE).late();
        let rig = Rig::new(Emulator::builder().fault(fault));
        let (results, made, back) = rig.upload([2, 0, 3, 1]);
        assert_eq!((results, made), (vec![Ok(()); THREADS], [1, THREADS as u64, 1]));
        assert!(back == sent([2, 0, 3, 1]));
    }

    #[test]
    fn a_batch_without_an_event_is_waited_for_all_the_same() {
        let rig = Rig::new(Emulator::builder());
        rig.emulator.inject(Fault::forever(Call::EventRecord, CudaCode::UNKNOWN));
        let gpu = rig.device.alloc::<u8>(THREADS * EACH).expect("no faults");
        rig.emulator.stall(rig.stream.raw()).expect("live");
        let (enqueued, made) = rig.enqueue(&gpu, [0, 1, 2, 3]);
        assert_eq!(made, [1, 0, 1]);
        for &(position, result) in &enqueued {
            assert_eq!(result, Ok(()));
            assert_eq!(rig.stream.poll(position).expect("no faults"), Poll::NotReady);
        }
        rig.emulator.release(rig.stream.raw()).expect("live");
        for &(position, _) in &enqueued {
            rig.stream.wait(position, "a test").expect("by the stream");
            assert!(rig.stream.is_complete(position));
        }
    }

    /// The stream is private when the threads ask, and captured when one of them could work.
    #[test]
    fn a_capture_that_begins_meanwhile_gets_no_copy() {
        let rig = Rig::new(Emulator::builder());
        let gpu = rig.device.alloc::<u8>(THREADS * EACH).expect("no faults");
        let enqueued = rig.try_enqueue(&gpu, [0, 1, 2, 3], || {
            rig.stream.expose();
            rig.emulator.begin_capture(rig.stream.raw()).expect("live");
        });
        for refused in enqueued.0 {
            let error = refused.map(|_| ()).expect_err("the stream is captured");
            assert_eq!(error.kind(), ErrorKind::StreamCapturing);
        }
        assert_eq!(enqueued.1, [0, 0, 0]);
        rig.emulator.end_capture(rig.stream.raw()).expect("nobody has invalidated it");
    }

    #[test]
    fn a_device_that_is_lost_is_the_error_of_each_thread() {
        let lost = CudaCode::ILLEGAL_ADDRESS;
        let rig = Rig::new(Emulator::builder().fault(Fault::once(Call::CopyBatch, lost)));
        let gpu = rig.device.alloc::<u8>(THREADS * EACH).expect("no faults");
        let (enqueued, _) = rig.enqueue(&gpu, [0, 1, 2, 3]);
        for &(position, result) in &enqueued {
            assert_eq!(result, Err(lost));
            let error = rig.stream.wait(position, "a test").expect_err("the device is lost");
            assert_eq!(error.kind(), ErrorKind::DeviceLost);
            assert!(!rig.stream.is_complete(position), "its buffers must not be reused");
        }
    }
}
