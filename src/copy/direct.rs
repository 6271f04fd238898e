//! Entries of page-locked memory: the device copies them directly.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::ops::Range;

use super::entry::{Direction, Entry, PIECE, Side};
use super::issue::{Items, issue};
use super::order::Door;
use super::route::Route;
use super::staged::share;
use super::transfer::Transfer;
use crate::driver::{DevicePtr, Driver, Item, Ordinal};
use crate::error::Result;
use crate::memory::sealed::Sealed;
use crate::memory::{DeviceBytes, PinnedBuf, PinnedBytes};
use crate::pool::PinnedPool;
use crate::ticket::Ticket;
use crate::timeline::{Fencing, SmallCopy, is_small};

/// From this many items on, several threads write the list, and the device begins with the first
/// half.
pub(crate) const SEVERAL: usize = 2048;

/// Copies page-locked bytes, as many as `device` has: checks, waits, enqueues and records. The
/// host's begin at that address in that block.
pub(crate) fn enqueue_one(
    door: Door<'_>,
    direction: Direction,
    (host, pinned): (*const u8, PinnedBytes<'_>),
    device: DeviceBytes<'_>,
) -> Result<Ticket> {
    let (host, bytes) = (host.cast_mut(), device.len());
    // `ordered` checks the driver.
    if bytes == 0 || device.context().ordinal() != door.stream.context().ordinal() {
        door.check_device(&[device.context()])?;
        return door.nothing();
    }
    let operands = [
        pinned.operand_at(host, bytes, direction.access(Side::Host)),
        device.operand(direction.access(Side::Device)),
    ];
    let enqueue = |driver: &dyn Driver, raw| {
        pinned.parts(host, bytes).try_for_each(|part| {
            let (host, device) = (host.wrapping_add(part.start), device.ptr() + part.start as u64);
            // SAFETY: the stream is live. The part lies in one registration (`parts`) and in one
            // allocation; the uses that `ordered` records keep both valid until retired, and keep
            // the host from touching them.
            unsafe {
                match direction {
                    Direction::Up => driver.copy_h2d(raw, device, host, part.len()),
                    Direction::Down => driver.copy_d2h(raw, host, device, part.len()),
                }
            }
        })
    };
    let fencing = if is_small(bytes) && !pinned.crosses_seam(host, bytes) {
        let item = direction.item(host, device.ptr(), bytes);
        // SAFETY: as above, for all of the bytes. The caller's views, which are borrowed until the
        // submission returns, keep other code from the bytes until then.
        Fencing::Merged(unsafe { SmallCopy::new(direction.kind(), item) })
    } else {
        Fencing::of_copy(bytes)
    };
    let describe = || format!("copying {bytes} bytes");
    door.moving(bytes).ordered(&operands, fencing, enqueue, describe)
}

/// Copies page-locked entries whose memory is borrowed for the call: returns when the device is
/// done with it. First blocks until the stream has reached the copy.
pub(crate) fn copy_one(transfer: Transfer<'_, '_>) -> Result<Ticket> {
    let transfer = transfer.for_the_call(true);
    transfer.begin()?;
    let ticket = enqueue_part(&transfer, Route::Copies, 0..transfer.entries.len(), None)?;
    drop(transfer); // waits
    ticket.is_done()?;
    Ok(ticket)
}

/// The lists that the kernel reads, by their range of entries. Each is written once, and every
/// submission of the same entries reads it.
#[derive(Default)]
pub(crate) struct Lists(BTreeMap<(usize, usize), PinnedBuf<Item>>);

/// Enqueues the copies of page-locked entries, in portions of about `bytes` bytes. Returns for each
/// portion the number of the first entry after it, and its ticket. Uses the kernel's lists in
/// `kept`, and adds missing ones there, in memory of `pool`.
pub(crate) fn enqueue(
    transfer: &Transfer<'_, '_>,
    route: Route,
    bytes: usize,
    pool: &PinnedPool,
    kept: &mut Lists,
) -> Result<Vec<(usize, Ticket)>> {
    transfer.begin()?;
    let entries = transfer.entries;
    let mut portions = Vec::new();
    let mut start = 0;
    while start < entries.len() {
        let end = end_of_portion(entries, start, bytes);
        // The device begins with the first half while the other items are written.
        let middle = match route {
            Route::Kernel if end - start >= SEVERAL => start.midpoint(end),
            _ => end,
        };
        for part in [start..middle, middle..end] {
            if !part.is_empty() {
                let list = match route {
                    Route::Kernel => Some(kept.get(transfer, part.clone(), pool)?),
                    Route::Copies | Route::BatchCall => None,
                };
                portions.push((part.end, enqueue_part(transfer, route, part, list)?));
            }
        }
        start = end;
    }
    let last = transfer.ticket();
    if let Some(portion) = portions.last_mut() {
        portion.1 = last;
    }
    Ok(portions)
}

/// The number of the first entry after a portion of about `bytes` bytes that begins at `start`.
fn end_of_portion(entries: &[Entry<'_>], start: usize, bytes: usize) -> usize {
    if bytes == usize::MAX {
        return entries.len();
    }
    let mut size = 0;
    let full = entries[start..].iter().position(|entry| {
        size += entry.bytes();
        size >= bytes
    });
    full.map_or(entries.len(), |last| start + last + 1)
}

impl Lists {
    /// The kernel's list for some entries of the transfer.
    fn get(
        &mut self,
        transfer: &Transfer<'_, '_>,
        part: Range<usize>,
        pool: &PinnedPool,
    ) -> Result<&PinnedBuf<Item>> {
        Ok(match self.0.entry((part.start, part.end)) {
            Occupied(known) => known.into_mut(),
            Vacant(place) => {
                let Transfer { direction, entries, .. } = *transfer;
                let has_pieces = transfer.survey.has_pieces;
                place.insert(write_list(direction, &entries[part], has_pieces, pool)?)
            }
        })
    }
}

/// Enqueues the copies of some entries, as a portion of the transfer.
fn enqueue_part(
    transfer: &Transfer<'_, '_>,
    route: Route,
    part: Range<usize>,
    list: Option<&PinnedBuf<Item>>,
) -> Result<Ticket> {
    let (direction, all) = (transfer.direction, transfer.entries);
    let entries = &all[part];
    let bytes = transfer.survey.group.bytes / all.len() * entries.len(); // about
    let items = list.map_or(Items::default(), |list| Items {
        at: list.as_ptr().addr() as u64,
        count: list.len(),
        bytes,
    });
    let operands: Vec<_> = list.map(Sealed::reading).into_iter().collect();
    transfer.door.moving(bytes).portion(
        &operands,
        |driver: &dyn Driver, raw| {
            let copies = merged(entries).flat_map(|(first, bytes)| parts(first, bytes));
            let copies = copies.map(|(host, device, bytes)| direction.item(host, device, bytes));
            // SAFETY: the stream is live. Each copy lies in one registration (`parts`, `pieces`)
            // and in one allocation. Destinations are borrowed exclusively, or were found
            // apart (`check_disjoint`). The list, complete and aligned, is a block of its own; the
            // route was allowed (`Abilities::allow`), so that the device can use the host's
            // addresses. The uses recorded here and by `Transfer` keep all valid until retired, and
            // keep the host from touching them.
            unsafe { issue(driver, raw, direction.kind(), route, copies, items) }
        },
        || format!("copying {} page-locked entries", entries.len()),
        |fence| transfer.add(fence),
    )
}

/// Writes the kernel's list: an item for the first piece of each entry, then the other pieces.
fn write_list(
    direction: Direction,
    entries: &[Entry<'_>],
    has_pieces: bool,
    pool: &PinnedPool,
) -> Result<PinnedBuf<Item>> {
    let mut tails: Vec<Item> = Vec::new();
    if has_pieces {
        let long = entries.iter().filter(|entry| entry.has_pieces());
        tails.extend(long.flat_map(|entry| pieces(direction, entry).skip(1)));
    }
    let mut list = pool.alloc::<Item>(entries.len() + tails.len())?;
    let (heads, behind) = list.write()?.split_at_mut(entries.len());
    write_heads(direction, heads, entries, has_pieces);
    behind.copy_from_slice(&tails);
    Ok(list)
}

/// Cuts `bytes` bytes, from the start of an entry on, into parts that lie in one registration each:
/// their addresses on the host and on the device, and their lengths.
fn parts(
    first: &Entry<'_>,
    bytes: usize,
) -> impl Iterator<Item = (*mut u8, DevicePtr, usize)> + use<> {
    let (host, device) = (first.host(), first.device.ptr());
    let parts = first.pinned.map(|pinned| pinned.parts(host, bytes));
    parts.into_iter().flatten().map(move |part| {
        (host.wrapping_add(part.start), device + part.start as DevicePtr, part.len())
    })
}

/// The items of an entry. Each lies in one registration and is at most [`PIECE`] bytes long, so
/// that a long entry is work for many warps.
fn pieces(direction: Direction, entry: &Entry<'_>) -> impl Iterator<Item = Item> + use<> {
    parts(entry, entry.bytes()).flat_map(move |(host, device, bytes)| {
        (0..bytes).step_by(PIECE).map(move |at| {
            let device = device + at as DevicePtr;
            direction.item(host.wrapping_add(at), device, PIECE.min(bytes - at))
        })
    })
}

/// Writes the first item of each entry.
fn write_heads(direction: Direction, items: &mut [Item], entries: &[Entry<'_>], has_pieces: bool) {
    assert_eq!(items.len(), entries.len());
    let device = entries.first().map_or(0, |entry| entry.device.context().ordinal());
    write_items(device, items, &|n| {
        let entry = &entries[n];
        let first = || pieces(direction, entry).next();
        let cut = (has_pieces && entry.has_pieces()).then(first).flatten();
        let whole = || direction.item(entry.host(), entry.device.ptr(), entry.bytes());
        cut.unwrap_or_else(whole)
    });
}

/// Writes each item of a kernel's list for `device`; `item` gives it by its number.
pub(crate) fn write_items(
    device: Ordinal,
    items: &mut [Item],
    item: &(impl Fn(usize) -> Item + Sync),
) {
    // SAFETY: the same places, which get complete items only.
    let places = unsafe { std::slice::from_raw_parts_mut(items.as_mut_ptr().cast(), items.len()) };
    share::write(device, SEVERAL, places, item);
}

/// The runs of entries that follow each other on both sides: the first entry of each, and the bytes
/// of all together.
fn merged<'e, 'a>(entries: &'e [Entry<'a>]) -> impl Iterator<Item = (&'e Entry<'a>, usize)> {
    let mut entries = entries.iter().filter(|entry| entry.bytes() > 0).peekable();
    std::iter::from_fn(move || {
        let first = entries.next()?;
        let (mut last, mut bytes) = (first, first.bytes());
        while let Some(next) = entries
            .next_if(|next| last.device.is_followed_by(&next.device) && last.is_followed_by(next))
        {
            bytes += next.bytes();
            last = next;
        }
        Some((first, bytes))
    })
}
