//! An error or a panic takes the place of its batch, and nothing leaks.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::{
    CudaCode, ErrorKind, Result,
    prefetch::{
        Batches, DeviceBatch, FillBatch, HostBatch, IntoHostBatch, Prefetch, Reserved, Slices,
    },
};

use super::{Rig, contents, pattern};
use crate::common::faults::{Run, at_every_call};
use crate::common::support::watched;

#[derive(Debug, PartialEq)]
struct Torn(usize);

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} is torn", self.0)
    }
}

impl Error for Torn {}

fn start<I>(rig: &Rig, batches: I) -> Batches
where
    I: Iterator + Send + 'static,
    I::Item: IntoHostBatch + Send,
{
    Prefetch::new(batches, &rig.pool, &rig.stream).depth(3).workers(3).start().expect("no faults")
}

/// Asserts that a batch is the one with this number.
fn is_intact(rig: &Rig, batch: &DeviceBatch, number: usize, len: usize) {
    assert_eq!(batch.index(), number as u64);
    assert_eq!(contents(&rig.stream, batch, "0"), pattern(number, 0, len));
}

fn is_torn(error: &pinlane::Error, number: usize) {
    assert_eq!(error.kind(), ErrorKind::Producer);
    let source = error.source().and_then(<dyn Error>::downcast_ref::<Torn>);
    assert_eq!(source, Some(&Torn(number)));
    let text = error.to_string();
    assert!(text.contains(&format!("batch {number}: record {number} is torn")), "{text}");
}

#[test]
fn errors_of_the_producer_come_in_place() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 1);
        let batches =
            (0..20).map(|n| if n % 3 == 1 { Err(Torn(n)) } else { Ok(pattern(n, 0, 5000)) });
        for (number, batch) in start(&rig, batches).enumerate() {
            match batch {
                Ok(batch) => is_intact(&rig, &batch, number, 5000),
                Err(error) => is_torn(&error, number),
            }
        }
        rig.nothing_is_left();
    });
}

#[test]
fn errors_of_a_closure_come_in_place() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 1);
        let batches = (0..20).map(|n| {
            FillBatch::new([Reserved::of::<u8>("0", 5000)], move |block| {
                if n % 3 == 1 {
                    return Err(Torn(n));
                }
                let bytes = block.slice_mut::<u8>("0").expect("reserved");
                bytes.copy_from_slice(&pattern(n, 0, 5000));
                Ok(())
            })
        });
        for (number, batch) in start(&rig, batches).enumerate() {
            match batch {
                Ok(batch) => is_intact(&rig, &batch, number, 5000),
                Err(error) => is_torn(&error, number),
            }
        }
        rig.nothing_is_left();
    });
}

/// A batch whose code panics at a chosen place.
struct Panicky {
    bytes: Vec<u8>,
    in_visit: Option<Arc<str>>,
    in_drop: bool,
}

impl HostBatch for Panicky {
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        slices.slice("0", &self.bytes);
        if let Some(payload) = &self.in_visit {
            panic_any(payload.clone());
        }
    }
}

impl Drop for Panicky {
    fn drop(&mut self) {
        if self.in_drop && !std::thread::panicking() {
            panic_any(Arc::<str>::from("in drop"));
        }
    }
}

/// Takes the batches up to the panic, which must come at `number`, and returns its payload.
fn up_to_the_panic(rig: &Rig, mut batches: Batches, number: usize) -> Arc<str> {
    for number in 0..number {
        let batch = batches.next().expect("more").expect("no faults");
        is_intact(rig, &batch, number, 3000);
    }
    let payload = catch_unwind(AssertUnwindSafe(|| batches.next())).expect_err("a panic");
    assert!(batches.next().is_none(), "a panic is the end");
    *payload.downcast::<Arc<str>>().expect("the payload of the producer")
}

#[test]
fn panics_go_on_in_the_consumer_in_place() {
    watched(|| {
        let payload = Arc::<str>::from("a bug of the user's");
        let rig = Rig::new(Execution::Lazy, 1);

        let copy = payload.clone();
        let in_producer = (0..).map(move |n| {
            if n == 7 {
                panic_any(copy.clone());
            }
            pattern(n, 0, 3000)
        });
        assert!(Arc::ptr_eq(&up_to_the_panic(&rig, start(&rig, in_producer), 7), &payload));

        let copy = payload.clone();
        let in_visit = (0..).map(move |n| {
            let in_visit = (n == 5).then(|| copy.clone());
            Panicky { bytes: pattern(n, 0, 3000), in_visit, in_drop: false }
        });
        assert!(Arc::ptr_eq(&up_to_the_panic(&rig, start(&rig, in_visit), 5), &payload));

        let in_drop =
            (0..).map(|n| Panicky { bytes: pattern(n, 0, 3000), in_visit: None, in_drop: n == 4 });
        assert_eq!(&*up_to_the_panic(&rig, start(&rig, in_drop), 4), "in drop");

        let copy = payload.clone();
        let in_fill = (0..).map(move |n| {
            let copy = copy.clone();
            FillBatch::new([Reserved::of::<u8>("0", 3000)], move |block| {
                if n == 3 {
                    panic_any(copy);
                }
                block.slice_mut::<u8>("0")?.copy_from_slice(&pattern(n, 0, 3000));
                Ok::<(), pinlane::Error>(())
            })
        });
        assert!(Arc::ptr_eq(&up_to_the_panic(&rig, start(&rig, in_fill), 3), &payload));
        drop(payload);
        rig.nothing_is_left();
    });
}

