//! The slots of the C interface's tables of handles: calls that use an object while others free it.

#[path = "../../src/capi/table/home.rs"]
mod home;
#[path = "../../src/capi/table/inside.rs"]
mod inside;
#[path = "../../src/capi/table/records.rs"]
mod records;
#[path = "../../src/capi/table/slot.rs"]
mod slot;

/// Models of late calls.
mod late;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;

use self::home::AtHome;
use self::records::{Name, Place, Record, Records};
use self::slot::{ALONE, Access, Freed, Miss, NOBODY, SHARED, Slot};
use crate::explore;

/// The object of a handle: calls read it and its drop writes it, so the two must not overlap.
struct Object {
    number: UnsafeCell<usize>,
    drops: Arc<AtomicUsize>,
}

// SAFETY: the models test who may access the number, and the model checker checks it.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn value(&self) -> usize {
        // SAFETY: the model checker reports a write at the same time.
        self.number.with(|number| unsafe { *number })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the model checker reports any other access at the same time.
        self.number.with_mut(|number| unsafe { *number = usize::MAX });
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// How a table counts calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// Many threads use an object at once.
    Shared,
    /// The thread that fills a slot is at its home.
    AtHome,
    /// The thread that fills a slot is not at its home.
    Counted,
}

/// A table of one slot.
struct Table {
    slot: Slot<Object>,
    records: Records,
    calls: Calls,
    /// Replaces the stacks of vacant slots.
    vacant: Mutex<bool>,
    drops: Arc<AtomicUsize>,
}

/// A thread that uses the table.
#[derive(Clone, Copy)]
struct User<'a> {
    table: &'a Table,
    here: &'static Record,
}

/// A call inside the object.
struct Inside<'a> {
    user: User<'a>,
    generation: u32,
    access: Access,
    place: Option<Place>,
}

fn name(generation: u32) -> Name {
    Name::new(1 << 56 | u64::from(generation) << 32)
}

impl Table {
    fn new(calls: Calls) -> Arc<Table> {
        let (slot, records) = (Slot::new(), Records::new());
        let (vacant, drops) = (Mutex::new(true), Arc::default());
        Arc::new(Table { slot, records, calls, vacant, drops })
    }

    /// For the calling thread, which calls this once.
    fn user(&self) -> User<'_> {
        User { table: self, here: self.records.claim() }
    }

    fn dropped(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }
}

impl<'a> User<'a> {
    /// None if the slot is not vacant.
    fn insert(self, number: usize) -> Option<u32> {
        let table = self.table;
        if !std::mem::take(&mut *table.vacant.lock().unwrap()) {
            return None;
        }
        let home = if table.calls == Calls::AtHome { self.here.home_of_new() } else { NOBODY };
        let object = Object { number: UnsafeCell::new(number), drops: table.drops.clone() };
        // SAFETY: the slot is vacant, and was taken from the stack.
        let word = unsafe { table.slot.fill(ManuallyDrop::new(object), [number, number], home) };
        Some((word >> 32) as u32)
    }

    fn enter_as(self, generation: u32, access: Access) -> Result<Inside<'a>, Miss> {
        let Table { slot, records, calls, .. } = self.table;
        let (name, here) = (name(generation), Some(self.here));
        let entered = if *calls == Calls::Shared {
            inside::enter(slot, generation, name, here)
        } else {
            home::enter(slot, generation, name, access, here, || records)
        };
        match entered {
            Ok(place) => Ok(Inside { user: self, generation, access, place }),
            Err((miss, freed)) => {
                self.finish(generation, freed);
                Err(miss)
            }
        }
    }

    fn enter(self, generation: u32) -> Result<Inside<'a>, Miss> {
        self.enter_as(generation, SHARED)
    }

    fn enter_alone(self, generation: u32) -> Result<Inside<'a>, Miss> {
        self.enter_as(generation, ALONE)
    }

    fn remove(self, generation: u32) -> Result<(), Miss> {
        let Table { slot, records, calls, .. } = self.table;
        let (freed, last) = if *calls == Calls::Shared {
            match inside::free(slot, generation, name(generation), records) {
                Ok(last) => (Ok(()), last),
                Err(miss) => (Err(miss), false),
            }
        } else {
            let (name, here) = (name(generation), Some(self.here));
            match home::free_at_home(slot, generation, name, here) {
                AtHome::Freed => {
                    // SAFETY: the object was taken.
                    unsafe { slot.drop_object(|object| ManuallyDrop::drop(object)) };
                    *self.table.vacant.lock().unwrap() = true;
                    return Ok(());
                }
                other => home::free(slot, generation, name, here, || records, other),
            }
        };
        if last {
            self.end();
        }
        freed
    }

    fn finish(self, generation: u32, freed: Option<Freed>) {
        let Some(freed) = freed else { return };
        let Table { slot, records, calls, .. } = self.table;
        let last = if *calls == Calls::Shared {
            inside::take(slot, freed, name(generation), records)
        } else {
            home::take(slot, freed, name(generation), records)
        };
        if last {
            self.end();
        }
    }

    fn end(self) {
        // SAFETY: the object was taken.
        assert!(unsafe { self.table.slot.vacate(1 << 24) });
        *self.table.vacant.lock().unwrap() = true;
    }
}

