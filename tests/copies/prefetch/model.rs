//! Random pipelines against a plain model: the batches themselves, in a loop.

use std::collections::VecDeque;
use std::error::Error;

use pinlane::driver::Call;
use pinlane::emulated::Execution;
use pinlane::prefetch::{DeviceBatch, FillBlock, HostBatch, Prefetch, Slices};
use proptest::prelude::*;

use super::{Rig, contents, pattern};
use crate::common::support::watched;

/// A slice: its bytes, and whether it is reserved and filled later.
type Slice = (usize, bool);

#[derive(Clone, Debug)]
struct Plan {
    batches: Vec<Vec<Slice>>,
    depth: usize,
    workers: usize,
    ordered: bool,
    drop_last: bool,
    /// How many batches the consumer keeps.
    held: usize,
    lazy: bool,
    seed: u64,
}

fn slice() -> impl Strategy<Value = Slice> {
    let len = prop_oneof![Just(0), 1..40usize, 200..700usize, 4000..4200usize, 0..40_000usize];
    (len, prop::bool::weighted(0.25))
}

fn plan() -> impl Strategy<Value = Plan> {
    let batches = prop::collection::vec(prop::collection::vec(slice(), 0..5), 0..14);
    let knobs = (1..6usize, 1..5usize, any::<bool>(), any::<bool>(), 0..4usize);
    (batches, knobs, any::<bool>(), any::<u64>()).prop_map(
        |(batches, (depth, workers, ordered, drop_last, held), lazy, seed)| Plan {
            batches,
            depth,
            workers,
            ordered,
            drop_last,
            held,
            lazy,
            seed,
        },
    )
}

/// A batch with slices of both kinds.
struct Mixed {
    slices: Vec<(String, Vec<u8>, bool)>,
}

impl Mixed {
    fn new(number: usize, slices: &[Slice]) -> Mixed {
        let slice = |(at, &(len, reserved)): (usize, &Slice)| {
            (format!("slice {at}"), pattern(number, at, len), reserved)
        };
        Mixed { slices: slices.iter().enumerate().map(slice).collect() }
    }
}

