//! Tables of handles, which map numbers to Rust objects.
//!
//! ```text
//!   table: chunks of 64, 128, 256, ... slots, allocated as they are needed
//!     slot     an object, its generation, and a count of the calls that use it
//!     records  for each thread: the objects that it is inside
//!     inside   calls on objects that many threads use at once
//!     home     calls on objects that one thread at a time uses
//!     vacant   empty slots: each thread keeps some
//! ```
//!
//! # Invariants
//!
//! * Slots never move and are never freed. So a look-up only loads a chunk's address and a word.
//! * A call writes to no cache line that another thread writes, except to the slot of an object
//!   that several threads have used and that is not `SHARED`.
//! * An object is dropped without locks: by the last call that leaves it, or by the call that frees
//!   it.

mod home;
mod inside;
mod records;
mod slot;
mod vacant;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use self::records::{Name, Place, Record, Records};
pub(super) use self::slot::Miss;
use self::slot::{ALONE, Access, Freed, NOBODY, SHARED, Slot};
use self::vacant::{RECORDS, Vacant, here};
use crate::sync::CachePadded;

/// How many objects a slot has in succession. Then it is retired.
const GENERATIONS: u32 = 1 << 24;
/// The slots of the first chunk. Each chunk has twice as many as the one before.
const FIRST: usize = 64;
/// A chunk's number is the logarithm of its slots. So the first numbers have no chunk.
const CHUNKS: usize = u32::BITS as usize + 1;

/// A kind of object with its own table: an opaque type of the C interface. A handle owns its
/// object, which lives until `pinlane_*_free` of its type is called and the calls that use it have
/// returned.
pub(super) trait Kind: Sized + 'static {
    type Object: Send + Sync + 'static;
    /// Its name in messages.
    const NAME: &'static str;
    /// Unique among the tables of the process, and not 0.
    const NUMBER: u8;
    /// Whether many threads use an object at once, and it is rarely freed. A call on it is then
    /// never exclusive, and writes only to its thread's record.
    const SHARED: bool;
    fn table() -> &'static Table<Self>;
}

#[repr(align(128))]
pub(super) struct Table<K: Kind> {
    chunks: [AtomicPtr<Slot<K::Object>>; CHUNKS],
    vacant: CachePadded<Vacant>,
}

/// The entry that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u32,
    pub(super) generation: u32,
}

fn records() -> &'static Records {
    &RECORDS
}

/// The calling thread's record; `None` if the thread is ending.
#[inline(always)]
fn record() -> Option<&'static Record> {
    match here() {
        Some(here) => Some(here.record),
        None => None,
    }
}

impl<K: Kind> Table<K> {
    pub(super) const fn new() -> Self {
        assert!(K::NUMBER > 0 && (K::NUMBER as usize) < vacant::TABLES);
        let chunks = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
        Table { chunks, vacant: CachePadded(Vacant::new()) }
    }

