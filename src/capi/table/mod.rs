//! Tables of handles: a number on one side, a Rust object on the other.
//!
//! ```text
//!   table: chunks of 64, 128, 256, ... slots, allocated as they are needed
//!     slot     an object, its generation, and a count of the calls that use it
//!     inside   calls that use an object without being counted: a record for each thread
//!     vacant   empty slots: each thread keeps some
//! ```
//!
//! # Invariants
//!
//! * Slots never move and are never freed. So a look-up only loads a chunk's address and a word.
//! * A call writes to no cache line that another thread writes, except the object's own slot where
//!   calls are counted.
//! * An object is dropped with nothing locked: by the last call that leaves it, or by the call that
//!   frees it.

mod inside;
mod slot;
mod vacant;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use self::inside::Way;
pub(super) use self::slot::Miss;
use self::slot::{Freed, Slot};
use self::vacant::{RECORDS, Vacant};
use crate::sync::Apart;

/// How many objects a slot has one after the other. Then it is retired.
const GENERATIONS: u32 = 1 << 24;
/// The slots of the first chunk. Each chunk has twice as many as the one before.
const FIRST: usize = 64;
const CHUNKS: usize = 27;

#[repr(align(128))]
pub(super) struct Table<T> {
    number: u8,
    /// Whether calls are known by the records of their threads, instead of being counted.
    shared: bool,
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    vacant: Apart<Vacant>,
}

/// Where a handle points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl<T: Send + Sync> Table<T> {
    /// `number` is the table's own in the process. `shared` is for objects that many threads use at
    /// once and that are rarely freed: a call then writes to its thread's record only. Other tables
    /// count the calls in the slot.
    pub(super) const fn new(number: u8, shared: bool) -> Self {
        assert!((number as usize) < vacant::TABLES);
        let chunks = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
        Table { number, shared, chunks, vacant: Apart(Vacant::new()) }
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    #[inline]
    fn slot(&'static self, index: u32) -> Result<&'static Slot<T>, Miss> {
        let (chunk, at) = place(index);
        let chunk = self.chunks[chunk].load(Ordering::Acquire);
        if chunk.is_null() {
            return Err(Miss::Invalid);
        }
        // SAFETY: an allocated chunk has `FIRST << number` slots, for ever, and `at` is less.
        Ok(unsafe { &*chunk.add(at) })
    }

    /// Allocates the chunks up to the slot `index`. A slot of zero bytes is vacant, and the system
    /// gives zeroed memory without touching it.
    #[cold]
    fn make(&self, index: u32) {
        let (last, _) = place(index);
        for (number, chunk) in self.chunks.iter().enumerate().take(last + 1) {
            if !chunk.load(Ordering::Relaxed).is_null() {
                continue;
            }
            let layout = Layout::array::<Slot<T>>(FIRST << number).expect("fits in memory");
            // SAFETY: the layout is not empty.
            let slots = unsafe { alloc_zeroed(layout) }.cast::<Slot<T>>();
            if slots.is_null() {
                handle_alloc_error(layout);
            }
            let (set, fail) = (Ordering::Release, Ordering::Relaxed);
            if chunk.compare_exchange(ptr::null_mut(), slots, set, fail).is_err() {
                // SAFETY: just allocated with that layout, and nobody else has seen it.
                unsafe { dealloc(slots.cast(), layout) };
            }
        }
    }

    /// A new entry, with numbers that [`notes`](Self::notes) returns.
    #[inline(always)]
    pub(super) fn insert(&'static self, object: T, notes: [usize; 2]) -> Entry {
        let index = self.vacant.take(self.number, |last| self.make(last));
        let slot = self.slot(index).expect("its chunk was made");
        // SAFETY: the slot is vacant, and this call alone has it.
        let generation = unsafe { slot.fill(object, notes) };
        Entry { index, generation }
    }

    /// The numbers that an entry was made with, whatever other calls do with its object.
    #[inline]
    pub(super) fn notes(&'static self, entry: Entry) -> Result<[usize; 2], Miss> {
        self.slot(entry.index)?.notes(entry.generation).ok_or(Miss::Invalid)
    }

    /// The object of an entry, shared with other calls.
    #[inline(always)]
    pub(super) fn enter(&'static self, entry: Entry) -> Result<Inside<T>, Miss> {
        let slot = self.slot(entry.index)?;
        let record = if self.shared { vacant::record() } else { None };
        match inside::enter(slot, entry.generation, record) {
            Ok(way) => Ok(Inside { table: self, slot, index: entry.index, way, here: PhantomData }),
            Err((miss, freed)) => {
                self.finish(slot, entry.index, freed);
                Err(miss)
            }
        }
    }

    /// The object of an entry, for this call alone.
    #[inline]
    pub(super) fn enter_exclusive(&'static self, entry: Entry) -> Result<Alone<T>, Miss> {
        assert!(!self.shared, "calls on it are not counted");
        let slot = self.slot(entry.index)?;
        slot.enter_exclusive(entry.generation)?;
        Ok(Alone { table: self, slot, index: entry.index })
    }

    /// Ends an entry. Its object drops as soon as no call is inside.
    #[inline]
    pub(super) fn remove(&'static self, entry: Entry) -> Result<(), Miss> {
        let slot = self.slot(entry.index)?;
        // SAFETY: no record protects a slot of this table: it is not shared.
        let idle = if self.shared { None } else { unsafe { slot.free_idle(entry.generation) } };
        match idle {
            Some(object) => drop(self.end(slot, entry.index, object)),
            None => {
                slot.free(entry.generation)?;
                self.finish(slot, entry.index, slot.freed());
            }
        }
        Ok(())
    }

    /// Drops the object of a slot that was freed, unless a call is inside: then that call drops it.
    #[inline]
    fn finish(&'static self, slot: &'static Slot<T>, index: u32, freed: Option<Freed>) {
        if let Some(freed) = freed {
            self.take(slot, index, freed);
        }
    }

    #[cold]
    fn take(&'static self, slot: &'static Slot<T>, index: u32, freed: Freed) {
        let records = self.shared.then_some(&*RECORDS);
        // SAFETY: `enter` uses records only if the table is shared.
        if let Some(object) = unsafe { inside::take(slot, freed, records) } {
            drop(self.end(slot, index, object));
        }
    }

    /// Makes the slot vacant that an object was taken from. The caller drops the object.
    #[inline]
    fn end(&'static self, slot: &'static Slot<T>, index: u32, object: T) -> T {
        // SAFETY: the caller has taken the object, and no other can.
        if unsafe { slot.vacate(GENERATIONS) } {
            self.vacant.give(self.number, index);
        }
        object
    }
}

/// The chunk of a slot, and the slot's place in it.
#[inline]
fn place(index: u32) -> (usize, usize) {
    let number = index as usize + FIRST;
    let chunk = (number.ilog2() - FIRST.ilog2()) as usize;
    (chunk, number - (FIRST << chunk))
}

/// A call is inside an object, until this drops.
pub(super) struct Inside<T: Send + Sync + 'static> {
    table: &'static Table<T>,
    slot: &'static Slot<T>,
    index: u32,
    way: Way,
    /// Not `Send`: the way may be the thread's record.
    here: PhantomData<*const ()>,
}

