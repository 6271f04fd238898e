use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::*;

/// A table for each test: threads keep slots by the table's number.
macro_rules! table {
    ($number:literal, $shared:literal) => {{
        static TABLE: Table<Arc<u32>> = Table::new($number, $shared);
        &TABLE
    }};
}

#[test]
fn a_freed_entry_stays_invalid_when_its_slot_is_used_again() {
    let table = table!(16, false);
    let first = table.insert(Arc::new(1), [11, 0]);
    assert_eq!((**table.enter(first).expect("live"), table.notes(first)), (1, Ok([11, 0])));
    table.remove(first).expect("live");
    let second = table.insert(Arc::new(2), [22, 0]);
    assert_eq!((first.index, first.generation + 1), (second.index, second.generation));
    assert_eq!(table.enter(first).err(), Some(Miss::Invalid));
    assert_eq!(table.enter_exclusive(first).err(), Some(Miss::Invalid));
    assert_eq!(table.remove(first), Err(Miss::Invalid));
    assert_eq!((table.notes(first), table.notes(second)), (Err(Miss::Invalid), Ok([22, 0])));
    let never = Entry { index: u32::MAX, generation: 0 };
    assert_eq!(table.enter(never).err(), Some(Miss::Invalid));
}

#[test]
fn a_slot_whose_generations_are_used_up_is_retired() {
    let table = table!(17, false);
    let entry = table.insert(Arc::new(0), [0, 0]);
    table.remove(entry).expect("live");
    table.slot(entry.index).expect("made").skip_to(GENERATIONS - 1);
    let last = table.insert(Arc::new(1), [0, 0]);
    assert_eq!((last.index, last.generation), (entry.index, GENERATIONS - 1));
    table.remove(last).expect("live");
    assert_ne!(table.insert(Arc::new(2), [0, 0]).index, entry.index);
    assert_eq!(table.enter(last).err(), Some(Miss::Invalid));
}

fn dropped_by_the_last_call(table: &'static Table<Arc<u32>>) {
    let object = Arc::new(7);
    let entry = table.insert(object.clone(), [0, 0]);
    let inside = table.enter(entry).expect("live");
    // More at once than a thread has places for.
    let others: Vec<_> = (0..9).map(|_| table.enter(entry).expect("live")).collect();
    std::thread::scope(|scope| {
        let freed = scope.spawn(|| (table.remove(entry), table.remove(entry)));
        assert_eq!(freed.join().expect("no panic"), (Ok(()), Err(Miss::Invalid)));
    });
    assert_eq!(table.enter(entry).err(), Some(Miss::Invalid));
    drop(others);
    assert_eq!((**inside, Arc::strong_count(&object)), (7, 2));
    drop(inside);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn an_object_drops_when_the_last_call_leaves_it() {
    dropped_by_the_last_call(table!(18, false));
    dropped_by_the_last_call(table!(19, true));
}

#[test]
fn exclusive_use_keeps_others_out_and_outlives_a_free() {
    let table = table!(20, false);
    let object = Arc::new(7);
    let entry = table.insert(object.clone(), [0, 0]);
    let mut alone = table.enter_exclusive(entry).expect("nobody else");
    assert_eq!(table.enter(entry).err(), Some(Miss::Busy));
    assert_eq!(table.remove(entry), Ok(()));
    *alone = Arc::new(8);
    assert_eq!((Arc::strong_count(&object), **alone), (1, 8));
    alone.remove();
    assert_eq!(table.enter_exclusive(entry).err(), Some(Miss::Invalid));
}

/// When a thread has ended, other threads get the slots that it kept.
#[test]
fn threads_that_end_leave_their_slots_to_others() {
    let table = table!(21, true);
    let highest = AtomicU32::new(0);
    for _ in 0..50 {
        std::thread::scope(|scope| {
            let work = || {
                let entries: Vec<_> = (0..100).map(|n| table.insert(Arc::new(n), [0, 0])).collect();
                for entry in entries {
                    highest.fetch_max(entry.index, Ordering::Relaxed);
                    drop(table.enter(entry).expect("live"));
                    table.remove(entry).expect("live");
                }
            };
            let threads = [(); 2].map(|()| scope.spawn(work));
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
    assert!(highest.into_inner() < 1000, "slots are lost");
}

/// 16 threads use and free `PINLANE_HANDLES` handles, eight at a time. Of each handle one free
/// succeeds, a call that gets in finds the right object, none gets in afterwards, and the object
/// drops once.
fn raced(table: &'static Table<Arc<u32>>) {
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
            let entry = Entry {
                index: at[0].load(Ordering::Relaxed),
                generation: at[1].load(Ordering::Relaxed),
            };
            match (random >> 8) % 8 {
                0 => {
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    let entry = table.insert(Arc::new(number), [number as usize, 0]);
                    at[0].store(entry.index, Ordering::Relaxed);
                    at[1].store(entry.generation, Ordering::Relaxed);
                }
                1 => drop(table.remove(entry).map(|()| freed.fetch_add(1, Ordering::Relaxed))),
                2 if !table.shared => {
                    if let Ok(alone) = table.enter_exclusive(entry) {
                        assert_eq!(Arc::strong_count(&alone), 1);
                    }
                }
                3 => drop(table.notes(entry)),
                _ => {
                    if let Ok(inside) = table.enter(entry) {
                        let number = **inside as usize;
                        // An error says that it was freed meanwhile.
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
fn rule_16_handles_raced_by_threads_counted() {
    raced(table!(22, false));
}

#[test]
fn rule_16_handles_raced_by_threads_recorded() {
    static TABLE: Table<Arc<u32>> = Table::new(23, true);
    raced(&TABLE);
}
