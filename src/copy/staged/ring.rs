//! The slots through which pageable memory goes: a few pieces of page-locked memory, used in turns.
//!
//! A slot always has one of these owners, and only the owner touches its contents:
//!
//! ```text
//!   free ---> opener ---> workers (units) ---> finisher ---> free, perhaps with a copy in flight
//!             lays out    each its own bytes   the last worker: enqueues the copy, or is done
//! ```
//!
//! A slot of [chunks](super::chunks) stays its opener's, who says which bytes a thread may copy.
//!
//! # Invariants
//!
//! * A slot that [`take`](Ring::take) returns is no longer used by the device, and has no other
//!   owner.
//! * Workers come between [`publish`](Slot::publish) and the last [`unit_done`](Slot::unit_done);
//!   exactly one thread gets `true` from it, and then has the slot alone.
//! * There are never more than `limit` slots. A thread that finds none waits, for the device or for
//!   another caller, and has no slot that others wait for. Threads of its own copy may wait for it.
//! * No thread waits for a slot that a more exposed stream holds, directly or by a copy in flight:
//!   such a stream may be held up. [`Shares`] keeps enough other slots. If memory for these cannot
//!   be page-locked, that is an error.
//! * The oldest free slot is taken first, so that copies in flight get the most time. A new slot is
//!   made only when that one is still in flight, or for a download that should not use the same
//!   one [again](Ring::take_of). So only as many slots are in use as keep the link busy, and their
//!   lines stay in the cache that cores share.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use self::shares::{EXPOSURES, Shares, class};
use super::layout::Layout;
use crate::error::Result;
use crate::memory::PinnedBuf;
use crate::pool::PinnedPool;
use crate::sync::{Condvar, Mutex};
use crate::timeline::Exposure;

#[derive(Default)]
pub(super) struct Slot {
    index: usize,
    host: OnceLock<PinnedBuf<u8>>,
    layout: UnsafeCell<Layout>,
    units_left: AtomicUsize,
}

// SAFETY: `layout` is written only by the opener, who has the slot alone, and read by workers, who
// come after `publish` and are gone before a thread has it alone again: the module's invariants.
// The rest is `Sync`; the bytes of `host` are reached by address, each by one worker.
unsafe impl Sync for Slot {}

impl Slot {
    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn host(&self) -> &PinnedBuf<u8> {
        self.host.get().expect("made before it is given out")
    }

    /// The address of a byte of the slot.
    pub(super) fn address(&self, offset: usize) -> *mut u8 {
        self.host().as_ptr().cast_mut().wrapping_add(offset)
    }

    /// # Safety
    ///
    /// * The caller has the slot alone: it has just taken it, or `unit_done` returned `true`.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn layout_mut(&self) -> &mut Layout {
        // SAFETY: the caller's precondition.
        unsafe { &mut *self.layout.get() }
    }

    /// # Safety
    ///
    /// * The caller is a worker of the slot, between `publish` and its `unit_done`, or has it
    ///   alone.
    pub(super) unsafe fn layout(&self) -> &Layout {
        // SAFETY: no thread writes to it, by the caller's precondition and the module's invariants.
        unsafe { &*self.layout.get() }
    }

    /// Admits workers, for this many units. They find the slot through a lock.
    pub(super) fn publish(&self, units: usize) {
        self.units_left.store(units, Ordering::Relaxed);
    }

    /// Notes the end of a unit. Returns whether it was the last one: the caller then has the slot
    /// alone.
    pub(super) fn unit_done(&self) -> bool {
        self.units_left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// A slot that one thread has alone. Dropping it, by a panic too, gives it back.
pub(super) struct SlotGuard<'r> {
    ring: &'r Ring,
    slot: &'r Slot,
}

impl<'r> SlotGuard<'r> {
    pub(super) fn slot(&self) -> &'r Slot {
        self.slot
    }

    /// Passes the duty to give the slot back to the caller.
    pub(super) fn hand_over(self) -> &'r Slot {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.ring.give_back(self.slot);
    }
}

pub(super) struct Ring {
    slots: Box<[Slot]>,
    slot_bytes: usize,
    state: Mutex<SlotLists>,
    freed: Condvar,
    /// A thread is giving memory to all slots. A transfer that has a slot does not wait for another
    /// one until that ends.
    is_filling: AtomicBool,
}