#[test]
fn a_batch_that_makes_no_sense_is_an_error() {
    struct Twice;
    impl HostBatch for Twice {
        fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
            slices.slice("x", &[1u8]);
            slices.reserve::<u8>("x", 1);
        }
    }
    let rig = Rig::new(Execution::Eager, 1);
    let kind = |batch: Option<Result<DeviceBatch>>| batch.expect("one").map_err(|e| e.kind()).err();
    assert_eq!(kind(start(&rig, [Twice].into_iter()).next()), Some(ErrorKind::InvalidValue));
    for len in [usize::MAX, usize::MAX / 2, usize::MAX / 8] {
        let space = [Reserved::of::<u64>("x", len), Reserved::of::<u8>("y", 300)];
        let batch = FillBatch::new(space, |_| Ok::<(), pinlane::Error>(()));
        let result = kind(start(&rig, [batch].into_iter()).next());
        assert_eq!(result, Some(ErrorKind::InvalidValue), "{len}");
    }
    // Larger than any pool.
    let batch = FillBatch::new([Reserved::of::<u8>("x", 64 << 20)], |_| Ok::<(), Torn>(()));
    assert_eq!(kind(start(&rig, [batch].into_iter()).next()), Some(ErrorKind::BudgetExhausted));
    for (depth, workers) in [(0, 1), (1, 0), (1 << 17, 1), (1, 257)] {
        let prefetch = Prefetch::new([[1u8]], &rig.pool, &rig.stream).depth(depth).workers(workers);
        let refused = prefetch.start().map_err(|error| error.kind()).err();
        assert_eq!(refused, Some(ErrorKind::InvalidValue));
    }
    rig.nothing_is_left();
}

#[test]
fn a_failed_first_batch_drops_no_last_one() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 1);
        for fails in [false, true] {
            let batches = [Err(Torn(0)), Ok(pattern(1, 0, 3000)), Ok(pattern(2, 0, 10))];
            let batches = batches.into_iter().enumerate().map(move |(n, batch)| match batch {
                Err(_) if !fails => Ok(pattern(n, 0, 3000)),
                batch => batch,
            });
            let prefetch = Prefetch::new(batches, &rig.pool, &rig.stream).drop_last(true);
            let results: Vec<_> = prefetch.start().expect("no faults").collect();
            assert_eq!(results.len(), if fails { 3 } else { 2 });
        }
        rig.nothing_is_left();
    });
}

/// A pipeline while calls fail: each batch, in its place, is intact or an error.
fn survives(run: &Run) -> usize {
    let rig = Rig::of(run.emulator.clone());
    let len = |n: usize| if n.is_multiple_of(2) { 300 } else { 20_000 };
    run.begin();
    let batches = (0..8).map(move |n| pattern(n, 0, len(n)));
    match Prefetch::new(batches, &rig.pool, &rig.stream).depth(3).workers(2).start() {
        Err(error) => run.explains(&error),
        Ok(mut batches) => {
            let mut at = 0;
            for batch in batches.by_ref() {
                match batch {
                    Ok(batch) => {
                        assert_eq!(batch.index() as usize, at);
                        let slice = batch.slice::<u8>("0").expect("a slice");
                        let mut found = vec![0; len(at)];
                        match rig.stream.download_slice(slice, &mut found) {
                            Ok(()) => assert_eq!(found, pattern(at, 0, len(at))),
                            Err(error) => run.explains(&error),
                        }
                    }
                    Err(error) => run.explains(&error),
                }
                at += 1;
            }
            assert_eq!(at, 8, "each batch or its error");
        }
    }
    run.end();
    let Rig { stream, pool, device, .. } = rig;
    drop(stream);
    pool.stats().quarantined_bytes + device.quarantined_bytes()
}

#[test]
fn whichever_call_fails() {
    at_every_call("prefetch", &Emulator::builder(), 100, survives);
}

#[test]
fn every_copy_fails_and_then_none() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 1);
        rig.emulator.inject(Fault::forever(Call::CopyH2D, CudaCode::UNKNOWN));
        let mut batches = start(&rig, (0..6).map(|n| pattern(n, 0, [300, 9000][n % 2])));
        for _ in 0..3 {
            let error = batches.next().expect("six").map(drop).expect_err("no copy works");
            assert_eq!(error.cuda_code(), Some(CudaCode::UNKNOWN));
        }
        rig.emulator.clear_faults();
        assert_eq!(batches.by_ref().count(), 3);
        drop(batches);
        rig.nothing_is_left();
    });
}

#[test]
fn a_lost_device_ends_in_errors() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 1);
        let mut batches = start(&rig, (0..30).map(|n| pattern(n, 0, [300, 9000][n % 2])));
        drop(batches.next());
        rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).expect("there is one");
        let last = batches.by_ref().last().expect("more");
        assert_eq!(last.map(drop).map_err(|error| error.kind()), Err(ErrorKind::DeviceLost));
        assert_eq!(batches.progress().produced(), 30);
        // The same with a stream of which the crate first asks whether it is captured.
        let rig = Rig::new(Execution::Lazy, 1);
        let _ = rig.stream.as_raw();
        let mut batches = start(&rig, (0..30).map(|n| pattern(n, 0, 300)));
        drop(batches.next());
        rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).expect("there is one");
        assert_eq!(batches.filter(|batch| batch.is_err()).count(), 29);
    });
}

/// A pool's memory is page-locked on its own machine only.
#[test]
fn a_pool_of_another_machine_is_refused() {
    let (rig, other) = (Rig::new(Execution::Eager, 1), Rig::new(Execution::Eager, 2));
    let batches = (0..3).map(|n| pattern(n, 0, 300));
    let refused = Prefetch::new(batches, &other.pool, &rig.stream).start();
    assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(ErrorKind::WrongDevice));
    rig.nothing_is_left();
    other.nothing_is_left();
}
