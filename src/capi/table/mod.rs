//! Tables of handles, which map numbers to Rust objects.
//!
//! ```text
//!   table: chunks of 1024, 2048, 4096, ... slots, allocated as they are needed
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

use self::home::AtHome;
use self::records::{Name, Place, Records};
pub(super) use self::slot::Miss;
use self::slot::{ALONE, Access, Freed, NOBODY, SHARED, Slot};
pub(super) use self::vacant::{Caller, is_in_process};
use self::vacant::{RECORDS, Vacant};
use crate::sync::CachePadded;

/// How many objects a slot has in succession. Then it is retired.
const GENERATIONS: u32 = 1 << 24;
/// The slots of the first chunk. Each chunk has twice as many as the one before.
const FIRST: usize = if cfg!(test) { 64 } else { 1024 };
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

/// The entry that a handle names, as the bits of the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    /// `generation` is where the word of a slot has it.
    #[inline(always)]
    const fn new<K: Kind>(generation: u64, index: u32) -> Self {
        Entry(tag::<K>() << 56 | generation | index as u64)
    }

    /// `None` if the bits do not have the type's tag.
    #[inline(always)]
    pub(super) fn of<K: Kind>(bits: u64) -> Option<Self> {
        if bits >> 56 == tag::<K>() { Some(Entry(bits)) } else { None }
    }

    #[inline(always)]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & (GENERATIONS - 1)
    }

    #[inline(always)]
    fn name(self) -> Name {
        Name::new(self.0)
    }
}

const fn tag<K: Kind>() -> u64 {
    0x80 | K::NUMBER as u64
}

fn records() -> &'static Records {
    &RECORDS
}

impl<K: Kind> Table<K> {
    pub(super) const fn new() -> Self {
        assert!(K::NUMBER > 0 && (K::NUMBER as usize) < vacant::TABLES);
        let chunks = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
        Table { chunks, vacant: CachePadded(Vacant::new()) }
    }