struct SlotLists {
    /// Free slots by their holders. The one given back first is in front.
    free: [VecDeque<usize>; 3],
    /// Slots without memory.
    unmade: Vec<usize>,
    shares: Shares,
}

impl SlotLists {
    /// The oldest free slot of this holder, if it may pass to a stream of exposure `to`. If that is
    /// more exposed than the holder, it becomes the holder at once; otherwise when the slot is
    /// found to be idle.
    fn pop(&mut self, holder: Exposure, to: Exposure) -> Option<usize> {
        let free = &mut self.free[holder as usize];
        let index = *free.front().filter(|&&index| self.shares.may_pass(index, to))?;
        free.pop_front();
        self.shares.pass(index, holder.max(to));
        Some(index)
    }

    /// Whether there is a free slot to wait for.
    fn has_free(&self, to: Exposure) -> bool {
        EXPOSURES.into_iter().take_while(|&holder| holder <= to).any(|holder| {
            let free = self.free[holder as usize].front();
            free.is_some_and(|&index| self.shares.may_pass(index, to))
        })
    }

    /// Whether a slot has memory that no more exposed stream holds.
    fn has_any(&self, to: Exposure) -> bool {
        let made = self.shares.len() - self.unmade.len();
        made > self.shares.held_above(to)
    }
}

impl Ring {
    pub(super) fn new(slot_bytes: usize, limit: usize) -> Self {
        let slot = |index| Slot { index, ..Slot::default() };
        let state = SlotLists {
            free: [(); 3].map(|()| VecDeque::with_capacity(limit)),
            unmade: (0..limit).rev().collect(),
            shares: Shares::new(limit),
        };
        Ring {
            slots: (0..limit).map(slot).collect(),
            slot_bytes,
            state: Mutex::new(state),
            freed: Condvar::new(),
            is_filling: AtomicBool::new(false),
        }
    }

    pub(super) fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Whether a slot has memory, or a thread is giving memory to all.
    pub(super) fn is_begun(&self) -> bool {
        self.is_filling.load(Ordering::Relaxed) || self.made() > 0
    }

