use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::*;

/// A kind of objects for each test: threads keep slots by the table's number.
macro_rules! kind {
    ($number:literal, $shared:literal) => {{
        enum Test {}
        impl Kind for Test {
            type Object = Arc<u32>;
            const NAME: &'static str = "test";
            const NUMBER: u8 = $number;
            const SHARED: bool = $shared;
            fn table() -> &'static Table<Self> {
                static TABLE: Table<Test> = Table::new();
                &TABLE
            }
        }
        Test::table()
    }};
}

fn drop_object<K: Kind>(object: &mut ManuallyDrop<K::Object>) {
    // SAFETY: called once, for an object that is not used afterwards.
    unsafe { ManuallyDrop::drop(object) }
}

impl<K: Kind<Object = Arc<u32>>> Table<K> {
    fn add(&'static self, object: Arc<u32>, note: usize) -> Entry {
        self.insert(Caller::this(), ManuallyDrop::new(object), [note, 0])
    }

    fn share(&'static self, entry: Entry) -> Result<Inside<K>, Miss> {
        self.enter(Caller::this(), entry)
    }

    fn have(&'static self, entry: Entry) -> Result<Alone<K>, Miss> {
        self.enter(Caller::this(), entry)
    }

    fn remove(&'static self, entry: Entry) -> Result<(), Miss> {
        self.remove_if(Caller::this(), entry, |_| true, drop_object::<K>)
            .map(|removed| assert!(removed))
    }
}

/// An entry of that table.
fn entry_of<K: Kind>(_: &'static Table<K>, generation: u32, index: u32) -> Entry {
    Entry::new::<K>(u64::from(generation) << 32, index)
}

#[test]
fn a_freed_entry_stays_invalid_when_its_slot_is_used_again() {
    let table = kind!(16, false);
    let first = table.add(Arc::new(1), 11);
    assert_eq!((**table.share(first).expect("live"), table.notes(first)), (1, Ok([11, 0])));
    table.remove(first).expect("live");
    let second = table.add(Arc::new(2), 22);
    let next = (first.index(), first.generation() + 1);
    assert_eq!(next, (second.index(), second.generation()));
    assert_eq!(table.share(first).err(), Some(Miss::Invalid));
    assert_eq!(table.have(first).err(), Some(Miss::Invalid));
    assert_eq!(table.remove(first), Err(Miss::Invalid));
    assert_eq!((table.notes(first), table.notes(second)), (Err(Miss::Invalid), Ok([22, 0])));
    let never = entry_of(table, 0, u32::MAX);
    assert_eq!(table.share(never).err(), Some(Miss::Invalid));
}

#[test]
fn a_slot_whose_generations_are_used_up_is_retired() {
    let table = kind!(17, false);
    let entry = table.add(Arc::new(0), 0);
    table.remove(entry).expect("live");
    table.slot(entry.index()).expect("made").skip_to(GENERATIONS - 1);
    let last = table.add(Arc::new(1), 0);
    assert_eq!((last.index(), last.generation()), (entry.index(), GENERATIONS - 1));
    table.remove(last).expect("live");
    assert_ne!(table.add(Arc::new(2), 0).index(), entry.index());
    assert_eq!(table.share(last).err(), Some(Miss::Invalid));
}

