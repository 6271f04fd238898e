//! What lies where in a slot.
//!
//! A copy is a list of entries, each a range of host memory and one of device memory. Slot after slot takes
//! the next bytes of the list: a long entry goes through several slots, and many short ones share one.
//!
//! ```text
//!   entries   |aaaaaaaaaaaaaaaaaaaaaa|b|c|d|eeeeeeeee|
//!   slots     [aaaaaaaaaaaaaa] [aaaaaaaa.b.c.d.ee] [eeeeeee]
//!   parts      a0  a1  a2  a3   a4  a5  b c d e0    e1  e2
//!   units     [   ][   ][   ]  [   ][   ][      ]  [   ][  ]      one worker each
//! ```
//!
//! A part keeps the alignment of its device address to 16 bytes, so that a kernel can move it in vectors;
//! entries that follow each other in one allocation follow each other in the slot, so that they are one run for
//! the copy engine. No run crosses from one allocation to another, which `cudaMemcpyAsync` refuses.

use std::ops::Range;

use crate::driver::{DevicePtr, Item};

/// Bytes of one entry in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) entry: usize,
    /// Where it begins in the entry.
    pub(super) at: usize,
    /// Where it begins in the slot.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    /// Where it begins on the device.
    pub(super) device: DevicePtr,
    /// Which allocation it lies in.
    pub(super) home: usize,
}

/// Bytes that lie without a gap in the slot and on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) slot: Range<usize>,
    pub(super) device: DevicePtr,
}

/// How far the list has been laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) entry: usize,
    pub(super) at: usize,
}

/// The sizes that a slot is laid out to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// How much of the slot may be used, a part's bytes at least.
    pub(super) piece: usize,
    /// The bytes of a unit of work.
    pub(super) unit: usize,
    /// Whether an [`Item`] for each part goes into the slot, behind the parts.
    pub(super) items: bool,
}

/// The fewest bytes of a part that is not the end of its entry.
const LEAST: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Layout {
    parts: Vec<Part>,
    /// Where each unit ends in `parts`.
    units: Vec<usize>,
    used: usize,
}

impl Layout {
    /// Takes the next entries, given as device address and length, from `cursor` on; moves it.
    pub(super) fn fill(
        &mut self,
        cursor: &mut Cursor,
        entries: &(impl Entries + ?Sized),
        sizes: Sizes,
    ) {
        self.parts.clear();
        self.units.clear();
        self.used = 0;
        let (mut in_unit, mut end) = (0, None);
        while cursor.entry < entries.count() {
            let Place { home, address, bytes } = entries.device(cursor.entry);
            let left = bytes - cursor.at;
            if left == 0 {
                *cursor = Cursor { entry: cursor.entry + 1, at: 0 };
                continue;
            }
            let device = address + cursor.at as DevicePtr;
            let offset = if end == Some((home, device)) {
                self.used
            } else {
                self.used.next_multiple_of(16) + (device % 16) as usize
            };
            let overhead = if sizes.items { (self.parts.len() + 2) * size_of::<Item>() } else { 0 };
            let room = sizes.piece.saturating_sub(offset + overhead);
            if room < left.min(LEAST) && !self.parts.is_empty() {
                break;
            }
            // A short entry is not cut for the sake of even units.
            let fair = if left <= sizes.unit { left } else { (sizes.unit - in_unit).max(LEAST) };
            let bytes = fair.min(room.max(LEAST)).min(left);
            self.parts.push(Part {
                entry: cursor.entry,
                at: cursor.at,
                offset,
                bytes,
                device,
                home,
            });
            self.used = offset + bytes;
            end = Some((home, device + bytes as DevicePtr));
            cursor.at += bytes;
            in_unit += bytes;
            if in_unit >= sizes.unit {
                self.units.push(self.parts.len());
                in_unit = 0;
            }
        }
        if in_unit > 0 {
            self.units.push(self.parts.len());
        }
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn units(&self) -> usize {
        self.units.len()
    }

    /// The parts of a unit.
    pub(super) fn unit(&self, unit: usize) -> &[Part] {
        let start = if unit == 0 { 0 } else { self.units[unit - 1] };
        &self.parts[start..self.units[unit]]
    }

    /// How many bytes of the slot the parts take.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Where the items begin in the slot.
    pub(super) fn items_at(&self) -> usize {
        self.used.next_multiple_of(align_of::<Item>())
    }

    /// What a copy engine is told: as few runs as there can be.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        let mut parts = self.parts.iter().peekable();
        std::iter::from_fn(move || {
            let first = parts.next()?;
            let mut end = first.offset + first.bytes;
            let distance = first.device.wrapping_sub(first.offset as DevicePtr);
            while let Some(next) = parts.next_if(|next| {
                next.offset == end
                    && next.home == first.home
                    && next.device.wrapping_sub(next.offset as DevicePtr) == distance
            }) {
                end = next.offset + next.bytes;
            }
            Some(Run { slot: first.offset..end, device: first.device })
        })
    }

