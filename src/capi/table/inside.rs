//! Calls that use an object without being counted: for objects that many threads use at once.
//!
//! A count beside the object would be a cache line that all threads write. Instead each thread has
//! a *record* of the slots that it is inside. Only the thread writes it. A call that frees an
//! object reads all records.
//!
//! ```text
//!   a call                                  a call that frees
//!     place = slot                            word = freed
//!     light fence                             heavy fence
//!     live? go on; else leave                 does a place name the slot? then its thread takes
//!     ...                                       the object; else this call takes it
//!     place = null (release)
//!     light fence
//!     freed? then as a call that frees, from the fence on
//! ```
//!
//! # Invariants
//!
//! * Either a call sees that the slot was freed, or the call that frees sees the place: a fence
//!   lies between the store and the load of each side (see
//!   [`asymmetric`](crate::sync::asymmetric)). The same holds between a call that leaves and one
//!   that frees. So at least one of them takes the object, and
//!   [`Slot::take`](super::slot::Slot::take) lets only one.
//! * A record is never freed. A thread that ends leaves its record to one that begins.

use std::ptr;

use super::slot::{Freed, Miss, Slot};
use crate::sync::asymmetric::{self, Fences};
use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// How many slots a record has room for: more than one call names. Further ones are counted.
const PLACES: usize = 4;

/// All records of the process.
pub struct Records {
    newest: AtomicPtr<Record>,
    fences: Fences,
}

#[repr(align(128))]
pub struct Record {
    places: [AtomicPtr<()>; PLACES],
    fences: Fences,
    /// Whether a thread has it.
    taken: AtomicBool,
    older: *const Record,
}

// SAFETY: `older` never changes, and what it points to is never freed.
unsafe impl Send for Record {}
// SAFETY: as above; the rest is atomic.
unsafe impl Sync for Record {}

/// The part of a record that says: the thread is inside a slot.
struct Place {
    place: &'static AtomicPtr<()>,
    fences: Fences,
}

impl Records {
    pub fn new() -> Self {
        Records { newest: AtomicPtr::new(ptr::null_mut()), fences: asymmetric::fences() }
    }

    /// A record for the calling thread, until it [gives it back](Record::give_back).
    pub fn claim(&self) -> &'static Record {
        let unused = |record: &&Record| {
            let (set, fail) = (Ordering::Acquire, Ordering::Relaxed);
            !record.taken.load(Ordering::Relaxed)
                && record.taken.compare_exchange(false, true, set, fail).is_ok()
        };
        if let Some(record) = self.all().find(unused) {
            return record;
        }
        let record = Box::leak(Box::new(Record {
            places: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            fences: self.fences,
            taken: AtomicBool::new(true),
            older: ptr::null(),
        }));
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            record.older = newest;
            let (set, fail) = (Ordering::Release, Ordering::Relaxed);
            match self.newest.compare_exchange_weak(newest, record, set, fail) {
                Ok(_) => return record,
                Err(now) => newest = now,
            }
        }
    }

    /// Whether a thread may be inside `slot`, which has been freed. Whatever threads did that have
    /// left happens before this returns.
    fn protect(&self, slot: *const ()) -> bool {
        self.fences.heavy();
        let names = |place: &AtomicPtr<()>| ptr::eq(place.load(Ordering::Acquire), slot);
        self.all().any(|record| record.places.iter().any(names))
    }

    fn all(&self) -> impl Iterator<Item = &'static Record> {
        // SAFETY: the list holds records, which are never freed.
        let newest = unsafe { self.newest.load(Ordering::Acquire).cast_const().as_ref() };
        // SAFETY: as above.
        std::iter::successors(newest, |record| unsafe { record.older.as_ref() })
    }
}

impl Record {
    /// Says that the calling thread, which has this record, is about to enter `slot`. `None` if the
    /// record is full.
    #[inline(always)]
    fn announce(&'static self, slot: *const ()) -> Option<Place> {
        let place = self.places.iter().find(|place| place.load(Ordering::Relaxed).is_null())?;
        place.store(slot.cast_mut(), Ordering::Relaxed);
        self.fences.light();
        Some(Place { place, fences: self.fences })
    }

    /// Leaves the record to another thread. The calling thread is inside nothing.
    pub fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

/// How a call is inside a slot: in its thread's record, or counted.
pub struct Way(Option<Place>);

/// Lets the call share the object of a slot until it [leaves](leave). `record` is the calling
/// thread's. If this fails with a [`Freed`], the call must try to [take](take) the object, as one
/// that leaves.
#[inline(always)]
pub fn enter<T>(
    slot: &Slot<T>,
    generation: u32,
    record: Option<&'static Record>,
) -> Result<Way, (Miss, Option<Freed>)> {
    let Some(place) = record.and_then(|record| record.announce(address(slot))) else {
        return slot.enter(generation).map(|()| Way(None)).map_err(|miss| (miss, None));
    };
    let way = Way(Some(place));
    if slot.is_live(generation) { Ok(way) } else { Err((Miss::Invalid, leave(slot, &way))) }
}

/// Ends a shared use. If the slot has been freed, the caller must try to [take](take) the object.
#[inline(always)]
#[must_use]
pub fn leave<T>(slot: &Slot<T>, way: &Way) -> Option<Freed> {
    match &way.0 {
        Some(Place { place, fences }) => {
            place.store(ptr::null_mut(), Ordering::Release);
            fences.light();
            slot.freed()
        }
        None if slot.leave() => slot.freed(),
        None => None,
    }
}

/// The object of a slot that was freed, unless a call is inside or has taken it. `records` are
/// those that may protect the slot.
///
/// # Safety
///
/// * Without `records`, no call ever [enters](enter) the slot with a record.
pub unsafe fn take<T>(slot: &Slot<T>, freed: Freed, records: Option<&Records>) -> Option<T> {
    if records.is_some_and(|records| records.protect(address(slot))) {
        return None;
    }
    // SAFETY: no record protects the slot since `freed`: `protect` has looked at them after it, or
    // there are none, by the precondition.
    unsafe { slot.take(freed) }
}

fn address<T>(slot: &Slot<T>) -> *const () {
    ptr::from_ref(slot).cast()
}
