//! The layout of a slot.
//!
//! A copy is a list of entries, each a range of host memory and one of device memory. Slot after
//! slot takes the next bytes of the list: a long entry goes through several slots, and many short
//! ones share one.
//!
//! ```text
//!   entries   |aaaaaaaaaaaaaaaaaaaaaa|b|c|d|eeeeeeeee|
//!   slots     [aaaaaaaaaaaaaa] [aaaaaaaa.b.c.d.ee] [eeeeeee]
//!   parts      a0  a1  a2  a3   a4  a5  b c d e0    e1  e2
//!   units     [   ][   ][   ]  [   ][   ][      ]  [   ][  ]      one worker each
//! ```
//!
//! A part keeps the alignment of its device address to 16 bytes, so that a kernel can move it in
//! vectors. A part that is read in blocks from a file keeps its offset in the block instead, so
//! that the disk can write to the slot. Entries that follow each other in one allocation follow
//! each other in the slot, so that they are one run for the copy engine. No run crosses from one
//! allocation to another: `cudaMemcpyAsync` refuses that.
//!
//! The layout stores units and runs, but no parts. A worker walks the entries of its unit again, by
//! the same rules: with thousands of entries, writing a list of parts would take longer than
//! copying their bytes. For the same reason small entries are taken [several at a time](Sums), if
//! they follow each other or a kernel will move them.

use std::convert::Infallible;
use std::ops::Range;

use crate::copy::entry::{BLOCK, Entry};
use crate::copy::survey::{SUMMED, Sum, Sums};
use crate::driver::{DevicePtr, Item};

/// The device side of a list of entries.
pub(super) trait Entries {
    fn count(&self) -> usize;
    fn span(&self, entry: usize) -> DeviceSpan;
}

/// The position of an entry on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceSpan {
    /// Identifies its allocation.
    pub(super) home: usize,
    pub(super) address: DevicePtr,
    pub(super) bytes: usize,
    /// Its offset in a file that is read in blocks.
    pub(super) blocks: Option<u64>,
}

/// Bytes of one entry in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) entry: usize,
    /// Its offset in the entry.
    pub(super) at: usize,
    /// Where it begins in the slot.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    /// Its address on the device.
    pub(super) device: DevicePtr,
}

/// Bytes that are contiguous in the slot and on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) slot: Range<usize>,
    pub(super) device: DevicePtr,
    /// Identifies its allocation.
    home: usize,
}

/// How far the list has been laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) entry: usize,
    pub(super) at: usize,
}

/// The sizes that limit the layout of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// How much of the slot may be used, at least the bytes of a part.
    pub(super) piece: usize,
    /// The bytes of a unit of work.
    pub(super) unit: usize,
    /// Whether an [`Item`] for each part goes into the slot, after the parts.
    pub(super) items: bool,
}

/// A device address and its offset in a slot differ by a multiple of this.
const ALIGN: usize = 16;

/// The fewest bytes of a part that is not the end of its entry.
const LEAST: usize = 512;

/// The work of one worker: from one position in the list to another.
#[derive(Clone, Copy, Debug)]
struct Unit {
    from: Cursor,
    to: Cursor,
    /// Where it begins in the slot.
    offset: usize,
    /// The number of its first part.
    first: usize,
}

#[derive(Debug, Default)]
pub(super) struct Layout {
    units: Vec<Unit>,
    pub(super) runs: Vec<Run>,
    pub(super) parts: usize,
    pub(super) bytes: usize,
    used: usize,
    /// How much of the slot could be used.
    piece: usize,
    /// Which portion of the copy the slot holds.
    pub(super) number: u64,
    /// The slot is one of a download, and the kernel's items are still to be written.
    pub(super) awaits_items: bool,
}

impl Entries for [Entry<'_>] {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn span(&self, entry: usize) -> DeviceSpan {
        let entry = &self[entry];
        let device = &entry.device;
        let blocks = entry.in_blocks();
        DeviceSpan { home: device.home(), address: device.ptr(), bytes: device.len(), blocks }
    }
}