    #[inline(always)]
    fn slot(&'static self, index: u32) -> Result<&'static Slot<K::Object>, Miss> {
        // Usually in the first chunk. Many processors take a dozen steps to find the chunk of
        // another.
        let at = index as usize;
        let slot = if at < FIRST { self.slot_of(FIRST.ilog2() as usize, at) } else { self.far(at) };
        match slot {
            Some(slot) => Ok(slot),
            None => Err(Miss::Invalid),
        }
    }

    #[cold]
    fn far(&'static self, index: usize) -> Option<&'static Slot<K::Object>> {
        let (chunk, at) = place(index);
        self.slot_of(chunk, at)
    }

    /// The slot at `at` in a chunk, if that has been allocated. `at` is less than `1 << chunk`.
    #[inline(always)]
    fn slot_of(&'static self, chunk: usize, at: usize) -> Option<&'static Slot<K::Object>> {
        let slots = self.chunks[chunk].load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        debug_assert!(at < 1 << chunk);
        // SAFETY: an allocated chunk has `1 << number` slots and is never freed, and `at` is less.
        Some(unsafe { &*slots.add(at) })
    }

    /// Allocates the chunks up to the slot `index`. A slot of zero bytes is vacant, and the system
    /// gives zeroed memory without touching it, unless it has to align it.
    #[cold]
    fn make(&self, index: u32) {
        let (first, (last, _)) = (FIRST.ilog2() as usize, place(index as usize));
        for (number, chunk) in self.chunks.iter().enumerate().take(last + 1).skip(first) {
            if !chunk.load(Ordering::Relaxed).is_null() {
                continue;
            }
            let align = align_of::<Slot<K::Object>>();
            let bytes = (size_of::<Slot<K::Object>>() << number).checked_add(align);
            let layout = bytes.and_then(|bytes| Layout::array::<u8>(bytes).ok());
            let layout = layout.expect("fits in memory");
            // SAFETY: the layout is not empty.
            let memory = unsafe { alloc_zeroed(layout) };
            if memory.is_null() {
                handle_alloc_error(layout);
            }
            let slots = memory.map_addr(|at| at.next_multiple_of(align)).cast();
            let (set, fail) = (Ordering::Release, Ordering::Relaxed);
            if chunk.compare_exchange(ptr::null_mut(), slots, set, fail).is_err() {
                // SAFETY: just allocated with that layout, and not published.
                unsafe { dealloc(memory, layout) };
            }
        }
    }

    /// A new entry, with numbers that [`notes`](Self::notes) returns. The object leaks if this
    /// panics; `ManuallyDrop` avoids a copy through memory.
    #[inline(always)]
    pub(super) fn insert(
        &'static self,
        caller: Caller,
        object: ManuallyDrop<K::Object>,
        notes: [usize; 2],
    ) -> Entry {
        let here = caller.here();
        // It captures nothing, which would have to be in memory.
        let index = self.vacant.take(here, K::NUMBER, |last| K::table().make(last));
        let slot = self.slot(index).expect("its chunk was made");
        let home = match here {
            Some(here) if !K::SHARED => here.home(),
            _ => NOBODY,
        };
        // SAFETY: the slot is vacant, and only this call has it.
        Entry::new::<K>(unsafe { slot.fill(object, notes, home) }, index)
    }

    /// The numbers that an entry was made with, even while other calls use its object.
    #[inline(always)]
    pub(super) fn notes(&'static self, entry: Entry) -> Result<[usize; 2], Miss> {
        self.slot(entry.index())?.notes(entry.generation()).ok_or(Miss::Invalid)
    }

    /// The object of an entry, for a call with this kind of access.
    #[inline(always)]
    pub(super) fn enter<const SHARES: bool>(
        &'static self,
        caller: Caller,
        entry: Entry,
    ) -> Result<Call<K, SHARES>, Miss> {
        let (slot, name) = (self.slot(entry.index())?, entry.name());
        let here = caller.record();
        let inside = if K::SHARED {
            assert!(SHARES, "calls on it are never exclusive");
            inside::enter(slot, entry.generation(), name, here)
        } else {
            home::enter(slot, entry.generation(), name, access(SHARES), here, records)
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
        caller: Caller,
        entry: Entry,
    ) -> Result<Counted<Call<K, SHARES>>, Miss> {
        const { assert!(!K::SHARED, "calls on it are in their threads' records") };
        let (slot, name) = (self.slot(entry.index())?, entry.name());
        let here = caller.record();
        home::enter_counted(slot, entry.generation(), name, access(SHARES), here, records)?;
        Ok(Counted(Call { slot, entry, place: None, here: PhantomData }))
    }

    /// How many entries there are.
    pub(super) fn live(&'static self) -> usize {
        let given_out = 0..self.vacant.given_out();
        given_out.filter(|&index| self.slot(index).is_ok_and(|slot| slot.has_entry())).count()
    }

    /// Ends an entry, if the first of its [`notes`](Self::notes) is `wanted`. Returns whether it
    /// is. The object drops as soon as no call is inside: by `drop`, if this thread is at home.
    #[inline(always)]
    pub(super) fn remove_if(
        &'static self,
        caller: Caller,
        entry: Entry,
        wanted: impl FnOnce(usize) -> bool,
        drop: impl FnOnce(&mut ManuallyDrop<K::Object>),
    ) -> Result<bool, Miss> {
        let (slot, name) = (self.slot(entry.index())?, entry.name());
        // It is the entry's note, or the entry has ended and nothing is freed.
        if !wanted(slot.some_note()) {
            return Ok(false);
        }
        let before = if K::SHARED {
            AtHome::Away
        } else {
            home::free_at_home(slot, entry.generation(), name, caller.record())
        };
        if before == AtHome::Freed {
            // SAFETY: this call has taken the object, and has the index until it gives it back.
            unsafe { slot.drop_object(drop) };
            if entry.generation() + 1 < GENERATIONS {
                self.vacant.give(caller.here(), K::NUMBER, entry.index());
            }
            return Ok(true);
        }
        match self.remove_away(caller, slot, entry, before) {
            Ok(()) => Ok(true),
            Err(miss) => Err(miss),
        }
    }

    /// Ends an entry that could not be freed at home.
    #[inline(never)]
    fn remove_away(
        &'static self,
        caller: Caller,
        slot: &Slot<K::Object>,
        entry: Entry,
        before: AtHome,
    ) -> Result<(), Miss> {
        let (generation, name) = (entry.generation(), entry.name());
        let (freed, last) = if K::SHARED {
            match inside::free(slot, generation, name, records()) {
                Ok(last) => (Ok(()), last),
                Err(miss) => (Err(miss), false),
            }
        } else {
            home::free(slot, generation, name, caller.record(), records, before)
        };
        if last {
            self.end(caller, slot, entry);
        }
        freed
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
        let name = entry.name();
        let last = if K::SHARED {
            inside::take(slot, freed, name, records())
        } else {
            home::take(slot, freed, name, records())
        };
        if last {
            self.end(Caller::this(), slot, entry);
        }
    }

    /// Drops an object that this call has taken, not at home. Its slot becomes vacant.
    #[inline(never)]
    fn end(&'static self, caller: Caller, slot: &Slot<K::Object>, entry: Entry) {
        // SAFETY: this call has taken the object.
        if unsafe { slot.vacate(GENERATIONS) } {
            self.vacant.give(caller.here(), K::NUMBER, entry.index());
        }
    }
}

/// The chunk of a slot, and the slot's place in it.
fn place(index: usize) -> (usize, usize) {
    let number = index + FIRST;
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
        let freed = inside::leave(self.slot, self.entry.generation(), access(SHARES), &self.place);
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
            K::table().vacant.give(Caller::this().here(), K::NUMBER, call.entry.index());
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
        let name = entry.name();
        let here = Caller::this().record();
        match home::upgrade_counted(slot, entry.generation(), name, here, records) {
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