impl<T: Send + Sync> Deref for Inside<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this call shares the object, which stays until the call leaves.
        self.slot.with(|object| unsafe { &*object })
    }
}

impl<T: Send + Sync> Drop for Inside<T> {
    #[inline]
    fn drop(&mut self) {
        let freed = inside::leave(self.slot, &self.way);
        self.table.finish(self.slot, self.index, freed);
    }
}

impl<T: Send + Sync> Inside<T> {
    /// The same, for a call that may end on another thread. Not for shared tables.
    pub(super) fn counted(self) -> Shared<T> {
        assert!(!self.table.shared, "the call is in its thread's record");
        Shared(self)
    }
}

/// A call is inside an object, and the slot counts it.
pub(super) struct Shared<T: Send + Sync + 'static>(Inside<T>);

// SAFETY: the object is `Send` and `Sync`. The slot counts the call, so any thread may end it: no
// record is used, because the table is not shared.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T: Send + Sync> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A call has an object alone, until this drops.
pub(super) struct Alone<T: Send + Sync + 'static> {
    table: &'static Table<T>,
    slot: &'static Slot<T>,
    index: u32,
}

impl<T: Send + Sync> Alone<T> {
    /// Ends the entry and drops the object.
    pub(super) fn remove(self) {
        drop(self.take());
    }

    /// Ends the entry and gives the object.
    pub(super) fn take(self) -> T {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: this call has the object alone, and leaves here; no record protects the slot:
        // `enter_exclusive` refuses shared tables.
        let object = unsafe { this.slot.take_exclusive() };
        this.table.end(this.slot, this.index, object)
    }
}

impl<T: Send + Sync> Deref for Alone<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this call has the object alone, until it leaves.
        self.slot.with(|object| unsafe { &*object })
    }
}

impl<T: Send + Sync> DerefMut for Alone<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        self.slot.with_mut(|object| unsafe { &mut *object })
    }
}

impl<T: Send + Sync> Drop for Alone<T> {
    #[inline]
    fn drop(&mut self) {
        let freed = if self.slot.leave_exclusive() { self.slot.freed() } else { None };
        self.table.finish(self.slot, self.index, freed);
    }
}

#[cfg(test)]
mod tests;
