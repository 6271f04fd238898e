//! Who is inside an object, known per thread: for handles that many threads use at once.
//!
//! A count beside the object would be a cache line that all of them write. So each thread has a *record* of
//! the slots that it is inside, which only it writes; who frees an object looks at all records.
//!
//! ```text
//!   a call                                  who frees
//!     place = slot                            word = freed
//!     light fence                             heavy fence
//!     live? go on; else leave                 a place names the slot? its owner takes the object
//!     ...                                     none: take the object
//!     place = null (release)
//!     light fence
//!     freed? as who frees, from the fence on
//! ```
//!
//! # Invariants
//!
//! * Either a call sees that the slot was freed, or who frees sees its place: between each side's
//!   store and load lies a fence (see [`asymmetric`](crate::sync::asymmetric)). The same holds
//!   between a call that leaves and who frees, so that somebody always takes the object;
//!   [`Slot::take`](super::slot::Slot::take) lets one do it.
//! * A record is never freed. A thread that ends leaves its own to one that begins.

use std::ptr;

use super::slot::{Freed, Miss, Slot};
use crate::sync::asymmetric::{self, Fences};
use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// How many objects a thread is inside at once without counting in them: more than a call names.
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
    /// Some thread has it.
    taken: AtomicBool,
    older: *const Record,
}

// SAFETY: `older` never changes, and what it points to is never freed.
unsafe impl Send for Record {}
// SAFETY: as above; the rest is atomic.
unsafe impl Sync for Record {}

/// What says that a thread is inside a slot.
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

    /// Whether any thread may be inside `slot`, which has been freed. What those did that have left
    /// has happened.
    fn protect(&self, slot: *const ()) -> bool {
        self.fences.heavy();
        let names = |place: &AtomicPtr<()>| ptr::eq(place.load(Ordering::Acquire), slot);
        self.all().any(|record| record.places.iter().any(names))
    }

    fn all(&self) -> impl Iterator<Item = &'static Record> {
        // SAFETY: what the list names is a record, and never freed.
        let newest = unsafe { self.newest.load(Ordering::Acquire).cast_const().as_ref() };
        // SAFETY: as above.
        std::iter::successors(newest, |record| unsafe { record.older.as_ref() })
    }
}

impl Record {
    /// Says that the calling thread, whose record this is, is about to enter `slot`; `None` if it
    /// is inside too many.
    #[inline(always)]
    fn announce(&'static self, slot: *const ()) -> Option<Place> {
        let place = self.places.iter().find(|place| place.load(Ordering::Relaxed).is_null())?;
        place.store(slot.cast_mut(), Ordering::Relaxed);
        self.fences.light();
        Some(Place { place, fences: self.fences })
    }

    /// The thread that has it is inside nothing, and ends.
    pub fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

/// How a call got into a slot: known to its thread, or counted.
pub struct Way(Option<Place>);

/// Lets the calling thread, whose record it is, share the object of a slot until it
/// [leaves](leave). If it cannot, it may have to [take](take) the object, as if it left.
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

/// Ends a shared use; if the slot has been freed, the object is to be [taken](take), if it can be.
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

/// The object of a slot that was freed, unless somebody is inside, or has taken it. `records` are
/// there if any protects slots of this kind.
///
/// # Safety
///
/// * Without `records`, nobody ever [entered](enter) a slot of this kind with a record.
pub unsafe fn take<T>(slot: &Slot<T>, freed: Freed, records: Option<&Records>) -> Option<T> {
    if records.is_some_and(|records| records.protect(address(slot))) {
        return None;
    }
    // SAFETY: `freed` is older than the look at the records, of which none protects the slot;
    // without records none can, by the precondition.
    unsafe { slot.take(freed) }
}

fn address<T>(slot: &Slot<T>) -> *const () {
    ptr::from_ref(slot).cast()
}