impl DeviceSpan {
    /// The alignment in a slot of the bytes from `at` on, and their distance from such a boundary.
    /// Few bytes are not aligned to whole blocks, because the gap before them would cost more.
    #[inline]
    fn alignment(&self, at: usize, piece: usize) -> (usize, u64) {
        match self.blocks {
            Some(start) if 4 * BLOCK <= piece.min(self.bytes - at) => (BLOCK, start + at as u64),
            _ => (ALIGN, self.address + at as DevicePtr),
        }
    }
}

/// The next offset with that alignment. If the bytes follow the previous part on the device, that
/// is right after it.
#[inline]
fn offset_behind(used: usize, (align, phase): (usize, u64)) -> usize {
    // A power of two.
    used + (phase.wrapping_sub(used as u64) & (align as u64 - 1)) as usize
}

/// How much of a slot `bytes` bytes need in parts of `average` bytes with the widest gaps, and with
/// an item for each if `items` says so.
pub(super) fn room_for(bytes: usize, average: usize, items: bool) -> usize {
    let item = if items { size_of::<Item>() } else { 0 };
    bytes + (bytes.div_ceil(average) + 2) * (ALIGN - 1 + item)
}

impl Layout {
    /// Takes the next entries from `cursor` on, and advances it. `sums` are the sums of the
    /// entries.
    pub(super) fn fill(
        &mut self,
        cursor: &mut Cursor,
        entries: &(impl Entries + ?Sized),
        sums: &Sums,
        sizes: Sizes,
    ) {
        self.units.clear();
        self.runs.clear();
        (self.parts, self.bytes, self.used) = (0, 0, 0);
        self.piece = sizes.piece;
        let mut in_unit = 0;
        while cursor.entry < entries.count() {
            let place = entries.span(cursor.entry);
            if cursor.at == 0
                && let Some(sum) = sums.at(cursor.entry)
                && self.fill_with(sum, place, *cursor, &mut in_unit, sizes)
            {
                cursor.entry += SUMMED;
                continue;
            }
            let left = place.bytes - cursor.at;
            if left == 0 {
                *cursor = Cursor { entry: cursor.entry + 1, at: 0 };
                continue;
            }
            let (align, phase) = place.alignment(cursor.at, sizes.piece);
            let offset = offset_behind(self.used, (align, phase));
            let overhead = if sizes.items { (self.parts + 2) * size_of::<Item>() } else { 0 };
            let room = sizes.piece.saturating_sub(offset + overhead);
            if room < left.min(LEAST) && self.parts > 0 {
                break;
            }
            if in_unit == 0 {
                self.units.push(Unit { from: *cursor, to: *cursor, offset, first: self.parts });
            }
            // A short entry is not cut to make units even. A cut entry ends its unit.
            let fair = if left <= sizes.unit { left } else { (sizes.unit - in_unit).max(LEAST) };
            let mut bytes = fair.min(room.max(LEAST)).min(left);
            if bytes < left && bytes > align {
                bytes -= (offset + bytes) % align;
            }
            if !sizes.items {
                self.add_to_run(&place, cursor.at, offset, bytes);
            }
            cursor.at += bytes;
            in_unit += bytes;
            self.parts += 1;
            self.bytes += bytes;
            self.used = offset + bytes;
            if let Some(unit) = self.units.last_mut() {
                unit.to = *cursor;
            }
            if in_unit >= sizes.unit || bytes < left {
                in_unit = 0;
            }
        }
    }

    /// Takes all entries of a sum, the first of which lies at `place`, if there is room for them
    /// with the widest possible gaps. Where a copy engine gets runs, it takes only entries without
    /// gaps, because every gap costs a run.
    fn fill_with(
        &mut self,
        sum: Sum,
        place: DeviceSpan,
        at: Cursor,
        in_unit: &mut usize,
        sizes: Sizes,
    ) -> bool {
        if sum.parts == 0 {
            return true;
        }
        if place.blocks.is_some() || !(sum.is_whole || sizes.items) {
            return false;
        }
        let offset = offset_behind(self.used, (ALIGN, place.address));
        let used = if sum.is_whole {
            offset + sum.bytes
        } else {
            self.used + sum.bytes + sum.parts * (ALIGN - 1)
        };
        let parts = self.parts + sum.parts;
        let items = if sizes.items { (parts + 1) * size_of::<Item>() } else { 0 };
        if used + items > sizes.piece || sum.bytes > sizes.unit {
            return false;
        }
        if !sizes.items {
            self.add_to_run(&place, 0, offset, sum.bytes);
        }
        let next = Cursor { entry: at.entry + SUMMED, at: 0 };
        match self.units.last_mut() {
            Some(unit) if *in_unit > 0 => unit.to = next,
            _ => self.units.push(Unit { from: at, to: next, offset: self.used, first: self.parts }),
        }
        (self.used, self.parts) = (used, parts);
        self.bytes += sum.bytes;
        *in_unit = if *in_unit + sum.bytes >= sizes.unit { 0 } else { *in_unit + sum.bytes };
        true
    }

