//! Calls on objects that one thread at a time uses, usually the thread that made the handle:
//! buffers, tickets.
//!
//! Counting a call in the slot's word is an atomic read-modify-write, which takes longer than the
//! rest of a call. So a thread is *at home* in the slots that it filled. There it notes in its own
//! [record](super::records) which objects it is inside, by plain stores. The first other thread
//! that comes to one of these slots ends the home. From then on all threads count their calls in
//! these slots.
//!
//! ```text
//!   a call at home                          a call of another thread
//!     place = object                          home = away
//!     light fence                             heavy fence
//!     still at home? go on;                   does a place name the object, and conflict?
//!       else leave, and come as another         then it is busy; else count this call
//!     ...                                     ...
//!     place = vacant (release)                count it no more
//!     light fence                             freed, and none is counted? heavy fence; does a
//!     freed, and none is counted? then as       place name the object? then its thread takes it;
//!       another, from the heavy fence on        else this call takes it
//! ```
//!
//! A thread whose home has ended begins a new one after a while (see
//! [`vacant`](super::vacant)). The slots that it fills from then on belong to the new home.
//!
//! # Invariants
//!
//! * Either a call at home sees that the home has ended, or the call that ended it sees the first
//!   call's place: there is a fence between the store and the load of each side. So after a home
//!   has ended, no call begins through it. The calls inside are in places.
//! * While a home exists, no other thread writes the words of its slots, except to leave.
//! * A slot is homeless only if it was filled as such, or if its home has ended and no place names
//!   the object. Its word notes that, together with the generation: a stale handle does not end the
//!   home of the next object.
//! * At least one of the last calls to leave a freed object takes it, by the first invariant, and
//!   [`Slot::take`] lets only one.
//! * A place with the mark [`FREEING`] stays for a few instructions: then the thread at home writes
//!   the word without a read-modify-write. A call that sees it reports that the handle is freed,
//!   and writes nothing. If the home has just ended, the thread frees the object as any other
//!   thread would.

use super::inside::leave;
use super::records::{Name, Place, Record, Records, Uses};
use super::slot::{ALONE, Access, FREEING, Freed, Miss, NOBODY, Slot};

/// Lets a call in until it [leaves](leave). `here` is the record of the calling thread. Returns the
/// place of a call at home; without one, the slot counts the call. If this fails with a [`Freed`],
/// the call must try to [take](take) the object, as one that leaves.
#[inline(always)]
pub fn enter<'r, T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    access: Access,
    here: Option<&'static Record>,
    records: impl FnOnce() -> &'r Records,
) -> Result<Option<Place>, (Miss, Option<Freed>)> {
    if let Some(here) = here
        && let Some(token) = at_home(slot, generation, here)
        && let (uses, Some(vacant)) = here.look(name)
    {
        if uses.conflict_with(access) {
            return Err((Miss::Busy, None));
        }
        let place = Some(here.announce(vacant, name, access));
        if here.home() == token {
            return Ok(place);
        }
        if let Some(freed) = leave(slot, generation, access, &place) {
            return Err((Miss::Invalid, Some(freed)));
        }
    }
    match enter_counted(slot, generation, name, access, here, records) {
        Ok(()) => Ok(None),
        Err(miss) => Err((miss, None)),
    }
}

/// The token of the calling thread's home, if the slot is part of it, live, and counts no call.
#[inline(always)]
fn at_home<T>(slot: &Slot<T>, generation: u32, here: &Record) -> Option<u64> {
    let token = here.home();
    if slot.is_at_home(generation, token) { Some(token) } else { None }
}

/// As [`enter`], for a call that may leave on another thread.
#[inline(never)]
pub fn enter_counted<'r, T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    access: Access,
    here: Option<&'static Record>,
    records: impl FnOnce() -> &'r Records,
) -> Result<(), Miss> {
    let uses = come(slot, generation, name, here, records)?;
    if uses.conflict_with(access) {
        return Err(Miss::Busy);
    }
    slot.enter(generation, access)
}