    #[inline(always)]
    fn slot(&'static self, index: u32) -> Result<&'static Slot<K::Object>, Miss> {
        let (chunk, at) = place(index);
        let chunk = self.chunks[chunk].load(Ordering::Acquire);
        if chunk.is_null() {
            return Err(Miss::Invalid);
        }
        // SAFETY: an allocated chunk has `1 << number` slots and is never freed, and `at` is
        // less.
        Ok(unsafe { &*chunk.add(at) })
    }

    /// Allocates the chunks up to the slot `index`. A slot of zero bytes is vacant, and the system
    /// gives zeroed memory without touching it.
    #[cold]
    fn make(&self, index: u32) {
        let (last, _) = place(index);
        let first = FIRST.ilog2() as usize;
        for (number, chunk) in self.chunks.iter().enumerate().take(last + 1).skip(first) {
            if !chunk.load(Ordering::Relaxed).is_null() {
                continue;
            }
            let layout = Layout::array::<Slot<K::Object>>(1 << number).expect("fits in memory");
            // SAFETY: the layout is not empty.
            let slots = unsafe { alloc_zeroed(layout) }.cast::<Slot<K::Object>>();
            if slots.is_null() {
                handle_alloc_error(layout);
            }
            let (set, fail) = (Ordering::Release, Ordering::Relaxed);
            if chunk.compare_exchange(ptr::null_mut(), slots, set, fail).is_err() {
                // SAFETY: just allocated with that layout, and not published.
                unsafe { dealloc(slots.cast(), layout) };
            }
        }
    }

    /// A new entry, with numbers that [`notes`](Self::notes) returns. The object leaks if this
    /// panics; `ManuallyDrop` avoids a copy through memory.
    #[inline(always)]
    pub(super) fn insert(
        &'static self,
        object: ManuallyDrop<K::Object>,
        notes: [usize; 2],
    ) -> Entry {
        let here = here();
        let index = self.vacant.take(here, K::NUMBER, |last| self.make(last));
        let slot = self.slot(index).expect("its chunk was made");
        let home = match here {
            Some(here) if !K::SHARED => here.home(),
            _ => NOBODY,
        };
        // SAFETY: the slot is vacant, and only this call has it.
        let generation = unsafe { slot.fill(object, notes, home) };
        Entry { index, generation }
    }

    /// The numbers that an entry was made with, even while other calls use its object.
    #[inline(always)]
    pub(super) fn notes(&'static self, entry: Entry) -> Result<[usize; 2], Miss> {
        self.slot(entry.index)?.notes(entry.generation).ok_or(Miss::Invalid)
    }

    /// The object of an entry, for a call with this kind of access.
    #[inline(always)]
    pub(super) fn enter<const SHARES: bool>(
        &'static self,
        entry: Entry,
    ) -> Result<Call<K, SHARES>, Miss> {
        let (slot, name) = (self.slot(entry.index)?, name::<K>(entry));
        let here = record();
        let inside = if K::SHARED {
            assert!(SHARES, "calls on it are never exclusive");
            inside::enter(slot, entry.generation, name, here)
        } else {
            home::enter(slot, entry.generation, name, access(SHARES), here, records)
        };
        match inside {
            Ok(place) => Ok(Call { slot, entry, place, here: PhantomData }),
            Err((miss, freed)) => {
                self.finish(slot, entry, freed);
                Err(miss)
            }
        }
    }

    /// As [`enter`](Self::enter), for a call that may end on another thread.
    pub(super) fn enter_counted<const SHARES: bool>(
        &'static self,
        entry: Entry,
    ) -> Result<Counted<Call<K, SHARES>>, Miss> {
        const { assert!(!K::SHARED, "calls on it are in their threads' records") };
        let (slot, name) = (self.slot(entry.index)?, name::<K>(entry));
        home::enter_counted(slot, entry.generation, name, access(SHARES), record(), records)?;
        Ok(Counted(Call { slot, entry, place: None, here: PhantomData }))
    }

    /// How many entries there are.
    pub(super) fn live(&'static self) -> usize {
        let given_out = 0..self.vacant.given_out();
        given_out.filter(|&index| self.slot(index).is_ok_and(|slot| slot.has_entry())).count()
    }

    /// Ends an entry, if its [`notes`](Self::notes) are `wanted`. Returns whether they are. The
    /// object drops as soon as no call is inside.
    #[inline(always)]
    pub(super) fn remove_if(
        &'static self,
        entry: Entry,
        wanted: impl FnOnce([usize; 2]) -> bool,
    ) -> Result<bool, Miss> {
        let (slot, name) = (self.slot(entry.index)?, name::<K>(entry));
        // These are the entry's notes, or the entry has ended and nothing is freed.
        if !wanted(slot.some_notes()) {
            return Ok(false);
        }
        let (freed, last) = if K::SHARED {
            match inside::free(slot, entry.generation, name, records()) {
                Ok(last) => (Ok(()), last),
                Err(miss) => (Err(miss), false),
            }
        } else {
            home::free(slot, entry.generation, name, record(), records)
        };
        if last {
            self.end(slot, entry);
        }
        match freed {
            Ok(()) => Ok(true),
            Err(miss) => Err(miss),
        }
    }

    /// Drops the object of a slot that was freed, unless a call is inside: then that call drops it.
    #[inline(always)]
    fn finish(&'static self, slot: &Slot<K::Object>, entry: Entry, freed: Option<Freed>) {
        if let Some(freed) = freed {
            self.take(slot, entry, freed);
        }
    }

    #[cold]
    fn take(&'static self, slot: &Slot<K::Object>, entry: Entry, freed: Freed) {
        let name = name::<K>(entry);
        let last = if K::SHARED {
            inside::take(slot, freed, name, records())
        } else {
            home::take(slot, freed, name, records())
        };
        if last {
            self.end(slot, entry);
        }
    }

    /// Drops an object that this call has taken. Its slot becomes vacant.
    #[inline(always)]
    fn end(&'static self, slot: &Slot<K::Object>, entry: Entry) {
        // SAFETY: this call has taken the object.
        if unsafe { slot.vacate(GENERATIONS) } {
            self.vacant.give(K::NUMBER, entry.index);
        }
    }
}

#[inline(always)]
fn name<K: Kind>(entry: Entry) -> Name {
    Name::new(K::NUMBER, entry.generation, entry.index)
}

/// The chunk of a slot, and the slot's place in it.
#[inline(always)]
fn place(index: u32) -> (usize, usize) {
    let number = index as usize + FIRST;
    let top = number.ilog2() as usize;
    (top, number & !(1 << top))
}

/// A call that is inside an object, until this drops.
pub(super) struct Call<K: Kind, const SHARES: bool> {
    slot: &'static Slot<K::Object>,
    entry: Entry,
    /// The place in the thread's record; without one, the slot counts the call.
    place: Option<Place>,
    /// Not `Send`, because of the place.
    here: PhantomData<*const ()>,
}

/// A call shares an object.
pub(super) type Inside<K> = Call<K, true>;
/// A call has an object alone.
pub(super) type Alone<K> = Call<K, false>;

#[inline(always)]
const fn access(shares: bool) -> Access {
    if shares { SHARED } else { ALONE }
}

impl<K: Kind, const SHARES: bool> Drop for Call<K, SHARES> {
    #[inline(always)]
    fn drop(&mut self) {
        let freed = inside::leave(self.slot, self.entry.generation, access(SHARES), &self.place);
        K::table().finish(self.slot, self.entry, freed);
    }
}

impl<K: Kind, const SHARES: bool> Deref for Call<K, SHARES> {
    type Target = K::Object;

