//! Entries of page-locked memory: the device copies them as they are.

use std::ops::Range;

use crate::driver::{BatchCopy, BatchKind, Driver, DriverResult, Item, Mover, RawStream};
use crate::error::Result;
use crate::ticket::Ticket;
use crate::transfer::entry::{Entry, List};
use crate::transfer::order::portion;
use crate::transfer::path::Path;
use crate::transfer::share::share;
use crate::transfer::staging::Engine;
use crate::transfer::uses::{Uses, Way};

impl Engine {
    /// Enqueues the copies of page-locked entries to the device.
    pub(super) fn direct_upload(&self, uses: Uses<'_, '_>, path: Path) -> Result<Ticket> {
        let Uses { stream, operation, list, .. } = uses;
        uses.wait_for_conflicts()?;
        if path == Path::Pull {
            // The device begins with the first ones while the others' items are written.
            let middle = if list.len() < SEVERAL { 0 } else { list.len() / 2 };
            for part in [0..middle, middle..list.len()] {
                if !part.is_empty() {
                    self.pull(&uses, part)?;
                }
            }
        } else {
            let copy =
                |driver: &dyn Driver, raw| copies(driver, raw, list, 0..list.len(), path, Way::Up);
            let describe = || format!("copying {} page-locked entries to the device", list.len());
            portion(stream, operation, &[], copy, describe, |fence| uses.add(fence))?;
        }
        Ok(uses.record()?.0)
    }

    /// Enqueues a kernel that reads these entries.
    fn pull(&self, uses: &Uses<'_, '_>, part: Range<usize>) -> Result<()> {
        let mut tails: Vec<Item> = Vec::new();
        if uses.survey.crosses_seams {
            let entries = part.clone().map(|n| uses.list.get(n));
            tails.extend(entries.flat_map(|entry| items(entry).skip(1)));
        }
        let mut items = self.lists.alloc::<Item>(part.len() + tails.len())?;
        let (heads, behind) = items.write()?.split_at_mut(part.len());
        write_heads(heads, uses.list, part.start, uses.survey.crosses_seams);
        behind.copy_from_slice(&tails);
        let (at, count) = (items.as_ptr().addr() as u64, items.len());
        let bytes = uses.survey.bytes() / uses.list.len() * part.len();
        let operands = [crate::memory::sealed::Sealed::reading(&items)];
        // SAFETY: the stream is live. The items, complete and aligned, lie in one page-locked
        // block, and each source in one too (`parts`), which the device can address
        // (`Machine::kernels`). The destinations lie in the entries' device memory, borrowed
        // exclusively or found apart (`check_overlaps`), and so overlap neither one another nor
        // host memory. The uses recorded here and by `Uses` keep all valid until retired.
        let pull = |driver: &dyn Driver, raw| unsafe {
            driver.move_items(raw, Mover::Up, at, count, bytes)
        };
        let describe = || format!("copying {} page-locked entries to the device", part.len());
        let noted = |fence| uses.add(fence);
        portion(uses.stream, uses.operation, &operands, pull, describe, noted).map(drop)
    }

    /// Enqueues the copies of page-locked entries from the device, in portions of about `portion`
    /// bytes. Each comes back as the number of the entry behind it, and its ticket.
    pub(super) fn direct_download(
        &self,
        uses: Uses<'_, '_>,
        path: Path,
        bytes: usize,
    ) -> Result<Vec<(usize, Ticket)>> {
        let Uses { stream, operation, list, .. } = uses;
        uses.wait_for_conflicts()?;
        let mut portions = Vec::new();
        let mut start = 0;
        while start < list.len() {
            let mut size = 0;
            let full = (start..list.len()).position(|n| {
                size += list.get(n).bytes();
                size >= bytes
            });
            let end = full.map_or(list.len(), |last| start + last + 1);
            let copy =
                |driver: &dyn Driver, raw| copies(driver, raw, list, start..end, path, Way::Down);
            let describe = || format!("copying {} entries to page-locked memory", end - start);
            let ticket = portion(stream, operation, &[], copy, describe, |fence| uses.add(fence))?;
            portions.push((end, ticket));
            start = end;
        }
        let (last, _) = uses.record()?;
        if let Some(end) = portions.last_mut() {
            end.1 = last;
        }
        Ok(portions)
    }
}

