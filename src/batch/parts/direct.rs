//! Parts of page-locked memory that lies in one registration: the device copies them directly.

use std::ops::Range;

use super::places::Places;
use crate::batch::items::HostSide;
use crate::copy::direct::{SEVERAL, write_items};
use crate::copy::entry::{Direction, PIECE, Side};
use crate::copy::issue::{Items, issue};
use crate::copy::order::Door;
use crate::copy::route::Route;
use crate::driver::{DevicePtr, Driver, Item};
use crate::error::Result;
use crate::memory::sealed::Sealed;
use crate::memory::{DeviceBytes, PinnedBuf, PinnedBytes};
use crate::pool::PinnedPool;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

pub(super) struct Direct<'d, 'a, 'i> {
    pub(super) door: Door<'d>,
    pub(super) direction: Direction,
    pub(super) host: HostSide<'a>,
    /// The block of `host`.
    pub(super) pinned: PinnedBytes<'a>,
    pub(super) device: DeviceBytes<'a>,
    pub(super) places: Places<'i>,
}

/// The addresses of the two sides.
#[derive(Clone, Copy)]
struct Bases {
    direction: Direction,
    host: u64,
    device: DevicePtr,
}

impl Bases {
    /// The copy of a part.
    #[inline]
    fn item(self, (host, device, bytes): (usize, usize, usize)) -> Item {
        let (host, device) = (self.host + host as u64, self.device + device as u64);
        let (src, dst) = self.direction.pair(host, device);
        Item { src, dst, bytes: bytes as u64 }
    }
}

impl Direct<'_, '_, '_> {
    /// Enqueues all parts; the kernel's lists come from `pool`.
    pub(super) fn enqueue(&self, route: Route, pool: &PinnedPool) -> Result<Ticket> {
        let count = self.places.count();
        if route != Route::Kernel {
            return self.submit(route, 0..count, None);
        }
        // The device begins with the first half while the other items are written.
        let middle = if count >= SEVERAL { count / 2 } else { count };
        let halves = [0..middle, middle..count].into_iter().filter(|half| !half.is_empty());
        // All memory first: a call that is refused enqueues nothing.
        let halves = halves.map(|half| Ok((pool.alloc(self.items(&half))?, half)));
        let mut ticket = Ticket::done();
        for (mut list, half) in halves.collect::<Result<Vec<_>>>()? {
            if !list.is_empty() {
                self.write(list.write()?, half.clone());
                ticket = self.submit(route, half, Some(&list))?;
            }
        }
        Ok(ticket)
    }

    /// How many items of the kernel the parts in `range` need.
    fn items(&self, range: &Range<usize>) -> usize {
        match self.places.has_pieces() {
            false => range.len(),
            true => range.clone().map(|n| self.places.get(n).2.div_ceil(PIECE)).sum(),
        }
    }

    fn write(&self, items: &mut [Item], range: Range<usize>) {
        let (places, bases) = (&self.places, self.bases());
        if !places.has_pieces() {
            let item = |n: usize| bases.item(places.get(range.start + n));
            return write_items(self.device.context().ordinal(), items, &item);
        }
        let pieces = range.flat_map(|n| {
            let (host, device, bytes) = places.get(n);
            (0..bytes).step_by(PIECE).map(move |at| (host + at, device + at, PIECE.min(bytes - at)))
        });
        items.iter_mut().zip(pieces).for_each(|(place, piece)| *place = bases.item(piece));
    }

    fn bases(&self) -> Bases {
        let host = self.host.host.expose_provenance() as u64;
        Bases { direction: self.direction, host, device: self.device.ptr() }
    }

    /// Enqueues the parts in `range`, which the kernel reads from `list`.
    fn submit(
        &self,
        route: Route,
        range: Range<usize>,
        list: Option<&PinnedBuf<Item>>,
    ) -> Result<Ticket> {
        let Direct { door, direction, host, pinned, device, ref places } = *self;
        let bases = self.bases();
        let bytes = places.group().bytes / places.count() * range.len(); // about
        let items = list.map_or(Items::default(), |list| Items {
            at: list.as_ptr().addr() as u64,
            count: list.len(),
            bytes,
        });
        let (ours, theirs) = (places.host_span(), places.device_span());
        let at = host.host.wrapping_add(ours.start);
        let mut operands = vec![
            pinned.operand_at(at, ours.len(), direction.access(Side::Host)),
            device.part(theirs.start, theirs.len()).operand(direction.access(Side::Device)),
        ];
        operands.extend(list.map(Sealed::reading));
        let enqueue = |driver: &dyn Driver, raw| {
            let copies = places.runs(range.clone()).map(|run| bases.item(run));
            // SAFETY: the stream is live. Each part lies in both sides (`Places::new`), which lie
            // in one registration (`copy_parts`) and in one allocation. Destinations are apart
            // (`Places::new`), in memory that is borrowed exclusively. The list, complete and
            // aligned, is a block of its own; the route was allowed (`Abilities::allow`), so that
            // the device can use the host's addresses. The uses that `ordered` records keep all
            // valid until retired, and keep the host from touching them.
            unsafe { issue(driver, raw, direction.kind(), route, copies, items) }
        };
        let describe = || format!("copying {} parts of page-locked memory", range.len());
        door.moving(bytes).ordered(&operands, Fencing::Own, enqueue, describe)
    }
}