/// Turns a shared call that the slot counts into an exclusive one, unless others are inside. If
/// this fails, the call still shares the object.
pub fn upgrade_counted<'r, T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    here: Option<&'static Record>,
    records: impl FnOnce() -> &'r Records,
) -> Result<(), Miss> {
    let uses = come(slot, generation, name, here, records)?;
    if uses.conflict_with(ALONE) {
        return Err(Miss::Busy);
    }
    slot.upgrade(generation)
}

/// Comes to a slot in order to write its word. Returns the uses that are in places. Those of other
/// threads can only decrease, except for a call that is about to find that its home has ended.
#[inline(always)]
fn come<'r, T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    here: Option<&'static Record>,
    records: impl FnOnce() -> &'r Records,
) -> Result<Uses, Miss> {
    // First, so that a stale handle does not disturb a thread.
    let Some(home) = slot.home(generation) else { return Err(Miss::Invalid) };
    if home == NOBODY {
        return Ok(Uses::NONE);
    }
    if let Some(here) = here.filter(|here| here.home() == home) {
        return Ok(here.look(name).0);
    }
    let records = records();
    records.disturb(home);
    let uses = records.uses(name);
    if uses == Uses::NONE {
        slot.end_home(generation);
    }
    if uses.have(FREEING.mark()) { Err(Miss::Invalid) } else { Ok(uses) }
}

/// What [`free_at_home`] has done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AtHome {
    /// The object is freed, and the caller has to drop it.
    Freed,
    /// Nothing. Meanwhile another call may have freed the object, and left it to this one.
    Ended,
    /// Nothing.
    Away,
}

/// Frees an object that the calling thread is at home with and no call is inside of. Otherwise the
/// caller must call [`free`].
#[inline(always)]
pub fn free_at_home<T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    here: Option<&'static Record>,
) -> AtHome {
    if let Some(here) = here
        && let Some(token) = at_home(slot, generation, here)
        && let Some(vacant) = here.vacant_outside(name)
    {
        let place = here.announce(vacant, name, FREEING);
        if here.home() == token {
            // SAFETY: no call is inside: this thread's places and the word show that. No call gets
            // in or frees the slot, because a thread that ends the home sees the place.
            unsafe { slot.take_at_home(generation) };
            place.forget();
            return AtHome::Freed;
        }
        place.vacate();
        return AtHome::Ended;
    }
    AtHome::Away
}

/// Frees an object, after [`free_at_home`] has not. Only one of several calls succeeds. True if the
/// caller has to drop the object, because no call is inside it.
pub fn free<'r, T>(
    slot: &Slot<T>,
    generation: u32,
    name: Name,
    here: Option<&'static Record>,
    records: impl Fn() -> &'r Records,
    before: AtHome,
) -> (Result<(), Miss>, bool) {
    if before == AtHome::Ended
        && let Some(freed) = slot.freed(generation)
    {
        return (Err(Miss::Invalid), take(slot, freed, name, records()));
    }
    let uses = match come(slot, generation, name, here, &records) {
        Ok(uses) => uses,
        Err(miss) => return (Err(miss), false),
    };
    // SAFETY: no place names the object, and only this thread could begin a call at home.
    if uses == Uses::NONE && unsafe { slot.free_idle(generation) } {
        return (Ok(()), true);
    }
    match slot.free(generation) {
        Ok(()) => {
            let last = slot.freed(generation);
            (Ok(()), last.is_some_and(|last| take(slot, last, name, records())))
        }
        Err(miss) => (Err(miss), false),
    }
}

/// Takes an object that was freed, unless a call is inside or has taken it.
pub fn take<T>(slot: &Slot<T>, freed: Freed, name: Name, records: &Records) -> bool {
    let alone = freed.homeless() || records.settled_uses(name) == Uses::NONE;
    // SAFETY: no place names the object: the records showed that, after it was freed or before it
    // was homeless.
    alone && unsafe { slot.take(freed) }
}
