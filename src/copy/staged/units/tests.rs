//! Transfers that only count, and fail or panic at a chosen step.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::*;
use crate::copy::staged::layout::{Cursor, DeviceSpan, Entries, Sizes};
use crate::copy::staged::ring::Ring;
use crate::copy::staged::team::{CopyTeam, Workload};
use crate::copy::survey::Sums;
use crate::device::Device;
use crate::error::ErrorKind;
use crate::pool::PinnedPool;
use crate::timeline::Exposure;

const SLOTS: usize = 3;
const UNITS: usize = 5;
const ROUNDS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Unit,
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Error,
    Panic,
}

/// A list of one entry, in units of 1 KiB.
struct OneEntry;

impl Entries for OneEntry {
    fn count(&self) -> usize {
        1
    }
    fn span(&self, _: usize) -> DeviceSpan {
        DeviceSpan { home: 0, address: 0, bytes: 1024 * UNITS, blocks: None }
    }
}

struct Counting<'r> {
    ring: &'r Ring,
    pool: &'r PinnedPool,
    opening: AtomicBool,
    opened: AtomicUsize,
    /// For each round and unit, how often it was done.
    done: Vec<AtomicUsize>,
    finished: AtomicUsize,
    /// Slots that are currently held.
    held: AtomicUsize,
    trouble: Option<(Step, usize, Trouble)>,
    troubled: AtomicBool,
}

impl<'r> Counting<'r> {
    fn new(ring: &'r Ring, pool: &'r PinnedPool, trouble: Option<(Step, usize, Trouble)>) -> Self {
        Counting {
            ring,
            pool,
            opening: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            done: (0..ROUNDS * UNITS).map(|_| AtomicUsize::new(0)).collect(),
            finished: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            trouble,
            troubled: AtomicBool::new(false),
        }
    }

    /// Fails or panics, if that is due at the `nth` such step.
    fn at(&self, step: Step, nth: usize) -> Result<()> {
        match self.trouble {
            Some((where_, when, trouble)) if where_ == step && nth >= when => {
                if self.troubled.swap(true, Ordering::Relaxed) {
                    return Ok(());
                }
                assert_eq!(trouble, Trouble::Error, "expected");
                Err(Error::new(ErrorKind::Busy, "test", "trouble", "none"))
            }
            _ => Ok(()),
        }
    }

    fn give_back(&self, slot: &Slot) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.ring.give_back(slot);
    }
}

impl<'r> Portions<'r> for Counting<'r> {
    fn open(&self) -> Result<Option<&'r Slot>> {
        assert!(!self.opening.swap(true, Ordering::AcqRel), "one at a time");
        let round = self.opened.load(Ordering::Relaxed);
        let result = self.at(Step::Open, round).and_then(|()| {
            if round == ROUNDS {
                return Ok(None);
            }
            let slot = self
                .ring
                .take(self.pool, Exposure::Sealed, true, "a test")?
                .expect("patience is rewarded");
            self.held.fetch_add(1, Ordering::Relaxed);
            // SAFETY: just taken.
            let layout = unsafe { slot.layout_mut() };
            let mut cursor = Cursor::default();
            let sizes = Sizes { piece: 1 << 20, unit: 1024, items: false };
            layout.fill(&mut cursor, &OneEntry, &Sums::default(), sizes);
            layout.number = round as u64;
            self.opened.store(round + 1, Ordering::Relaxed);
            Ok(Some(slot))
        });
        self.opening.store(false, Ordering::Release);
        result
    }

    fn slot(&self, index: usize) -> &'r Slot {
        self.ring.slot(index)
    }

    fn unit(&self, slot: &'r Slot, unit: usize) -> Result<()> {
        // SAFETY: this thread is a worker of the slot.
        let round = unsafe { slot.layout() }.number as usize;
        self.at(Step::Unit, round * UNITS + unit)?;
        self.done[round * UNITS + unit].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self, slot: &'r Slot) -> Result<()> {
        // SAFETY: the last worker.
        let round = unsafe { slot.layout() }.number as usize;
        let units = &self.done[round * UNITS..(round + 1) * UNITS];
        assert!(units.iter().all(|unit| unit.load(Ordering::Relaxed) == 1), "all done, each once");
        let trouble = self.at(Step::Finish, round);
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.give_back(slot);
        trouble
    }

    fn abandon(&self, slot: &'r Slot) {
        self.give_back(slot);
    }
}

fn with_ring(test: impl FnOnce(&Ring, &PinnedPool)) {
    let device = Device::emulated().expect("it always opens");
    let pool = PinnedPool::builder(&device).build().expect("no faults");
    let ring = Ring::new(4096, SLOTS);
    CopyTeam::new().threads(3).install().expect("a small team");
    test(&ring, &pool);
}