impl Inside<'_> {
    /// As the crate's `Alone::take`.
    fn take(self) -> Object {
        let call = ManuallyDrop::new(self);
        let table = call.user.table;
        // SAFETY: the call has the object exclusively, and leaves here.
        unsafe { table.slot.take_alone() };
        if let Some(place) = &call.place {
            place.vacate();
        }
        // SAFETY: taken just before.
        let (object, again) = unsafe { table.slot.empty(1 << 24) };
        assert!(again);
        *table.vacant.lock().unwrap() = true;
        object
    }

    fn number(&self) -> usize {
        // SAFETY: the call is inside.
        self.user.table.slot.with(|object| unsafe { (*object).number.with(|number| *number) })
    }

    fn set(&self, number: usize) {
        // SAFETY: the call has the object exclusively.
        self.user.table.slot.with_mut(|object| unsafe {
            (*object).number.with_mut(|old| *old = number);
        });
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let slot = &self.user.table.slot;
        let freed = inside::leave(slot, self.generation, self.access, &self.place);
        self.user.finish(self.generation, freed);
    }
}

/// The number of switches that the tests explore in a model of three threads. `scripts/soak`
/// explores more.
fn most(calls: Calls) -> usize {
    let more = std::env::var("PINLANE_LOOM_MORE").map_or(0, |more| more.parse().expect("a number"));
    match calls {
        Calls::Shared => 3,
        Calls::AtHome => 1 + more,
        Calls::Counted => 2 + more,
    }
}

fn spawn(table: &Arc<Table>, work: impl FnOnce(User<'_>) + 'static) -> thread::JoinHandle<()> {
    let table = table.clone();
    thread::spawn(move || work(table.user()))
}

/// Two calls and a free at once: a call that got in finds the object, and the object is dropped
/// once, after all have left.
fn used_while_freed(calls: Calls) {
    explore(most(calls), move || {
        let table = Table::new(calls);
        let here = table.user();
        let entry = here.insert(7).unwrap();
        let other = spawn(&table, move |other| {
            if let Ok(inside) = other.enter(entry) {
                assert_eq!(inside.number(), 7);
            }
        });
        let freer = spawn(&table, move |freer| assert_eq!(freer.remove(entry), Ok(())));
        if let Ok(inside) = here.enter(entry) {
            assert_eq!((inside.number(), table.dropped()), (7, 0));
        }
        other.join().unwrap();
        freer.join().unwrap();
        assert_eq!(table.dropped(), 1);
        assert_eq!(here.enter(entry).err(), Some(Miss::Invalid));
    });
}

#[test]
fn a_recorded_object_drops_when_the_last_call_leaves() {
    used_while_freed(Calls::Shared);
}

#[test]
fn an_object_at_home_drops_when_the_last_call_leaves() {
    used_while_freed(Calls::AtHome);
}

#[test]
fn a_counted_object_drops_when_the_last_call_leaves() {
    used_while_freed(Calls::Counted);
}

/// A stale handle is looked up while its slot is freed, filled again, and freed again.
fn stale(calls: Calls) {
    explore(most(calls), move || {
        let table = Table::new(calls);
        let here = table.user();
        let first = here.insert(1).unwrap();
        let other = spawn(&table, move |other| {
            for _ in 0..2 {
                if let Ok(inside) = other.enter(first) {
                    assert_eq!(inside.number(), 1);
                }
                assert!(other.table.slot.notes(first).is_none_or(|notes| notes == [1, 1]));
            }
        });
        assert_eq!(here.remove(first), Ok(()));
        if let Some(second) = here.insert(2) {
            assert_eq!(here.enter(second).map(|it| it.number()), Ok(2));
            assert_eq!(here.remove(second), Ok(()));
        }
        other.join().unwrap();
        assert!(table.slot.notes(first).is_none());
        assert_eq!(here.enter(first).err(), Some(Miss::Invalid));
    });
}

#[test]
fn a_stale_handle_never_reaches_the_slots_next_object() {
    [Calls::Shared, Calls::AtHome, Calls::Counted].into_iter().for_each(stale);
}

/// Of two threads that free one handle, one succeeds.
#[test]
fn a_handle_is_freed_once() {
    for calls in [Calls::Shared, Calls::AtHome, Calls::Counted] {
        explore(3, move || {
            let table = Table::new(calls);
            let here = table.user();
            let entry = here.insert(1).unwrap();
            let results = Arc::new(AtomicUsize::new(0));
            let count = results.clone();
            let other = spawn(&table, move |other| {
                count.fetch_add(other.remove(entry).is_ok().into(), Ordering::Relaxed);
            });
            results.fetch_add(here.remove(entry).is_ok().into(), Ordering::Relaxed);
            other.join().unwrap();
            assert_eq!((results.load(Ordering::Relaxed), table.dropped()), (1, 1));
        });
    }
}

/// A call that has an object exclusively writes to it. Other calls are refused in the meantime, and
/// a free does not wait. `home` says whether the writer is the thread that made the handle.
fn written(calls: Calls, home: bool) {
    explore(most(calls), move || {
        let table = Table::new(calls);
        let here = table.user();
        let entry = here.insert(1).unwrap();
        let write = move |user: User<'_>| {
            if let Ok(inside) = user.enter_alone(entry) {
                inside.set(2);
            }
        };
        let read = move |user: User<'_>| {
            if let Ok(inside) = user.enter(entry) {
                assert!(inside.number() <= 2);
            }
        };
        let freer = spawn(&table, move |freer| assert_eq!(freer.remove(entry), Ok(())));
        let other = spawn(&table, move |other| if home { read(other) } else { write(other) });
        if home {
            write(here)
        } else {
            read(here)
        }
        other.join().unwrap();
        freer.join().unwrap();
        assert_eq!(table.dropped(), 1);
    });
}