fn dropped_by_the_last_call<K: Kind<Object = Arc<u32>>>(table: &'static Table<K>) {
    let object = Arc::new(7);
    let entry = table.add(object.clone(), 0);
    let inside = table.share(entry).expect("live");
    // More at once than a thread has places for.
    let others: Vec<_> = (0..9).map(|_| table.share(entry).expect("live")).collect();
    std::thread::scope(|scope| {
        let freed = scope.spawn(|| (table.remove(entry), table.remove(entry)));
        assert_eq!(freed.join().expect("no panic"), (Ok(()), Err(Miss::Invalid)));
    });
    assert_eq!(table.share(entry).err(), Some(Miss::Invalid));
    drop(others);
    assert_eq!((**inside, Arc::strong_count(&object)), (7, 2));
    drop(inside);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn an_object_drops_when_the_last_call_leaves_it() {
    dropped_by_the_last_call(kind!(18, false));
    dropped_by_the_last_call(kind!(19, true));
}

/// An object that was freed while a call is inside stays, even if stale handles of its slot are
/// used.
fn kept_from_stale_handles<K: Kind<Object = Arc<u32>>>(table: &'static Table<K>) {
    let stale = table.add(Arc::new(1), 0);
    table.remove(stale).expect("live");
    let object = Arc::new(2);
    let entry = table.add(object.clone(), 0);
    assert_eq!(stale.index(), entry.index());
    let inside = table.share(entry).expect("live");
    table.remove(entry).expect("live");
    assert_eq!(table.share(stale).err(), Some(Miss::Invalid));
    assert_eq!(table.remove(stale), Err(Miss::Invalid));
    let elsewhere = std::thread::spawn(move || table.share(stale).err());
    assert_eq!(elsewhere.join().expect("no panic"), Some(Miss::Invalid));
    assert_eq!((Arc::strong_count(&object), table.live()), (2, 0));
    drop(inside);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn a_stale_handle_ends_no_object_that_a_call_is_inside() {
    kept_from_stale_handles(kind!(25, false));
    kept_from_stale_handles(kind!(26, true));
}

#[test]
fn exclusive_use_keeps_others_out_and_outlives_a_free() {
    let table = kind!(20, false);
    let object = Arc::new(7);
    let entry = table.add(object.clone(), 0);
    let mut alone = table.have(entry).expect("no other call");
    assert_eq!(table.share(entry).err(), Some(Miss::Busy));
    assert_eq!(table.remove(entry), Ok(()));
    *alone = Arc::new(8);
    assert_eq!((Arc::strong_count(&object), **alone), (1, 8));
    alone.remove();
    assert_eq!(table.have(entry).err(), Some(Miss::Invalid));
}

#[test]
fn a_shared_call_becomes_exclusive_if_it_is_the_only_one() {
    let table = kind!(29, false);
    let entry = table.add(Arc::new(7), 0);
    let counted = table.enter_counted::<true>(Caller::this(), entry).expect("live");
    let other = table.share(entry).expect("both share it");
    let (counted, miss) = counted.upgrade().err().expect("there is another call");
    assert_eq!(miss, Miss::Busy);
    drop(other);
    let mut alone = counted.upgrade().ok().expect("the only call");
    *alone = Arc::new(8);
    assert_eq!(table.share(entry).err(), Some(Miss::Busy));
    let counted = alone.downgrade();
    assert_eq!(table.have(entry).err(), Some(Miss::Busy));
    assert_eq!(**table.share(entry).expect("both share it again"), 8);
    drop(counted);
    drop(table.have(entry).expect("nobody is inside"));
    let counted = table.enter_counted::<true>(Caller::this(), entry).expect("nobody is inside");
    let counted = counted.upgrade().ok().expect("the only call");
    assert_eq!(table.remove(entry), Ok(()));
    let counted = counted.downgrade(); // the object stays until it leaves
    let (counted, miss) = counted.upgrade().err().expect("the entry was freed");
    assert_eq!((miss, **counted), (Miss::Invalid, 8));
}

/// Calls of the thread that made a handle, before and after another thread has come. The end of its
/// home does not affect handles that it makes later.
#[test]
fn c_rule_13_a_thread_is_at_home_until_another_comes_and_again_later() {
    let table = kind!(28, false);
    let here = || Caller::this().here().expect("the thread is not ending");
    let on_another_thread = |work: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"));
    };
    while here().record.is_away() {
        let entry = table.add(Arc::new(0), 0);
        table.remove(entry).expect("live");
    }
    let first = table.add(Arc::new(1), 0);
    let inside = table.share(first).expect("live");
    assert!(inside.place.is_some(), "at home, nothing is counted");
    on_another_thread(&|| {
        assert_eq!(table.have(first).err(), Some(Miss::Busy));
        assert!(table.share(first).expect("both share it").place.is_none());
    });
    assert!(here().record.is_away() && table.share(first).expect("live").place.is_none());
    assert_eq!(table.have(first).err(), Some(Miss::Busy));
    drop(inside);
    drop(table.have(first).expect("all have left"));

    let away = table.add(Arc::new(2), 0);
    assert!(table.share(away).expect("live").place.is_none());
    while here().record.is_away() {
        let entry = table.add(Arc::new(0), 0);
        table.remove(entry).expect("live");
    }
    let second = table.add(Arc::new(3), 0);
    assert!(table.have(second).expect("live").place.is_some());
    assert!(table.share(first).expect("of the first home").place.is_none());
    on_another_thread(&|| drop(table.share(first).expect("live")));
    assert!(!here().record.is_away(), "no thread came to the second home");
    for entry in [first, away, second] {
        on_another_thread(&|| assert_eq!(table.remove(entry), Ok(())));
        assert_eq!(table.remove(entry), Err(Miss::Invalid));
    }
}

/// Destructors of thread-local variables may run after the thread has given its record back.
#[test]
fn a_thread_that_is_ending_makes_calls_without_its_record() {
    struct Last(Cell<Option<Box<dyn FnOnce()>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.take().expect("set")();
        }
    }
    thread_local!(static LAST: Last = const { Last(Cell::new(None)) });
    let table = kind!(24, false);
    let ended = Arc::new(AtomicU32::new(0));
    let end = ended.clone();
    let thread = std::thread::spawn(move || {
        // Registers its destructor before the record's, so it runs after that.
        LAST.with(|last| last.0.set(None));
        let entry = table.add(Arc::new(1), 0);
        drop(table.share(entry).expect("live"));
        let calls = move || {
            assert!(Caller::this().record().is_none(), "the record was given back before");
            let mut alone = table.have(entry).expect("no other call");
            *alone = Arc::new(2);
            assert_eq!(table.share(entry).err(), Some(Miss::Busy));
            drop(alone);
            let another = table.add(Arc::new(3), 0);
            assert_eq!(**table.share(another).expect("live"), 3);
            assert_eq!((table.remove(another), table.remove(entry)), (Ok(()), Ok(())));
            assert_eq!(table.share(entry).err(), Some(Miss::Invalid));
            end.fetch_add(1, Ordering::Relaxed);
        };
        LAST.with(|last| last.0.set(Some(Box::new(calls))));
    });
    thread.join().expect("no panic");
    assert_eq!((ended.load(Ordering::Relaxed), table.live()), (1, 0));
}

