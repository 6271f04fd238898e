//! Calls on objects that many threads use at once: pools, streams.
//!
//! A count beside the object would be a cache line that all threads write. Instead each thread
//! notes in its own [record](super::records) which objects it is inside. A call that frees an
//! object reads all records.
//!
//! ```text
//!   a call                                  a call that frees
//!     place = object                          word = freed
//!     light fence                             heavy fence
//!     live? go on; else leave                 does a place name the object? then its thread takes
//!     ...                                       it; else this call takes it
//!     place = vacant (release)
//!     light fence
//!     freed? then as a call that frees, from the fence on
//! ```
//!
//! # Invariants
//!
//! * Either a call sees that the object was freed, or the call that frees sees the place: a fence
//!   lies between the store and the load of each side (see
//!   [`asymmetric`](crate::sync::asymmetric)). The same holds between a call that leaves and one
//!   that frees. So at least one of them takes the object, and [`Slot::take`] lets only one.

use super::records::{Name, Place, Record, Records, Uses};
use super::slot::{Access, Freed, Miss, SHARED, Slot};

/// Lets the call share an object until it [leaves](leave). `here` is the calling thread's record.
/// Returns the call's place there; without one, the slot counts the call. If this fails with a
/// [`Freed`], the call must try to [take](take) the object, as one that leaves.
#[inline(always)]
pub fn enter<T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    here: Option<&'static Record>,
) -> Result<Option<Place>, (Miss, Option<Freed>)> {
    if let Some(here) = here
        && let Some(vacant) = here.first_vacant()
    {
        let place = Some(here.announce(vacant, name, SHARED));
        if slot.is_live(generation) {
            return Ok(place);
        }
        return Err((Miss::Invalid, leave(slot, generation, SHARED, &place)));
    }
    match slot.enter(generation, SHARED) {
        Ok(()) => Ok(None),
        Err(miss) => Err((miss, None)),
    }
}

/// Ends a call of either kind. If this returns [`Freed`], the call must try to [take](take) the
/// object.
#[inline(always)]
#[must_use]
pub fn leave<T>(
    slot: &Slot<T>,
    generation: u32,
    access: Access,
    place: &Option<Place>,
) -> Option<Freed> {
    match place {
        Some(place) => {
            place.vacate();
            slot.freed(generation)
        }
        None if slot.leave(access) => slot.freed(generation),
        None => None,
    }
}

/// Frees an object. Only one of several calls succeeds. True if it has taken the object, because no
/// call is inside.
pub fn free<T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    records: &Records,
) -> Result<bool, Miss> {
    slot.free(generation)?;
    Ok(slot.freed(generation).is_some_and(|freed| take(slot, freed, name, records)))
}

/// Takes an object that was freed, unless a call is inside or has taken it.
pub fn take<T>(slot: &Slot<T>, freed: Freed, name: Name, records: &Records) -> bool {
    // SAFETY: no record named the object after `freed`.
    records.settled_uses(name) == Uses::NONE && unsafe { slot.take(freed) }
}