    /// Notes bytes at `offset` of the slot that go to the device, `at` bytes after `place`.
    fn add_to_run(&mut self, place: &DeviceSpan, at: usize, offset: usize, bytes: usize) {
        let (home, device) = (place.home, place.address + at as DevicePtr);
        match self.runs.last_mut() {
            Some(run)
                if run.home == home
                    && run.slot.end == offset
                    && run.device + run.slot.len() as DevicePtr == device =>
            {
                run.slot.end += bytes;
            }
            _ => self.runs.push(Run { slot: offset..offset + bytes, device, home }),
        }
    }

    pub(super) fn units(&self) -> usize {
        self.units.len()
    }

    /// Calls `with` for each part of a unit, with its number in the slot, until that fails. Walks
    /// the unit by the rules of [`fill`](Self::fill).
    #[inline(always)]
    pub(super) fn each<E: Entries + ?Sized, X>(
        &self,
        unit: usize,
        entries: &E,
        mut with: impl FnMut(usize, Part) -> Result<(), X>,
    ) -> Result<(), X> {
        let Unit { from, to, mut offset, first: mut number } = self.units[unit];
        let mut start = from.at;
        for entry in from.entry..to.entry + usize::from(to.at > 0) {
            let place = entries.span(entry);
            let stop = if entry == to.entry { to.at } else { place.bytes };
            let at = std::mem::take(&mut start);
            let bytes = stop - at;
            if bytes == 0 {
                continue;
            }
            offset = offset_behind(offset, place.alignment(at, self.piece));
            let device = place.address + at as DevicePtr;
            with(number, Part { entry, at, offset, bytes, device })?;
            offset += bytes;
            number += 1;
        }
        Ok(())
    }

    /// The bytes of a unit.
    pub(super) fn bytes_of(&self, unit: usize, entries: &(impl Entries + ?Sized)) -> usize {
        let mut bytes = 0;
        let Ok(()) = self.each::<_, Infallible>(unit, entries, |_, part| {
            bytes += part.bytes;
            Ok(())
        });
        bytes
    }

    /// The number of the last entry of a unit.
    #[inline]
    pub(super) fn last_entry(&self, unit: usize) -> usize {
        self.units[unit].to.entry
    }

