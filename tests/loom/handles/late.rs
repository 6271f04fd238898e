//! Late calls: their handle is stale, their slot has another object, or their thread no longer has
//! its home or its record.

use super::*;

/// The thread at home makes a slow call with a stale handle. Its slot has become another thread's
/// home, whose calls it must not disturb.
#[test]
fn a_late_call_at_home_says_nothing_about_the_slots_next_object() {
    for access in [SHARED, ALONE] {
        explore(3, move || {
            let table = Table::new(Calls::AtHome);
            let here = table.user();
            let first = here.insert(1).unwrap();
            let other = spawn(&table, move |other| {
                assert_eq!(other.remove(first), Ok(()));
                let Some(second) = other.insert(2) else { return };
                let inside = other.enter_alone(second).expect("no other thread knows the handle");
                inside.set(3);
                drop(inside);
                assert_eq!(other.remove(second), Ok(()));
            });
            if let Ok(inside) = here.enter_as(first, access) {
                assert_eq!(inside.number(), 1);
            }
            other.join().unwrap();
            assert!(matches!(table.dropped(), 1 | 2));
        });
    }
}

/// A call leaves an object, and checks late whether it was freed. By then the slot has another
/// object, which was freed too while a call is inside.
#[test]
fn a_late_call_takes_no_later_object_of_its_slot() {
    for calls in [Calls::Shared, Calls::AtHome, Calls::Counted] {
        explore(3, move || {
            let table = Table::new(calls);
            let here = table.user();
            let first = here.insert(1).unwrap();
            let other = spawn(&table, move |other| {
                assert_eq!(other.remove(first), Ok(()));
                let Some(second) = other.insert(2) else { return };
                let inside = other.enter(second).expect("live");
                assert_eq!(other.remove(second), Ok(()));
                assert_eq!(inside.number(), 2);
            });
            if let Ok(inside) = here.enter(first) {
                assert_eq!(inside.number(), 1);
            }
            other.join().unwrap();
        });
    }
}

/// A visitor makes a slow call with a stale handle. Its slot has another object, and a call is
/// inside at that object's home. `same` says whether the home is that of the first object.
fn late_visitor(same: bool) {
    explore(3, move || {
        let table = Table::new(Calls::AtHome);
        let here = table.user();
        let first = here.insert(1).unwrap();
        let again = move |user: User<'_>| {
            assert_eq!(user.remove(first), Ok(()));
            let Some(second) = user.insert(2) else { return };
            if let Ok(inside) = user.enter(second) {
                assert!(matches!(inside.number(), 2 | 3));
            }
        };
        let visit = move |user: User<'_>| {
            drop(user.enter(first));
            // A guessed handle, valid or not.
            if let Ok(inside) = user.enter_alone(first + 1) {
                inside.set(3);
            }
        };
        let other = spawn(&table, move |other| if same { visit(other) } else { again(other) });
        if same {
            again(here)
        } else {
            visit(here)
        }
        other.join().unwrap();
    });
}

#[test]
fn a_late_visitor_leaves_the_next_object_in_the_same_home() {
    late_visitor(true);
}

#[test]
fn a_late_visitor_leaves_the_next_object_in_its_home() {
    late_visitor(false);
}

/// The home ends while its thread makes a handle. Afterwards the slot has no home.
#[test]
fn a_thread_that_is_away_is_at_home_nowhere() {
    explore(3, || {
        let table = Table::new(Calls::AtHome);
        let here = table.user();
        let token = here.here.home();
        let visitor = spawn(&table, move |visitor| visitor.table.records.disturb(token));
        let entry = here.insert(1).unwrap();
        visitor.join().unwrap();
        let other = table.user();
        table.records.disturb(other.here.home());
        let inside = here.enter_alone(entry).expect("no other call is inside");
        assert_eq!(other.enter_alone(entry).err(), Some(Miss::Busy));
        drop(inside);
    });
}

/// A thread guesses a handle of a slot that was at its home, while another thread makes that
/// handle.
#[test]
fn a_guessed_handle_is_at_home_only_with_its_maker() {
    explore(3, || {
        let table = Table::new(Calls::AtHome);
        let here = table.user();
        let first = here.insert(1).unwrap();
        assert_eq!(here.remove(first), Ok(()));
        let other = spawn(&table, |other| {
            let second = other.insert(2).unwrap();
            if let Ok(inside) = other.enter_alone(second) {
                inside.set(3);
            }
        });
        if let Ok(inside) = here.enter(first + 1) {
            assert!(matches!(inside.number(), 2 | 3));
        }
        other.join().unwrap();
    });
}

/// The thread of a home ends. It makes a last call without its record, which a new thread may have
/// by then.
#[test]
fn a_record_that_changes_hands_lets_nobody_in() {
    explore(3, || {
        let table = Table::new(Calls::AtHome);
        let here = table.user();
        let entry = here.insert(1).unwrap();
        let other = spawn(&table, move |other| {
            if let Ok(inside) = other.enter_alone(entry) {
                inside.set(2);
            }
            let _ = other.remove(entry);
        });
        here.here.give_back();
        let Table { slot, records, .. } = &*table;
        let entered = home::enter_counted(slot, entry, name(entry), ALONE, None, || records);
        if entered.is_ok() {
            let (user, generation, access) = (here, entry, ALONE);
            Inside { user, generation, access, place: None }.set(3);
        }
        other.join().unwrap();
        assert_eq!(table.dropped(), 1);
    });
}

/// A call that has an object exclusively ends its life, while another call uses and frees it. The
/// object is taken once.
#[test]
fn an_object_is_taken_out_or_freed() {
    for calls in [Calls::AtHome, Calls::Counted] {
        for home in [true, false] {
            explore(3, move || {
                let table = Table::new(calls);
                let here = table.user();
                let entry = here.insert(1).unwrap();
                let take = move |user: User<'_>| {
                    if let Ok(inside) = user.enter_alone(entry) {
                        inside.set(2);
                        assert_eq!(inside.take().value(), 2);
                    }
                };
                let free = move |user: User<'_>| {
                    if let Ok(inside) = user.enter(entry) {
                        assert_eq!(inside.number(), 1);
                    }
                    let _ = user.remove(entry);
                };
                let other = spawn(&table, move |user| if home { free(user) } else { take(user) });
                if home {
                    take(here)
                } else {
                    free(here)
                }
                other.join().unwrap();
                assert_eq!(table.dropped(), 1);
                assert_eq!(here.enter(entry).err(), Some(Miss::Invalid));
            });
        }
    }
}
