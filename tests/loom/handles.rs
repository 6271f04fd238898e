//! The slots of the C interface's tables of handles: calls that use an object while others free it.

#[path = "../../src/capi/table/inside.rs"]
mod inside;
#[path = "../../src/capi/table/slot.rs"]
mod slot;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;

use self::inside::{Record, Records, Way};
use self::slot::{Freed, Miss, Slot};

/// What a handle stands for: read by calls, written by its drop, so that the two must not meet.
struct Object {
    number: UnsafeCell<usize>,
    drops: Arc<AtomicUsize>,
}

// SAFETY: who may touch the number is what the models are about; the model checker watches.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the model checker says if anybody else is there.
        self.number.with_mut(|number| unsafe { *number = usize::MAX });
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A table of one slot.
struct Table {
    slot: Slot<Object>,
    records: Records,
    shared: bool,
    /// Stands for the stacks of vacant slots.
    vacant: Mutex<bool>,
    drops: Arc<AtomicUsize>,
}

/// A call inside the object, as the crate's `Inside`.
struct Inside<'a>(&'a Table, Way);

impl Table {
    fn new(shared: bool) -> Arc<Table> {
        let (slot, records) = (Slot::new(), Records::new());
        let (vacant, drops) = (Mutex::new(true), Arc::default());
        Arc::new(Table { slot, records, shared, vacant, drops })
    }

    /// None if the slot is not vacant.
    fn insert(&self, number: usize) -> Option<u32> {
        if !std::mem::take(&mut *self.vacant.lock().unwrap()) {
            return None;
        }
        let object = Object { number: UnsafeCell::new(number), drops: self.drops.clone() };
        // SAFETY: the slot is vacant, and was taken from the stack.
        Some(unsafe { self.slot.fill(object, [number, number]) })
    }

    fn record(&self) -> Option<&'static Record> {
        self.shared.then(|| self.records.claim())
    }

    fn enter(&self, generation: u32, record: Option<&'static Record>) -> Result<Inside<'_>, Miss> {
        match inside::enter(&self.slot, generation, record) {
            Ok(way) => Ok(Inside(self, way)),
            Err((miss, freed)) => {
                self.finish(freed);
                Err(miss)
            }
        }
    }

    fn remove(&self, generation: u32) -> Result<(), Miss> {
        // SAFETY: records protect slots of shared tables only.
        let idle = if self.shared { None } else { unsafe { self.slot.free_idle(generation) } };
        match idle {
            Some(object) => self.end(object),
            None => {
                self.slot.free(generation)?;
                self.finish(self.slot.freed());
            }
        }
        Ok(())
    }

    fn finish(&self, freed: Option<Freed>) {
        let records = self.shared.then_some(&self.records);
        // SAFETY: records protect slots of shared tables only.
        let object = freed.and_then(|freed| unsafe { inside::take(&self.slot, freed, records) });
        object.into_iter().for_each(|object| self.end(object));
    }

    fn end(&self, object: Object) {
        // SAFETY: the object was taken.
        assert!(unsafe { self.slot.vacate(1 << 24) });
        *self.vacant.lock().unwrap() = true;
        drop(object);
    }

    fn dropped(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }
}

impl Inside<'_> {
    fn number(&self) -> usize {
        // SAFETY: the call is inside.
        self.0.slot.with(|object| unsafe { (*object).number.with(|number| *number) })
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.finish(inside::leave(&self.0.slot, &self.1));
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn spawn(table: &Arc<Table>, work: impl FnOnce(&Table) + 'static) -> thread::JoinHandle<()> {
    let table = table.clone();
    thread::spawn(move || work(&table))
}

/// Two calls and a free at once: whoever got in finds the object, and it drops once, after all have
/// left.
fn used_while_freed(shared: bool) {
    explore(move || {
        let table = Table::new(shared);
        let entry = table.insert(7).unwrap();
        let other = spawn(&table, move |table| {
            if let Ok(inside) = table.enter(entry, table.record()) {
                assert_eq!(inside.number(), 7);
            }
        });
        let freer = spawn(&table, move |table| assert_eq!(table.remove(entry), Ok(())));
        if let Ok(inside) = table.enter(entry, table.record()) {
            assert_eq!((inside.number(), table.dropped()), (7, 0));
        }
        other.join().unwrap();
        freer.join().unwrap();
        assert_eq!(table.dropped(), 1);
        assert_eq!(table.enter(entry, table.record()).err(), Some(Miss::Invalid));
    });
}

#[test]
fn a_recorded_object_drops_when_the_last_call_leaves() {
    used_while_freed(true);
}

#[test]
fn a_counted_object_drops_when_the_last_call_leaves() {
    used_while_freed(false);
}

/// A stale handle is looked up while its slot is freed, filled anew, and freed again.
#[test]
fn a_stale_handle_never_reaches_the_slots_next_object() {
    for shared in [false, true] {
        explore(move || {
            let table = Table::new(shared);
            let first = table.insert(1).unwrap();
            let other = spawn(&table, move |table| {
                let record = table.record();
                for _ in 0..2 {
                    if let Ok(inside) = table.enter(first, record) {
                        assert_eq!(inside.number(), 1);
                    }
                    assert!(table.slot.notes(first).is_none_or(|notes| notes == [1, 1]));
                }
            });
            assert_eq!(table.remove(first), Ok(()));
            if let Some(second) = table.insert(2) {
                assert_eq!(table.enter(second, table.record()).map(|it| it.number()), Ok(2));
                assert_eq!(table.remove(second), Ok(()));
            }
            other.join().unwrap();
            assert!(table.slot.notes(first).is_none());
            assert_eq!(table.enter(first, table.record()).err(), Some(Miss::Invalid));
        });
    }
}

/// Of two threads that free one handle, one does.
#[test]
fn a_handle_is_freed_once() {
    for shared in [false, true] {
        explore(move || {
            let table = Table::new(shared);
            let entry = table.insert(1).unwrap();
            let results = Arc::new(AtomicUsize::new(0));
            let count = results.clone();
            let other = spawn(&table, move |table| {
                count.fetch_add(table.remove(entry).is_ok().into(), Ordering::Relaxed);
            });
            results.fetch_add(table.remove(entry).is_ok().into(), Ordering::Relaxed);
            other.join().unwrap();
            assert_eq!((results.load(Ordering::Relaxed), table.dropped()), (1, 1));
        });
    }
}

/// Who has an object alone writes to it; others are refused meanwhile, and a free waits for nobody.
#[test]
fn exclusive_use_meets_nobody() {
    explore(|| {
        let table = Table::new(false);
        let entry = table.insert(1).unwrap();
        let writer = spawn(&table, move |table| {
            if table.slot.enter_exclusive(entry).is_ok() {
                // SAFETY: this thread has it alone.
                table.slot.with_mut(|object| unsafe {
                    (*object).number.with_mut(|number| *number = 2);
                });
                let freed = table.slot.leave_exclusive().then(|| table.slot.freed()).flatten();
                table.finish(freed);
            }
        });
        let freer = spawn(&table, move |table| assert_eq!(table.remove(entry), Ok(())));
        if let Ok(inside) = table.enter(entry, None) {
            assert!(inside.number() <= 2);
        }
        writer.join().unwrap();
        freer.join().unwrap();
        assert_eq!(table.dropped(), 1);
    });
}