    /// Whether fewer than half of the slots are being filled or emptied.
    pub(super) fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        let free: usize = state.free.iter().map(VecDeque::len).sum();
        2 * (self.slots.len() - state.unmade.len() - free) < self.slots.len()
    }

    fn made(&self) -> usize {
        self.slots.len() - self.state.lock().unmade.len()
    }

    /// Gives memory to slots until `count` have some, as far as memory is available.
    pub(super) fn fill(&self, pool: &PinnedPool, count: usize) {
        self.is_filling.store(true, Ordering::Relaxed);
        while self.made() < count
            && let Ok(Some(slot)) = self.make(Exposure::Sealed, |bytes| pool.alloc(bytes))
        {
            self.give_back(slot);
        }
        self.is_filling.store(false, Ordering::Relaxed);
        // Threads that wait for a slot may now make one.
        self.freed.notify_all();
    }

    /// As [`take`](Self::take), but makes a slot if fewer than `least` have memory and more can be
    /// made.
    pub(super) fn take_of(
        &self,
        least: usize,
        pool: &PinnedPool,
        exposure: Exposure,
        patient: bool,
        operation: &'static str,
    ) -> Result<Option<&Slot>> {
        let is_filling = self.is_filling.load(Ordering::Relaxed);
        if !is_filling && self.made() < least {
            let to = class(self.slots.len(), exposure);
            // If memory is short, the existing slots are enough.
            if let Ok(Some(new)) = self.make(to, |bytes| pool.alloc(bytes)) {
                return Ok(Some(new));
            }
        }
        self.take(pool, exposure, patient, operation)
    }

    /// A slot that the device does not use, for a stream of that exposure. Blocks until there is
    /// one. If not `patient`, returns `None` instead of blocking. `operation` is the call that
    /// waits.
    pub(super) fn take(
        &self,
        pool: &PinnedPool,
        exposure: Exposure,
        patient: bool,
        operation: &'static str,
    ) -> Result<Option<&Slot>> {
        let to = class(self.slots.len(), exposure);
        loop {
            if let Some(idle) = self.take_idle(to)? {
                return Ok(Some(idle));
            }
            let waits = !self.is_filling.load(Ordering::Relaxed) || !self.state.lock().has_any(to);
            let memory = |bytes| if waits { pool.alloc(bytes) } else { pool.try_alloc(bytes) };
            match self.make(to, memory) {
                Ok(Some(new)) => return Ok(Some(new)),
                // If memory is short, the existing slots are enough.
                Err(error) if !self.state.lock().has_any(to) => return Err(error),
                _ if !patient => return Ok(None),
                _ => {}
            }
            if let Some(oldest) = self.take_oldest(to, operation)? {
                return Ok(Some(oldest));
            }
            self.wait(to);
        }
    }

    /// A free slot that the device no longer uses: of streams of the same exposure first, then of
    /// others.
    fn take_idle(&self, to: Exposure) -> Result<Option<&Slot>> {
        let others = EXPOSURES.into_iter().filter(|&holder| holder != to);
        for holder in std::iter::once(to).chain(others) {
            let Some(index) = self.pop(holder, to) else { continue };
            let slot = &self.slots[index];
            match slot.host().is_idle() {
                Ok(true) => {
                    self.state.lock().shares.pass(index, to);
                    return Ok(Some(slot));
                }
                Ok(false) => self.put_back(|state| {
                    state.shares.pass(index, holder);
                    state.free[holder as usize].push_front(index);
                }),
                Err(error) => {
                    self.give_back(slot);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Blocks until the device is done with a free slot whose holder is no more exposed, if there
    /// is one.
    fn take_oldest(&self, to: Exposure, operation: &'static str) -> Result<Option<&Slot>> {
        let holders = EXPOSURES.into_iter().take_while(|&holder| holder <= to);
        let Some(index) = holders.into_iter().find_map(|holder| self.pop(holder, to)) else {
            return Ok(None);
        };
        let taken = self.guard(&self.slots[index]);
        taken.slot().host().wait_until_idle(operation)?;
        Ok(Some(taken.hand_over()))
    }

    fn pop(&self, holder: Exposure, to: Exposure) -> Option<usize> {
        let popped = self.state.lock().pop(holder, to);
        if popped.is_some() && holder < to {
            // Threads that counted on slots of less exposed streams may have to wait for others.
            self.freed.notify_all();
        }
        popped
    }

    /// Makes another slot, if the limit allows one.
    fn make(
        &self,
        to: Exposure,
        memory: impl FnOnce(usize) -> Result<PinnedBuf<u8>>,
    ) -> Result<Option<&Slot>> {
        let index = {
            let mut state = self.state.lock();
            let Some(&index) = state.unmade.last() else { return Ok(None) };
            if !state.shares.may_pass(index, to) {
                return Ok(None);
            }
            state.shares.pass(index, to);
            state.unmade.pop();
            index
        };
        let slot = &self.slots[index];
        match memory(self.slot_bytes) {
            Ok(memory) => {
                slot.host.get_or_init(|| memory);
                Ok(Some(slot))
            }
            Err(error) => {
                self.put_back(|state| {
                    state.shares.pass(index, Exposure::Sealed);
                    state.unmade.push(index);
                });
                Err(error)
            }
        }
    }

    /// Blocks until a slot comes back, or none will.
    fn wait(&self, to: Exposure) {
        let mut state = self.state.lock();
        while !state.has_free(to) && state.has_any(to) {
            state = self.freed.wait(state);
        }
    }

    /// Makes a guard for a slot that the caller has alone.
    pub(super) fn guard<'r>(&'r self, slot: &'r Slot) -> SlotGuard<'r> {
        SlotGuard { ring: self, slot }
    }

    /// Gives a slot back, with or without a copy in flight.
    pub(super) fn give_back(&self, slot: &Slot) {
        self.put_back(|state| {
            let holder = state.shares.holder(slot.index);
            state.free[holder as usize].push_back(slot.index);
        });
    }

    fn put_back(&self, put: impl FnOnce(&mut SlotLists)) {
        put(&mut self.state.lock());
        // Wakes all, because not every waiter may take it.
        self.freed.notify_all();
    }
}

mod shares;
#[cfg(all(test, feature = "emulated"))]
mod tests;