#[test]
fn exclusive_use_meets_nobody_when_counted() {
    written(Calls::Counted, true);
}

#[test]
fn exclusive_use_at_home_meets_nobody() {
    written(Calls::AtHome, true);
}

#[test]
fn exclusive_use_of_a_visitor_meets_nobody() {
    written(Calls::AtHome, false);
}

/// A call that has an object exclusively also excludes other calls of its own thread.
#[test]
fn exclusive_use_meets_nobody_on_its_own_thread() {
    for calls in [Calls::AtHome, Calls::Counted] {
        explore(1, move || {
            let table = Table::new(calls);
            let here = table.user();
            let entry = here.insert(1).unwrap();
            let alone = here.enter_alone(entry).expect("no call is inside");
            assert_eq!(here.enter(entry).err(), Some(Miss::Busy));
            assert_eq!(here.enter_alone(entry).err(), Some(Miss::Busy));
            drop(alone);
            let shared = here.enter(entry).expect("no call is inside");
            assert_eq!(here.enter(entry).map(|it| it.number()), Ok(1));
            assert_eq!(here.enter_alone(entry).err(), Some(Miss::Busy));
            drop(shared);
            assert_eq!(here.remove(entry), Ok(()));
        });
    }
}

/// A call that shares an object gets it alone for a time, while the thread at home uses it, and it
/// is freed.
#[test]
fn a_shared_call_that_becomes_exclusive_meets_nobody() {
    explore(most(Calls::AtHome), || {
        let table = Table::new(Calls::AtHome);
        let here = table.user();
        let entry = here.insert(1).unwrap();
        let upgraded = spawn(&table, move |user| {
            let Table { slot, records, .. } = user.table;
            let (name, here) = (name(entry), Some(user.here));
            let records = || records;
            if home::enter_counted(slot, entry, name, SHARED, here, records).is_err() {
                return;
            }
            let mut inside = Inside { user, generation: entry, access: SHARED, place: None };
            if home::upgrade_counted(slot, entry, name, here, records).is_ok() {
                inside.access = ALONE;
                inside.set(2);
                // SAFETY: the slot counts this call.
                unsafe { slot.downgrade() };
                inside.access = SHARED;
                assert_eq!(inside.number(), 2, "it never left");
            } else {
                assert!(inside.number() <= 2);
            }
        });
        if let Ok(inside) = here.enter(entry) {
            assert!(inside.number() <= 2);
        }
        if let Ok(inside) = here.enter_alone(entry) {
            inside.set(3);
        }
        assert_eq!(here.remove(entry), Ok(()));
        upgraded.join().unwrap();
        assert_eq!(table.dropped(), 1);
    });
}

/// Two visitors end a home at once, while its thread is inside and makes it its home again.
#[test]
fn two_visitors_and_the_thread_at_home_exclude_each_other() {
    explore(most(Calls::AtHome), || {
        let table = Table::new(Calls::AtHome);
        let here = table.user();
        let entry = here.insert(1).unwrap();
        let add = move |user: User<'_>| {
            if let Ok(inside) = user.enter_alone(entry) {
                inside.set(inside.number() + 1);
            }
        };
        let visitors = [spawn(&table, add), spawn(&table, add)];
        add(here);
        if here.here.is_away() {
            table.records.come_home(here.here);
        }
        add(here);
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        let sum = here.enter(entry).expect("live").number();
        assert!((2..=5).contains(&sum), "the first to come gets in");
        assert_eq!(here.remove(entry), Ok(()));
    });
}