    /// The number of bytes of the slot that the parts take, including the gaps.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.used
    }

    /// The offset of the items in the slot.
    pub(super) fn items_at(&self) -> usize {
        self.used.next_multiple_of(align_of::<Item>())
    }

    /// The entry that the slot's last byte belongs to, and whether it is that entry's last.
    pub(super) fn end(&self) -> Cursor {
        self.units.last().map_or(Cursor::default(), |unit| unit.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ranges(Vec<(DevicePtr, usize)>);

    impl Entries for Ranges {
        fn count(&self) -> usize {
            self.0.len()
        }
        fn span(&self, entry: usize) -> DeviceSpan {
            let (address, bytes) = self.0[entry];
            DeviceSpan { home: 0, address, bytes, blocks: None }
        }
    }

    /// All parts with their numbers.
    fn numbered(layout: &Layout, list: &impl Entries) -> Vec<(usize, Part)> {
        let mut parts = Vec::new();
        for unit in 0..layout.units() {
            let before = parts.len();
            let Ok(()) = layout.each::<_, Infallible>(unit, list, |number, part| {
                parts.push((number, part));
                Ok(())
            });
            let bytes: usize = parts[before..].iter().map(|(_, part)| part.bytes).sum();
            assert_eq!(layout.bytes_of(unit, list), bytes);
        }
        parts
    }

    fn parts(layout: &Layout, list: &Ranges) -> Vec<Part> {
        let parts = numbered(layout, list);
        assert!(parts.iter().map(|part| part.0).eq(0..layout.parts), "numbered in order");
        parts.into_iter().map(|part| part.1).collect()
    }

    /// The number of slots, with and without sums.
    fn check(list: &Ranges, sizes: Sizes) -> usize {
        check_with(list, &Sums::of(&list.0), sizes);
        check_with(list, &Sums::default(), sizes)
    }

    fn check_with(list: &Ranges, sums: &Sums, sizes: Sizes) -> usize {
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        let mut done = vec![0; list.0.len()];
        let mut slots = 0;
        loop {
            layout.fill(&mut cursor, list, sums, sizes);
            let parts = parts(&layout, list);
            if parts.is_empty() {
                break;
            }
            slots += 1;
            let mut end = 0;
            for part in &parts {
                assert_eq!(part.at, done[part.entry], "in order, without a gap");
                assert!(part.offset >= end && part.bytes > 0 && part.bytes <= sizes.unit);
                assert_eq!(part.device, list.0[part.entry].0 + part.at as u64);
                end = part.offset + part.bytes;
                done[part.entry] += part.bytes;
            }
            assert!(layout.used() >= end && (sizes.items || layout.used() == end));
            let items = parts.len() * size_of::<Item>();
            assert!(!sizes.items || layout.items_at() + items <= sizes.piece.max(LEAST + 64));
            let in_runs: usize = layout.runs.iter().map(|run| run.slot.len()).sum();
            let in_parts: usize = parts.iter().map(|part| part.bytes).sum();
            assert!(layout.bytes == in_parts && (in_runs == in_parts || sizes.items));
            for (part, run) in parts.iter().flat_map(|part| {
                let its = |run: &&Run| run.slot.contains(&part.offset);
                layout.runs.iter().find(its).map(|run| (part, run))
            }) {
                assert!(part.offset + part.bytes <= run.slot.end);
                assert_eq!(part.device, run.device + (part.offset - run.slot.start) as u64);
            }
            let last = parts.last().expect("some");
            let Cursor { entry, at } = layout.end();
            let is_next = entry > last.entry && at == 0;
            assert!(is_next || (entry, at) == (last.entry, last.at + last.bytes));
        }
        let lengths: Vec<_> = list.0.iter().map(|entry| entry.1).collect();
        assert_eq!(done, lengths, "every byte once");
        slots
    }

    #[test]
    fn every_byte_is_in_one_part() {
        let sizes = [(4096, 1024), (65536, 16384), (8192, 8192)];
        for (piece, unit) in sizes {
            for items in [false, true] {
                let sizes = Sizes { piece, unit, items };
                assert_eq!(check(&Ranges(Vec::new()), sizes), 0);
                assert_eq!(check(&Ranges(vec![(7, 0), (9, 0)]), sizes), 0);
                for length in [1, 511, 512, 513, piece - 1, piece, piece + 1, 3 * piece + 5] {
                    check(&Ranges(vec![(0x1003, length)]), sizes);
                }
                let many = (0..1000).map(|i| (0x10000 + 512 * i, (i * 37 % 400) as usize));
                check(&Ranges(many.collect()), sizes);
                let tiny = (0..1000).map(|i| (0x10000 + 64 * i + i % 16, (i % 5 * 8) as usize));
                check(&Ranges(tiny.collect()), sizes);
                let dense = (0..1000).map(|i| (0x10003 + 24 * i, 24));
                check(&Ranges(dense.collect()), sizes);
                let holes = (0..400).map(|i| (0x10000 + 64 * i, usize::from(i > 100) * 40));
                check(&Ranges(holes.collect()), sizes);
            }
        }
    }

    #[test]
    fn a_portion_has_as_many_bytes_as_meant() {
        const MEANT: usize = 300_000;
        let unit = 32 << 10;
        for length in [1, 24, 64, 250, 256, 400, 4000, 16 << 10, 100_000] {
            let list = (0..(1 << 20) / length).map(|i| ((i * (length + 1)) as DevicePtr, length));
            let list = Ranges(list.collect());
            for (items, sums) in [false, true]
                .into_iter()
                .flat_map(|items| [(items, Sums::default()), (items, Sums::of(&list.0))])
            {
                let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
                let piece = room_for(MEANT, length.min(unit), items);
                layout.fill(&mut cursor, &list, &sums, Sizes { piece, unit, items });
                assert!(layout.bytes >= MEANT, "{} bytes, {length} each", layout.bytes);
            }
        }
    }

    #[test]
    fn neighbours_are_one_run() {
        let list = Ranges((0..10).map(|i| (0x1000 + 100 * i, 100)).collect());
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        layout.fill(
            &mut cursor,
            &list,
            &Sums::default(),
            Sizes { piece: 4096, unit: 300, items: false },
        );
        assert_eq!(layout.runs, [Run { slot: 0..1000, device: 0x1000, home: 0 }]);
        assert_eq!(layout.units(), 4);
    }

    #[test]
    fn no_run_crosses_from_one_allocation_to_another() {
        struct Apart;
        impl Entries for Apart {
            fn count(&self) -> usize {
                4
            }
            fn span(&self, entry: usize) -> DeviceSpan {
                let address = 0x1000 + 64 * entry as u64;
                DeviceSpan { home: entry / 2, address, bytes: 64, blocks: None }
            }
        }
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        layout.fill(
            &mut cursor,
            &Apart,
            &Sums::default(),
            Sizes { piece: 4096, unit: 4096, items: false },
        );
        let runs = layout.runs.iter().map(|run| (run.device, run.slot.len()));
        let runs: Vec<_> = runs.collect();
        assert_eq!(runs, [(0x1000, 128), (0x1080, 128)]);
    }

    #[test]
    fn parts_keep_the_alignment_of_their_device_address() {
        let list = Ranges((0..50).map(|i| (0x1000 + 171 * i, 90)).collect());
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        layout.fill(
            &mut cursor,
            &list,
            &Sums::default(),
            Sizes { piece: 16384, unit: 1024, items: true },
        );
        assert_eq!(cursor.entry, 50);
        for part in parts(&layout, &list).iter().filter(|part| part.at == 0) {
            assert_eq!(part.offset as u64 % 16, part.device % 16);
        }
        assert_eq!(layout.items_at() % align_of::<Item>(), 0);
    }

    #[test]
    fn what_is_read_in_blocks_lies_and_ends_as_in_the_file() {
        struct File(Vec<(u64, usize)>);
        impl Entries for File {
            fn count(&self) -> usize {
                self.0.len()
            }
            fn span(&self, entry: usize) -> DeviceSpan {
                let (start, bytes) = self.0[entry];
                DeviceSpan { home: entry, address: 0x1007, bytes, blocks: Some(start) }
            }
        }
        let block = BLOCK as u64;
        for (piece, unit) in [(1024, 1024), (4 * BLOCK, BLOCK), (16 * BLOCK, 4 * BLOCK)] {
            for start in [0, 1, 511, block - 1, block, 3 * block + 5] {
                let file = File(vec![(start, 70_001), (start + 9, 300), (start + 7, 99_999)]);
                let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
                let mut aligned = 0;
                while cursor.entry < 3 {
                    layout.fill(
                        &mut cursor,
                        &file,
                        &Sums::default(),
                        Sizes { piece, unit, items: false },
                    );
                    assert!(layout.used() <= piece.max(LEAST + 16), "the slot is not left");
                    let mut end = 0;
                    for (_, part) in numbered(&layout, &file) {
                        assert!(part.offset >= end, "parts do not overlap");
                        end = part.offset + part.bytes;
                        let (start, bytes) = file.0[part.entry];
                        let (from, left) = (start + part.at as u64, bytes - part.at);
                        if 4 * BLOCK <= left.min(piece) {
                            assert_eq!(part.offset as u64 % block, from % block);
                            let end = from + part.bytes as u64;
                            assert!(
                                part.bytes <= BLOCK
                                    || end.is_multiple_of(block)
                                    || part.bytes == left
                            );
                            aligned += part.bytes;
                        }
                    }
                    assert_eq!(end, layout.used());
                }
                assert_eq!(aligned > 100_000, piece >= 4 * BLOCK);
            }
        }
    }
}