/// When a thread has ended, other threads get the slots that it kept.
#[test]
fn threads_that_end_leave_their_slots_to_others() {
    let table = kind!(21, true);
    let highest = AtomicU32::new(0);
    for _ in 0..50 {
        std::thread::scope(|scope| {
            let work = || {
                let entries: Vec<_> = (0..100).map(|n| table.add(Arc::new(n), 0)).collect();
                for entry in entries {
                    highest.fetch_max(entry.index(), Ordering::Relaxed);
                    drop(table.share(entry).expect("live"));
                    table.remove(entry).expect("live");
                }
            };
            let threads = [(); 2].map(|()| scope.spawn(work));
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
    assert!(highest.into_inner() < 1000, "slots are lost");
}

/// 16 threads use and free `PINLANE_HANDLES` handles, eight at a time. For each handle exactly one
/// free succeeds, a call that gets in finds the right object, none gets in afterwards, and the
/// object drops once.
fn raced<K: Kind<Object = Arc<u32>>>(table: &'static Table<K>) {
    let handles = std::env::var("PINLANE_HANDLES").ok().and_then(|text| text.parse().ok());
    let handles: u32 = handles.unwrap_or(20_000);
    const THREADS: u32 = 16;
    const WINDOW: usize = 8;
    let window: [[AtomicU32; 3]; WINDOW] =
        std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(0)));
    let (made, freed) = (AtomicU32::new(0), AtomicU32::new(0));
    let work = |thread: u32| {
        let mut random = thread.wrapping_mul(0x9e37_79b9) | 1;
        while made.load(Ordering::Relaxed) < handles {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            let at = &window[random as usize % WINDOW];
            // Two reads: entries may be stale, or mixtures that never existed.
            let [index, generation] = [0, 1].map(|part: usize| at[part].load(Ordering::Relaxed));
            let entry = entry_of(table, generation, index);
            match (random >> 8) % 8 {
                0 => {
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    let entry = table.add(Arc::new(number), number as usize);
                    at[0].store(entry.index(), Ordering::Relaxed);
                    at[1].store(entry.generation(), Ordering::Relaxed);
                }
                1 => drop(table.remove(entry).map(|()| freed.fetch_add(1, Ordering::Relaxed))),
                2 if !K::SHARED => {
                    if let Ok(alone) = table.have(entry) {
                        assert_eq!(Arc::strong_count(&alone), 1);
                    }
                }
                3 => drop(table.notes(entry)),
                _ => {
                    if let Ok(inside) = table.share(entry) {
                        let number = **inside as usize;
                        // An error means that it was freed during the test.
                        assert!(table.notes(entry).map_or(true, |notes| notes == [number, 0]));
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    assert!(freed.into_inner() <= made.into_inner());
}

/// Soundness rule 16, from 16 threads.
#[test]
fn rule_16_handles_raced_by_threads_at_home_and_counted() {
    raced(kind!(22, false));
}

#[test]
fn rule_16_handles_raced_by_threads_recorded() {
    raced(kind!(23, true));
}