/// What the kernel reads for an entry: an item for each registration that it lies in, one with few
/// exceptions.
fn items(entry: &Entry<'_>) -> impl Iterator<Item = Item> {
    let (host, device) = (entry.host(), entry.device.ptr());
    let parts = entry.pinned.iter().flat_map(move |pinned| pinned.parts(host, entry.bytes()));
    parts.map(move |part| Item {
        src: host.wrapping_add(part.start).addr() as u64,
        dst: device + part.start as u64,
        bytes: part.len() as u64,
    })
}

/// So many items are written by several threads.
const SEVERAL: usize = 2048;

/// Writes the first item of each entry from the `first` on.
fn write_heads(items: &mut [Item], list: List<'_, '_>, first: usize, crosses_seams: bool) {
    struct Places(*mut Item);
    // SAFETY: used by several threads for different places only.
    unsafe impl Sync for Places {}
    impl Places {
        fn at(&self, n: usize) -> *mut Item {
            self.0.wrapping_add(n)
        }
    }
    assert!(first + items.len() <= list.len());
    let places = Places(items.as_mut_ptr());
    let write = |(): &mut (), part: Range<usize>| {
        for n in part {
            let entry = list.get(first + n);
            let (src, dst) = (entry.host().addr() as u64, entry.device.ptr());
            let mut head = Item { src, dst, bytes: entry.bytes() as u64 };
            if crosses_seams && let Some(cut) = self::items(entry).next() {
                head = cut;
            }
            // SAFETY: `n` is below the length, and each is written by one thread.
            unsafe { places.at(n).write(head) };
        }
    };
    share(items.len(), SEVERAL, &write, &|()| {});
}

/// One copy of a run, with its place in the blocks.
struct Run<'e, 'a> {
    first: &'e Entry<'a>,
    bytes: usize,
}

fn copies(
    driver: &dyn Driver,
    raw: RawStream,
    list: List<'_, '_>,
    range: Range<usize>,
    path: Path,
    way: Way,
) -> DriverResult<()> {
    let mut batch = Vec::new();
    let mut copy = |host: *mut u8, device: u64, bytes: usize| {
        match (path, way) {
            (Path::Batch, Way::Up) => {
                batch.push(BatchCopy { dst: device, src: host.addr() as u64, bytes });
                Ok(())
            }
            (Path::Batch, Way::Down) => {
                batch.push(BatchCopy { dst: host.addr() as u64, src: device, bytes });
                Ok(())
            }
            // SAFETY: the stream is live. The range lies in one registration (`parts`) and in one
            // allocation; `Uses` keeps both valid until retired, and the host from touching them.
            (_, Way::Up) => unsafe { driver.copy_h2d(raw, device, host, bytes) },
            // SAFETY: as above.
            (_, Way::Down) => unsafe { driver.copy_d2h(raw, host, device, bytes) },
        }
    };
    for run in runs(list, range) {
        let Some(pinned) = &run.first.pinned else { continue };
        let (host, device) = (run.first.host(), run.first.device.ptr());
        for part in pinned.parts(host, run.bytes) {
            copy(host.wrapping_add(part.start), device + part.start as u64, part.len())?;
        }
    }
    if path != Path::Batch || batch.is_empty() {
        return Ok(());
    }
    let kind = if way == Way::Up { BatchKind::H2D } else { BatchKind::D2H };
    // SAFETY: as above, for each; no two of them overlap.
    unsafe { driver.copy_batch(raw, kind, &batch) }
}

/// Entries that follow each other on both sides are one copy.
fn runs<'e, 'a>(list: List<'e, 'a>, range: Range<usize>) -> impl Iterator<Item = Run<'e, 'a>> {
    let mut entries = range.map(move |n| list.get(n)).filter(|entry| entry.bytes() > 0).peekable();
    std::iter::from_fn(move || {
        let first = entries.next()?;
        let (mut last, mut bytes) = (first, first.bytes());
        while let Some(next) = entries.next_if(|next| {
            last.device.ptr() + last.bytes() as u64 == next.device.ptr()
                && last.device.home() == next.device.home()
                && last.is_followed_by(next)
        }) {
            bytes += next.bytes();
            last = next;
        }
        Some(Run { first, bytes })
    })
}
