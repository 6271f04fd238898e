//! What a thread does with a unit of a slot: it copies the parts, and writes their items for the
//! kernel. A unit may have hundreds of parts, so the loops here do little for each.

use std::convert::Infallible;

use super::layout::Part;
use super::ring::Slot;
use super::simd::Stores;
use crate::copy::entry::{Direction, Entry};
use crate::driver::{DevicePtr, Item};
use crate::error::Result;

/// How many entries before its copy the host memory of an entry is fetched, which is usually in no
/// cache of this core: of short entries, and of those from [`LONG`] bytes on.
const AHEAD: [usize; 2] = [6, 1];
/// While so many bytes are copied, the first lines of the next entry arrive.
const LONG: usize = 1 << 10;

/// The work on the units of a transfer.
pub(super) struct Work<'w, 'a> {
    pub(super) operation: &'static str,
    pub(super) direction: Direction,
    pub(super) entries: &'w [Entry<'a>],
    pub(super) stores: Stores,
    /// A kernel moves the parts.
    pub(super) items: bool,
}

/// Where the items of a slot lie.
struct Items {
    direction: Direction,
    at: *mut Item,
}

impl Items {
    /// Writes the item for a part, which lies at `host` in the slot.
    ///
    /// # Safety
    ///
    /// * The slot has a part of that number. It belongs to the caller, and the device is done with
    ///   the slot.
    #[inline(always)]
    unsafe fn write(&self, number: usize, host: *const u8, device: DevicePtr, bytes: usize) {
        let item = self.direction.item(host, device, bytes);
        let place = self.at.wrapping_add(number);
        // SAFETY: the place lies in the slot, after the parts (`Sizes::items`), and is aligned; it
        // belongs to the caller as the part does.
        unsafe { place.write(item) };
    }
}

impl Work<'_, '_> {
    fn items(&self, slot: &Slot, items_at: usize) -> Items {
        Items { direction: self.direction, at: slot.address(items_at).cast() }
    }

    /// The entry to fetch when that part is copied. `last` is the unit's last.
    #[inline(always)]
    fn ahead(&self, part: &Part, last: usize) -> Option<&Entry<'_>> {
        let ahead = part.entry + AHEAD[usize::from(part.bytes >= LONG)];
        if ahead <= last { self.entries.get(ahead) } else { None }
    }

    /// Writes the items of a unit.
    ///
    /// # Safety
    ///
    /// * The caller is a worker of the slot, and the unit belongs to it. The device is done with
    ///   the slot.
    pub(super) unsafe fn write_items(&self, slot: &Slot, unit: usize) {
        // SAFETY: a worker of the slot.
        let layout = unsafe { slot.layout() };
        let (base, items) = (slot.address(0), self.items(slot, layout.items_at()));
        let Ok(()) = layout.each::<_, Infallible>(unit, self.entries, |number, part| {
            let at = base.wrapping_add(part.offset);
            // SAFETY: the unit, and so the part, belongs to the caller.
            unsafe { items.write(number, at, part.device, part.bytes) };
            Ok(())
        });
    }

    /// Copies a unit of an upload to the slot, and writes its items. Fails if a source cannot be
    /// read.
    ///
    /// # Safety
    ///
    /// * As for [`write_items`](Self::write_items). The entries are those of an upload, of pageable
    ///   memory or sources.
    pub(super) unsafe fn fill(&self, slot: &Slot, unit: usize) -> Result<()> {
        // SAFETY: a worker of the slot.
        let layout = unsafe { slot.layout() };
        let (base, items) = (slot.address(0), self.items(slot, layout.items_at()));
        let last = layout.last_entry(unit);
        layout.each(unit, self.entries, |number, part| {
            if let Some(ahead) = self.ahead(&part, last) {
                ahead.fetch();
            }
            let at = base.wrapping_add(part.offset);
            // SAFETY: an entry of an upload, of pageable memory or a source, and the part lies in
            // it; the part's bytes of the slot are initialised, as all of the pool's memory is, and
            // belong to the caller; the device is done with the slot.
            unsafe {
                self.entries[part.entry].fill(
                    self.operation,
                    part.at,
                    at,
                    part.bytes,
                    self.stores,
                )?
            };
            if self.items {
                // SAFETY: the unit, and so the part, belongs to the caller.
                unsafe { items.write(number, at, part.device, part.bytes) };
            }
            Ok(())
        })
    }

    /// Copies a unit of a download from the slot.
    ///
    /// # Safety
    ///
    /// * The caller is a worker of the slot, and the unit belongs to it. The copy to the slot is
    ///   complete. The entries are those of a download, to pageable memory or sinks.
    pub(super) unsafe fn drain(&self, slot: &Slot, unit: usize) {
        // SAFETY: a worker of the slot.
        let layout = unsafe { slot.layout() };
        let base = slot.address(0).cast_const();
        let last = layout.last_entry(unit);
        let Ok(()) = layout.each::<_, Infallible>(unit, self.entries, |_, part| {
            if let Some(ahead) = self.ahead(&part, last) {
                ahead.fetch_to_write(self.stores);
            }
            let at = base.wrapping_add(part.offset);
            // SAFETY: an entry of a download, to pageable memory or a sink, and the part lies in
            // it; its bytes belong to the caller, on both sides, and have arrived.
            unsafe { self.entries[part.entry].drain(part.at, at, part.bytes, self.stores) };
            Ok(())
        });
    }
}