    #[inline(always)]
    fn deref(&self) -> &K::Object {
        // SAFETY: this call shares the object, which stays until the call leaves; or it has it
        // alone.
        self.slot.with(|object| unsafe { &*object })
    }
}

impl<K: Kind> DerefMut for Alone<K> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut K::Object {
        // SAFETY: this call has the object alone, until it leaves.
        self.slot.with_mut(|object| unsafe { &mut *object })
    }
}

impl<K: Kind> Alone<K> {
    /// Ends the entry and drops the object.
    pub(super) fn remove(self) {
        drop(self.take());
    }

    /// Ends the entry and returns the object.
    pub(super) fn take(self) -> K::Object {
        let call = ManuallyDrop::new(self);
        // SAFETY: this call has the object alone, and leaves here.
        unsafe { call.slot.take_alone() };
        if let Some(place) = &call.place {
            place.vacate();
        }
        // SAFETY: just taken.
        let (object, again) = unsafe { call.slot.empty(GENERATIONS) };
        if again {
            K::table().vacant.give(K::NUMBER, call.entry.index);
        }
        object
    }
}

/// A call that its slot counts.
pub(super) struct Counted<Guard>(Guard);

impl<K: Kind> Counted<Inside<K>> {
    /// Gets the object alone, or gives the shared call back.
    pub(super) fn upgrade(self) -> Result<Counted<Alone<K>>, (Self, Miss)> {
        let Call { slot, entry, .. } = &self.0;
        let (slot, entry) = (*slot, *entry);
        let name = name::<K>(entry);
        match home::upgrade_counted(slot, entry.generation, name, record(), records) {
            Ok(()) => {
                std::mem::forget(self); // the slot counts the new call in its place
                Ok(Counted(Call { slot, entry, place: None, here: PhantomData }))
            }
            Err(miss) => Err((self, miss)),
        }
    }
}

impl<K: Kind> Counted<Alone<K>> {
    /// Shares the object with others again.
    pub(super) fn downgrade(self) -> Counted<Inside<K>> {
        let Call { slot, entry, .. } = &self.0;
        let (slot, entry) = (*slot, *entry);
        // SAFETY: the slot counts this call.
        unsafe { slot.downgrade() };
        std::mem::forget(self); // the slot counts the new call in its place
        Counted(Call { slot, entry, place: None, here: PhantomData })
    }
}

// SAFETY: the object is `Send` and `Sync`. The slot counts the call, so any thread may end it: the
// call is in no thread's record.
unsafe impl<K: Kind, const SHARES: bool> Send for Counted<Call<K, SHARES>> {}
// SAFETY: as above; a shared reference gives access only to a shared object.
unsafe impl<K: Kind, const SHARES: bool> Sync for Counted<Call<K, SHARES>> {}

impl<Guard: Deref> Deref for Counted<Guard> {
    type Target = Guard::Target;

    fn deref(&self) -> &Guard::Target {
        &self.0
    }
}

impl<Guard: DerefMut> DerefMut for Counted<Guard> {
    fn deref_mut(&mut self) -> &mut Guard::Target {
        &mut self.0
    }
}

#[cfg(test)]
mod tests;