#[test]
fn every_unit_is_done_once_and_every_slot_finished() {
    with_ring(|ring, pool| {
        for count in [0, 1, 3, 9].into_iter().cycle().take(200) {
            let portions = Counting::new(ring, pool, None);
            let mut calls = 0;
            run(&portions, helpers(count), &mut || calls += 1).expect("no trouble");
            assert!(portions.done.iter().all(|unit| unit.load(Ordering::Relaxed) == 1));
            assert_eq!(portions.finished.load(Ordering::Relaxed), ROUNDS);
            assert_eq!(portions.held.load(Ordering::Relaxed), 0);
            assert!(calls <= ROUNDS * UNITS);
        }
    });
}

#[test]
fn an_error_ends_the_transfer_and_gives_up_its_slots() {
    with_ring(|ring, pool| {
        for step in [Step::Open, Step::Unit, Step::Finish] {
            for when in [0, 1, 2, 7, 30] {
                for count in [0, 1, 3].into_iter().cycle().take(30) {
                    let portions = Counting::new(ring, pool, Some((step, when, Trouble::Error)));
                    let error =
                        run(&portions, helpers(count), &mut || ()).expect_err("at the chosen step");
                    assert_eq!(error.kind(), ErrorKind::Busy);
                    assert_eq!(portions.held.load(Ordering::Relaxed), 0, "{step:?} {when}");
                    assert!(portions.done.iter().all(|unit| unit.load(Ordering::Relaxed) <= 1));
                }
            }
        }
    });
}

/// A helper fails in the first slot while the caller rests between two units of the second.
struct Resting<'r> {
    counting: Counting<'r>,
    caller: ThreadId,
    /// Whether a helper has come in time. Other tests install teams without threads.
    helped: OnceLock<bool>,
    rests: AtomicBool,
    abandoned: AtomicUsize,
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

impl Resting<'_> {
    fn after_unit(&self) {
        let opened = self.counting.opened.load(Ordering::Relaxed);
        if opened == 2 && self.helped.get() == Some(&true) {
            self.rests.store(true, Ordering::Release);
            wait_until(|| self.abandoned.load(Ordering::Acquire) > 0);
        }
    }
}

impl<'r> Portions<'r> for Resting<'r> {
    fn open(&self) -> Result<Option<&'r Slot>> {
        self.counting.open()
    }

    fn slot(&self, index: usize) -> &'r Slot {
        self.counting.slot(index)
    }

    fn unit(&self, slot: &'r Slot, unit: usize) -> Result<()> {
        if std::thread::current().id() == self.caller {
            let start = Instant::now();
            let is_late = || start.elapsed() > Duration::from_millis(100);
            wait_until(|| self.helped.get().is_some() || is_late());
            self.helped.get_or_init(|| false);
        } else if *self.helped.get_or_init(|| true) {
            wait_until(|| self.rests.load(Ordering::Acquire));
            return Err(Error::new(ErrorKind::Busy, "test", "trouble", "none"));
        }
        self.counting.unit(slot, unit)
    }

    fn finish(&self, slot: &'r Slot) -> Result<()> {
        self.counting.finish(slot)
    }

    fn abandon(&self, slot: &'r Slot) {
        self.counting.abandon(slot);
        self.abandoned.fetch_add(1, Ordering::Release);
    }
}

fn helpers(count: usize) -> Helpers {
    Helpers::of(0, Workload::Copying).at_most(count)
}

#[test]
fn a_slot_that_nobody_works_on_is_given_up() {
    loop {
        let mut helped = false;
        with_ring(|ring, pool| {
            let portions = Resting {
                counting: Counting::new(ring, pool, None),
                caller: std::thread::current().id(),
                helped: OnceLock::new(),
                rests: AtomicBool::new(false),
                abandoned: AtomicUsize::new(0),
            };
            let result = run(&portions, helpers(1), &mut || portions.after_unit());
            helped = portions.helped.into_inner().expect("units were done");
            assert_eq!(result.is_err(), helped);
            assert_eq!(portions.counting.held.into_inner(), 0);
            assert_eq!(portions.abandoned.into_inner(), if helped { 2 } else { 0 });
        });
        if helped {
            return;
        }
    }
}

/// A panic, of this thread or a helper, continues here, and no thread hangs.
#[test]
fn a_panic_ends_the_transfer_and_goes_on() {
    with_ring(|ring, pool| {
        for step in [Step::Open, Step::Unit, Step::Finish] {
            for when in [0, 1, 7, 30] {
                for count in [0, 1, 3] {
                    let portions = Counting::new(ring, pool, Some((step, when, Trouble::Panic)));
                    let ran = catch_unwind(AssertUnwindSafe(|| {
                        run(&portions, helpers(count), &mut || ())
                    }));
                    let panic = ran.expect_err("at the chosen step");
                    let text = panic.downcast_ref::<String>().expect("an assertion");
                    assert!(text.contains("expected"), "{text}");
                    // A step that panicked while it had a slot alone keeps it.
                    let kept = portions.held.load(Ordering::Relaxed);
                    assert_eq!(kept, usize::from(step == Step::Finish), "{step:?} {when}");
                    if kept > 0 {
                        return;
                    }
                }
            }
        }
    });
}