    /// The entries that have bytes in the slot, each with its range of bytes.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut parts = self.parts.iter().peekable();
        std::iter::from_fn(move || {
            let first = parts.next()?;
            let mut end = first.at + first.bytes;
            while let Some(next) = parts.next_if(|next| next.entry == first.entry) {
                end = next.at + next.bytes;
            }
            Some((first.entry, first.at..end))
        })
    }
}

/// Where an entry lies on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Tells its allocation from others.
    pub(super) home: usize,
    pub(super) address: DevicePtr,
    pub(super) bytes: usize,
}

/// A list of device ranges.
pub(super) trait Entries {
    fn count(&self) -> usize;
    fn device(&self, entry: usize) -> Place;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct List(Vec<(DevicePtr, usize)>);

    impl Entries for List {
        fn count(&self) -> usize {
            self.0.len()
        }
        fn device(&self, entry: usize) -> Place {
            let (address, bytes) = self.0[entry];
            Place { home: 0, address, bytes }
        }
    }

    fn check(list: &List, sizes: Sizes) -> usize {
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        let mut done = vec![0; list.0.len()];
        let mut slots = 0;
        loop {
            layout.fill(&mut cursor, list, sizes);
            if layout.parts().is_empty() {
                break;
            }
            slots += 1;
            let mut end = 0;
            for part in layout.parts() {
                assert_eq!(part.at, done[part.entry], "in order, without a gap");
                assert!(part.offset >= end && part.bytes > 0 && part.bytes <= sizes.unit);
                assert_eq!(part.device, list.0[part.entry].0 + part.at as u64);
                end = part.offset + part.bytes;
                done[part.entry] += part.bytes;
            }
            assert_eq!(layout.used(), end);
            let items = layout.parts().len() * size_of::<Item>();
            assert!(!sizes.items || layout.items_at() + items <= sizes.piece.max(LEAST + 64));
            let units: Vec<_> = (0..layout.units()).flat_map(|unit| layout.unit(unit)).collect();
            assert!(units.iter().copied().eq(layout.parts()), "each part is in one unit");
            let in_runs: usize = layout.runs().map(|run| run.slot.len()).sum();
            let in_parts: usize = layout.parts().iter().map(|part| part.bytes).sum();
            let in_entries: usize = layout.entries().map(|(_, range)| range.len()).sum();
            assert!(in_runs == in_parts && in_entries == in_parts);
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
                assert_eq!(check(&List(Vec::new()), sizes), 0);
                assert_eq!(check(&List(vec![(7, 0), (9, 0)]), sizes), 0);
                for length in [1, 511, 512, 513, piece - 1, piece, piece + 1, 3 * piece + 5] {
                    check(&List(vec![(0x1003, length)]), sizes);
                }
                let many = (0..1000).map(|i| (0x10000 + 512 * i, (i * 37 % 400) as usize));
                check(&List(many.collect()), sizes);
            }
        }
    }

    #[test]
    fn neighbours_are_one_run() {
        let list = List((0..10).map(|i| (0x1000 + 100 * i, 100)).collect());
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        layout.fill(&mut cursor, &list, Sizes { piece: 4096, unit: 300, items: false });
        let runs: Vec<_> = layout.runs().collect();
        assert_eq!(runs, [Run { slot: 0..1000, device: 0x1000 }]);
        assert_eq!(layout.units(), 4);
    }

    #[test]
    fn no_run_crosses_from_one_allocation_to_another() {
        struct Apart;
        impl Entries for Apart {
            fn count(&self) -> usize {
                4
            }
            fn device(&self, entry: usize) -> Place {
                Place { home: entry / 2, address: 0x1000 + 64 * entry as u64, bytes: 64 }
            }
        }
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        layout.fill(&mut cursor, &Apart, Sizes { piece: 4096, unit: 4096, items: false });
        let runs: Vec<_> = layout.runs().map(|run| (run.device, run.slot.len())).collect();
        assert_eq!(runs, [(0x1000, 128), (0x1080, 128)]);
    }

    #[test]
    fn parts_keep_the_alignment_of_their_device_address() {
        let list = List((0..50).map(|i| (0x1000 + 171 * i, 90)).collect());
        let (mut layout, mut cursor) = (Layout::default(), Cursor::default());
        layout.fill(&mut cursor, &list, Sizes { piece: 16384, unit: 1024, items: true });
        assert_eq!(cursor.entry, 50);
        for part in layout.parts().iter().filter(|part| part.at == 0) {
            assert_eq!(part.offset as u64 % 16, part.device % 16);
        }
        assert_eq!(layout.items_at() % align_of::<Item>(), 0);
    }
}