impl HostBatch for Mixed {
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        for (name, bytes, reserved) in &self.slices {
            if *reserved {
                slices.reserve::<u8>(name, bytes.len());
            } else {
                slices.slice(name, bytes);
            }
        }
    }

    fn fill(&mut self, block: &mut FillBlock<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        for (name, bytes, reserved) in &self.slices {
            if *reserved {
                block.slice_mut::<u8>(name)?.copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}

fn check(rig: &Rig, plan: &Plan, batch: &DeviceBatch) {
    let number = batch.index() as usize;
    let slices = &plan.batches[number];
    let names = slices.iter().enumerate().map(|(at, slice)| (format!("slice {at}"), slice.0));
    assert!(batch.names().map(|(name, bytes)| (name.to_owned(), bytes)).eq(names));
    for (at, &(len, _)) in slices.iter().enumerate() {
        let found = contents(&rig.stream, batch, &format!("slice {at}"));
        assert_eq!(found, pattern(number, at, len), "batch {number}, slice {at}");
    }
}

fn run(plan: &Plan) {
    let execution = if plan.lazy { Execution::Lazy } else { Execution::Eager };
    let rig = Rig::new(execution, plan.seed);
    let sizes = plan.batches.iter().map(|slices| slices.iter().map(|slice| slice.0).sum::<usize>());
    let sizes: Vec<_> = sizes.collect();
    let short = plan.drop_last && sizes.last() < sizes.first();
    let expected: Vec<u64> = (0..(sizes.len() - usize::from(short)) as u64).collect();

    let batches: Vec<_> = plan.batches.iter().enumerate().collect();
    let batches: Vec<_> =
        batches.into_iter().map(|(number, slices)| Mixed::new(number, slices)).collect();
    let mut prefetch = Prefetch::new(batches, &rig.pool, &rig.stream)
        .depth(plan.depth)
        .workers(plan.workers)
        .ordered(plan.ordered)
        .drop_last(plan.drop_last)
        .start()
        .expect("no faults");
    let progress = prefetch.progress();
    let mut order = Vec::new();
    let mut held = VecDeque::new();
    for batch in &mut prefetch {
        let batch = batch.expect("no faults");
        order.push(batch.index());
        held.push_back(batch);
        if held.len() > plan.held {
            check(&rig, plan, &held.pop_front().expect("not empty"));
        }
    }
    held.drain(..).for_each(|batch| check(&rig, plan, &batch));
    assert!(prefetch.next().is_none() && prefetch.next().is_none());

    if !plan.ordered {
        order.sort_unstable();
    }
    assert_eq!(order, expected);
    assert_eq!(progress.produced(), sizes.len() as u64);
    assert_eq!((progress.uploaded(), progress.yielded()), (order.len() as u64, order.len() as u64));
    let bytes: usize = sizes.iter().take(order.len()).sum();
    assert_eq!(progress.bytes(), bytes as u64);
    drop(prefetch);
    rig.nothing_is_left();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_pipeline_is_a_loop(plan in plan()) {
        watched(move || run(&plan));
    }
}

#[test]
fn everything_that_is_a_batch() {
    let rig = Rig::new(Execution::Lazy, 3);
    fn names<B: pinlane::prefetch::IntoHostBatch + Send + 'static>(
        rig: &Rig,
        batch: B,
    ) -> Vec<(String, Vec<u8>)> {
        let mut prefetch =
            Prefetch::new([batch], &rig.pool, &rig.stream).start().expect("no faults");
        let batch = prefetch.next().expect("one").expect("no faults");
        let slice =
            |(name, _): (&str, usize)| (name.to_owned(), contents(&rig.stream, &batch, name));
        batch.names().map(slice).collect()
    }
    let zero = |bytes: &[u8]| vec![("0".to_owned(), bytes.to_vec())];
    static WORDS: [u8; 3] = [7, 8, 9];
    assert_eq!(names(&rig, vec![1u8, 2]), zero(&[1, 2]));
    assert_eq!(names(&rig, [258u16, 1]), zero(&[2, 1, 1, 0]));
    assert_eq!(names(&rig, &WORDS[..]), zero(&WORDS));
    assert_eq!(names(&rig, Vec::<u64>::new().into_boxed_slice()), zero(&[]));
    assert_eq!(names(&rig, std::sync::Arc::<[u8]>::from([5])), zero(&[5]));
    assert_eq!(names(&rig, Ok::<_, pinlane::Error>([1u8])), zero(&[1]));
    let pair = names(&rig, (vec![1u8], [2u16]));
    assert_eq!(pair, [("0".to_owned(), vec![1]), ("1".to_owned(), vec![2, 0])]);
    assert_eq!(names(&rig, ([1u8], [2u8], [3u8], vec![4u8])).len(), 4);
    let map = std::collections::BTreeMap::from([("b", vec![2u8]), ("a", vec![1])]);
    assert_eq!(names(&rig, map), [("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])]);
    let map = std::collections::HashMap::from([(String::from("x"), [4u8])]);
    assert_eq!(names(&rig, map), [("x".to_owned(), vec![4])]);
    rig.nothing_is_left();
}

/// The pipeline holds as many batches as its depth: with a slow consumer it does not ask the
/// producer for more.
#[test]
fn a_slow_consumer_holds_the_producer_back() {
    for (ordered, drop_last) in [(true, false), (false, false), (true, true)] {
        let rig = Rig::new(Execution::Eager, 0);
        let mut prefetch = Prefetch::new((0..100).map(|_| [7u8; 5000]), &rig.pool, &rig.stream)
            .depth(4)
            .workers(3)
            .ordered(ordered)
            .drop_last(drop_last)
            .start()
            .expect("no faults");
        let progress = prefetch.progress();
        let mut held = Vec::new();
        for taken in 0..20 {
            crate::common::support::eventually("four are ready", || {
                progress.uploaded() == taken + 4
            });
            std::thread::sleep(std::time::Duration::from_millis(2));
            assert_eq!(progress.produced(), taken + 4);
            held.push(prefetch.next().expect("many more").expect("no faults"));
        }
        crate::common::support::eventually("four are ready", || progress.uploaded() == 24);
        assert_eq!(rig.emulator.calls(Call::DeviceAlloc), 24);
        drop((held, prefetch));
        rig.nothing_is_left();
    }
}
