//! Memory that never comes back: a request that nothing else could serve ends at once, and no other
//! request does.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, DeviceBuf, ErrorKind, PinnedBuf};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::poll_once;
use crate::support::{BLOCK, LEN, Rig, eventually, watched};

const LONG: Duration = Duration::from_secs(3600);
/// The budget, in blocks.
const BLOCKS: usize = 8;
/// The first shares its slab with others of its size; every other block is a slab of its own.
const SIZES: [usize; 4] = [256, BLOCK, 2 * BLOCK, 3 * BLOCK];

/// Drops a buffer during an upload whose completion cannot be determined.
fn lose(rig: &Rig, host: PinnedBuf<u8>, gpu: &mut DeviceBuf<u8>) {
    let before = rig.pool.stats().quarantined_bytes;
    let len = host.len();
    rig.stream.upload(&host, gpu.slice_mut(..len).unwrap()).unwrap();
    for call in [Call::EventQuery, Call::EventSynchronize, Call::StreamQuery] {
        rig.emulator.inject(Fault::forever(call, CudaCode::UNKNOWN));
    }
    drop(host);
    eventually("the loss is noticed", || {
        // A trim checks the blocks in flight.
        rig.pool.trim().unwrap();
        rig.pool.stats().quarantined_bytes > before
    });
    rig.emulator.clear_faults();
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(usize),
    Drop(usize),
    Lose(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..SIZES.len()).prop_map(Op::Alloc),
        2 => (0..8usize).prop_map(Op::Drop),
        2 => (0..8usize).prop_map(Op::Lose),
    ]
}

/// The slabs with lost blocks, by address: the size of their blocks, and the number of lost ones.
#[derive(Default)]
struct Lost(BTreeMap<usize, (usize, usize)>);

impl Lost {
    fn note(&mut self, host: &PinnedBuf<u8>) {
        let at = host.as_ptr().addr() / BLOCK * BLOCK;
        self.0.entry(at).or_insert((host.len(), 0)).1 += 1;
    }

    fn could_serve(&self, size: usize) -> bool {
        let stuck: usize = self.0.values().map(|(block, _)| block.max(&BLOCK)).sum();
        let has_others = |&(block, lost): &(usize, usize)| block == size && lost < BLOCK / size;
        size.max(BLOCK) <= BLOCKS * BLOCK - stuck || self.0.values().any(has_others)
    }
}

fn run(ops: &[Op]) {
    let rig = Rig::new(Execution::Lazy, 0, BLOCKS);
    let mut gpu = rig.device.alloc::<u8>(3 * BLOCK).unwrap();
    let (mut live, mut lost) = (Vec::new(), Lost::default());
    let mut small = 0;
    for op in ops {
        match *op {
            // Slabs of small blocks have one page, unless there were two of them.
            Op::Alloc(0) if small > BLOCK / SIZES[0] / 2 => {}
            Op::Alloc(size) => {
                if let Ok(host) = rig.pool.alloc::<u8>(SIZES[size]) {
                    small += usize::from(size == 0);
                    live.push(host);
                }
            }
            Op::Drop(number) if number < live.len() => drop(live.swap_remove(number)),
            Op::Lose(number) if number < live.len() => {
                let host = live.swap_remove(number);
                lost.note(&host);
                lose(&rig, host, &mut gpu);
            }
            Op::Drop(_) | Op::Lose(_) => {}
        }
        for size in SIZES {
            let asked = poll_once(&mut Box::pin(rig.pool.alloc_async::<u8>(size)));
            let is_refused = asked.is_some_and(|answer| {
                answer.is_err_and(|error| error.kind() == ErrorKind::BudgetExhausted)
            });
            assert_eq!(is_refused, !lost.could_serve(size), "{size} of {}", rig.pool.stats());
        }
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn what_nothing_could_serve_is_refused_and_nothing_else(
        ops in prop::collection::vec(op(), 1..30),
    ) {
        watched(move || run(&ops));
    }
}

/// Requests that already wait get the error, although there is a live buffer. A request that this
/// buffer could serve continues to wait.
#[test]
fn requests_that_wait_learn_of_losses() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 0, 2);
        let mut gpu = rig.device.alloc::<u8>(3 * BLOCK).unwrap();
        let (host, lost) = (rig.host(1), rig.pool.alloc::<u8>(BLOCK).unwrap());
        thread::scope(|scope| {
            let large = scope.spawn(|| rig.pool.alloc_timeout::<u32>(2 * LEN, LONG).map(drop));
            let small = scope.spawn(|| rig.pool.alloc_timeout::<u32>(LEN, LONG).map(drop));
            eventually("both wait", || rig.pool.stats().waiting == 2);
            lose(&rig, lost, &mut gpu);
            let error = large.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BudgetExhausted);
            assert!(error.to_string().contains("quarantined memory never comes back"), "{error}");
            assert!(!small.is_finished(), "it waits for the live buffer");
            drop(host);
            small.join().unwrap().unwrap();
        });
        rig.assert_no_misuse();
    });
}

/// The rest of a slab with a lost block serves requests of its size, and no others.
#[test]
fn what_is_left_of_a_slab_serves_requests() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 0, 1);
        let mut gpu = rig.device.alloc::<u8>(BLOCK).unwrap();
        let mut all: Vec<_> =
            (0..BLOCK / 256).map(|_| rig.pool.alloc::<u8>(256).unwrap()).collect();
        lose(&rig, all.remove(3), &mut gpu);
        let refused = rig.pool.alloc_timeout::<u8>(512, LONG).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BudgetExhausted);
        thread::scope(|scope| {
            let same = scope.spawn(|| rig.pool.alloc_timeout::<u8>(256, LONG).map(drop));
            eventually("it waits", || rig.pool.stats().waiting == 1);
            all.pop();
            same.join().unwrap().unwrap();
        });
        rig.assert_no_misuse();
    });
}
