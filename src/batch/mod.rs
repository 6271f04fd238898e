//! Many copies by one call: thousands of small copies for about the cost of one.
//!
//! The copies of a batch are unordered among themselves, and their destinations must not overlap.
//! Copies of page-locked memory and of pageable memory take different ways: the device copies the
//! former directly, the latter go through slots of page-locked memory. Both take the [`Route`] that
//! is fastest by rule, unless the caller has chosen one. A slice in memory of a pool is
//! page-locked, so the device copies it directly too, and the call waits for that.

mod entries;
mod gather;
mod items;
mod list;
mod on_device;
mod pairs;
mod parts;
mod rows;
mod strided;

pub use self::items::{DeviceCopy, Download, HostSlice, HostSliceMut, Upload};
pub use self::list::{Downloads, Uploads};
use self::list::{List, Prepared};
pub use self::pairs::Pairs;
pub use self::parts::Parts;
pub use self::rows::Indices;
pub use crate::copy::route::Route;

use crate::copy::direct;
use crate::copy::entry::{Direction, Entry};
use crate::copy::order::Door;
use crate::copy::route::{Abilities, Between, Group};
use crate::copy::staged::refuse_inside;
use crate::copy::staged::team::Workload;
use crate::copy::transfer::{Transfer, check_disjoint};
use crate::error::{Error, ErrorKind, Result};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Stream {
    /// Makes many copies from host memory, pageable or page-locked, to this stream's device.
    /// Returns when pageable memory may be reused; the ticket says when all has arrived.
    ///
    /// Ordered as [`upload`](Self::upload); the copies are unordered among themselves. With views
    /// of page-locked buffers only, the call does not wait for the stream; with slices it does, as
    /// [`upload_slice`](Self::upload_slice). Slices in memory of a pool, however short, are copied
    /// directly, and the call waits for them.
    ///
    /// ```
    /// use pinlane::Device;
    ///
    /// let device = Device::open_or_emulated()?;
    /// let stream = device.stream()?;
    /// let weights: Vec<Vec<f32>> = (0..1000).map(|i| vec![i as f32; 100]).collect();
    /// let mut gpu = weights.iter().map(|w| device.alloc(w.len())).collect::<Result<Vec<_>, _>>()?;
    /// stream.upload_batch(weights.iter().zip(&mut gpu))?;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`upload_slice`](Self::upload_slice), and
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if destinations in borrowed memory overlap:
    /// nothing was enqueued. Errors of the runtime: the contents of all destinations are
    /// unspecified.
    pub fn upload_batch<'a>(
        &self,
        copies: impl IntoIterator<Item = impl Into<Upload<'a>>>,
    ) -> Result<Ticket> {
        let mut list = copies.into_iter().collect();
        self.upload_entries(self.door("Stream::upload_batch"), &mut list)
    }

    /// As [`upload_batch`](Self::upload_batch), for a list that can be used again: the first call
    /// checks it and lays it out, the others only enqueue. The list borrows its memory; [`Pairs`]
    /// gives access to it between two calls.
    ///
    /// # Errors
    ///
    /// As for [`upload_batch`](Self::upload_batch);
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the list's route is not possible on this
    /// device and stream.
    pub fn upload_list(&self, list: &mut Uploads<'_>) -> Result<Ticket> {
        self.upload_entries(self.door("Stream::upload_list"), list)
    }

    /// Makes many copies from this stream's device to host memory, pageable or page-locked. Returns
    /// when all data for pageable memory has arrived; the ticket says when the rest has. Ordered as
    /// [`upload`](Self::upload); the copies are unordered among themselves.
    ///
    /// # Errors
    ///
    /// As for [`download_slice`](Self::download_slice).
    pub fn download_batch<'a>(
        &self,
        copies: impl IntoIterator<Item = impl Into<Download<'a>>>,
    ) -> Result<Ticket> {
        let mut list = copies.into_iter().collect();
        self.download_entries(self.door("Stream::download_batch"), &mut list, None)
    }

    /// As [`download_batch`](Self::download_batch), for a list that can be used again, like
    /// [`upload_list`](Self::upload_list).
    ///
    /// # Errors
    ///
    /// As for [`upload_list`](Self::upload_list).
    pub fn download_list(&self, list: &mut Downloads<'_>) -> Result<Ticket> {
        self.download_entries(self.door("Stream::download_list"), list, None)
    }

    /// As [`download_batch`](Self::download_batch), and calls `each` with the number and the bytes
    /// of every copy as it lands, on this thread, while others are still in flight. Returns when
    /// all have landed.
    ///
    /// Inside `each`, copies of pageable memory that go through slots fail with
    /// [`Unsupported`](crate::ErrorKind::Unsupported): they might wait for slots that the copies in
    /// flight hold.
    ///
    /// Copies to one kind of memory land in their order; those to page-locked memory come first. If
    /// `each` panics, the call still completes the copies before the panic continues.
    ///
    /// # Errors
    ///
    /// As for [`download_batch`](Self::download_batch). Copies that `each` was called for have
    /// landed nevertheless.
    pub fn download_batch_each<'a>(
        &self,
        copies: impl IntoIterator<Item = impl Into<Download<'a>>>,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let mut list = copies.into_iter().collect();
        let door = self.door("Stream::download_batch_each");
        self.download_entries(door, &mut list, Some(&mut each)).map(drop)
    }

    /// As [`download_batch_each`](Self::download_batch_each), for a list that can be used again.
    ///
    /// # Errors
    ///
    /// As for [`download_batch_each`](Self::download_batch_each) and
    /// [`download_list`](Self::download_list).
    pub fn download_list_each(
        &self,
        list: &mut Downloads<'_>,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let door = self.door("Stream::download_list_each");
        self.download_entries(door, list, Some(&mut each)).map(drop)
    }

    fn upload_entries(&self, door: Door<'_>, uploads: &mut Uploads<'_>) -> Result<Ticket> {
        self.copy_entries(door, Direction::Up, &uploads.0, &mut uploads.1, None)
    }

    fn download_entries(
        &self,
        door: Door<'_>,
        downloads: &mut Downloads<'_>,
        each: Option<Each<'_>>,
    ) -> Result<Ticket> {
        self.copy_entries(door, Direction::Down, &downloads.0, &mut downloads.1, each)
    }

    /// Copies all entries; the ticket covers all of them. Reports each download to the caller as it
    /// lands, if asked.
    fn copy_entries<'a>(
        &self,
        door: Door<'_>,
        direction: Direction,
        list: &List<'a>,
        prepared: &mut Prepared<'a>,
        mut each: Option<Each<'_>>,
    ) -> Result<Ticket> {
        let batch = Batch::new(door, direction, list, prepared)?;
        if direction == Direction::Up && !prepared.are_apart {
            batch.check_disjoint(door)?;
            prepared.are_apart = true;
        }
        let engine = self.device.engine()?;
        let routes = batch.routes(engine.abilities(door)?, list.route)?;
        let Batch { pinned, pageable } = batch;
        if pinned.is_none() && pageable.is_none() {
            door.nothing()?;
        }
        let mut ticket = Ticket::done();
        if let Some(transfer) = pinned {
            let bytes = if each.is_some() { PORTION } else { usize::MAX };
            let (pool, kept) = (&engine.lists, &mut prepared.lists);
            let portions = direct::enqueue(&transfer, routes[0], bytes, pool, kept)?;
            // Lives until all have landed, if it must wait for that.
            let _transfer = transfer.unless_it_waits();
            ticket = portions.last().map_or(ticket, |(_, last)| last.clone());
            if let Some(each) = &mut each {
                let mut numbers = list.numbers(true);
                let mut told = 0;
                for (end, landed) in portions {
                    landed.wait_in(door.operation)?;
                    tell(each, &list.pinned[told..end], &mut numbers);
                    told = end;
                }
            }
        } else if let Some(each) = &mut each {
            tell(each, &list.pinned, &mut list.numbers(true));
        }
        let mut numbers = list.numbers(false);
        match (pageable, each) {
            // After the page-locked copies on the stream, so its ticket covers them too.
            (Some(transfer), None) => {
                ticket = engine.copy(transfer, routes[1], Workload::Copying)?;
            }
            (Some(transfer), Some(mut each)) => {
                engine.download_each(transfer, routes[1], Workload::Copying, &mut |n| {
                    tell(&mut each, &list.pageable[n..=n], &mut numbers);
                })?;
            }
            (None, Some(mut each)) => tell(&mut each, &list.pageable, &mut numbers),
            (None, None) => {}
        }
        Ok(ticket)
    }
}

/// The caller's function for each copy that lands.
type Each<'f> = &'f mut dyn FnMut(usize, &[u8]);

/// With such a function, page-locked copies land in portions of this many bytes.
const PORTION: usize = 1 << 20;

/// Calls the function for entries that have landed.
fn tell(each: &mut Each<'_>, entries: &[Entry<'_>], numbers: &mut impl Iterator<Item = usize>) {
    for (entry, number) in entries.iter().zip(numbers) {
        // SAFETY: the bytes have arrived, and are not written, because the caller's borrow lasts
        // until the call returns.
        each(number, unsafe { entry.landed() });
    }
}

/// The two parts of a batch, if they have anything to copy.
struct Batch<'e, 'a> {
    pinned: Option<Transfer<'e, 'a>>,
    pageable: Option<Transfer<'e, 'a>>,
}

impl<'e, 'a> Batch<'e, 'a> {
    fn new(
        door: Door<'e>,
        direction: Direction,
        list: &'e List<'a>,
        prepared: &mut Prepared<'a>,
    ) -> Result<Self> {
        door.stream.context().check_process(door.operation)?;
        list.check_lengths(door.operation)?;
        let transfer = |entries: &'e [Entry<'a>], survey: &mut _, for_the_call| -> Result<_> {
            let transfer = Transfer::prepared(door, direction, entries, survey)?;
            let transfer = transfer.for_the_call(for_the_call).of_rows(list.rows.clone());
            Ok(Some(transfer).filter(|transfer| transfer.survey.group.entries > 0))
        };
        let batch = Batch {
            pinned: transfer(&list.pinned, &mut prepared.pinned, list.has_slices)?,
            pageable: transfer(&list.pageable, &mut prepared.pageable, false)?,
        };
        if batch.pageable.is_some() {
            // Before the page-locked copies, so that a refused call enqueues nothing.
            refuse_inside(door.operation)?;
        }
        Ok(batch)
    }

    /// Refuses destinations on the device that overlap.
    fn check_disjoint(&self, door: Door<'_>) -> Result<()> {
        let parts = || self.pinned.iter().chain(&self.pageable);
        let may_overlap = parts().any(|it| it.survey.may_overlap)
            || parts().count() == 2 && parts().any(|it| it.survey.is_borrowed);
        if !may_overlap {
            return Ok(());
        }
        let entries = parts().flat_map(|it| it.entries);
        let ranges = entries.map(|entry| (entry.device.ptr(), entry.bytes()));
        check_disjoint(door.operation, ranges)
    }

    /// The routes of the two parts: the caller's route, if there is one.
    fn routes(&self, abilities: Abilities, forced: Option<Route>) -> Result<[Route; 2]> {
        let route = |transfer: &Option<Transfer<'_, '_>>, between: fn(Direction) -> Between| {
            let Some(transfer) = transfer else { return Ok(Route::Copies) };
            let between = between(transfer.direction);
            chosen_route(transfer.door, abilities, between, transfer.survey.group, forced)
        };
        let page_locked = |_| Between::PageLocked;
        Ok([route(&self.pinned, page_locked)?, route(&self.pageable, Between::Slots)?])
    }
}

/// The caller's route, if there is one, or else the one that is fastest by rule.
fn chosen_route(
    door: Door<'_>,
    abilities: Abilities,
    between: Between,
    group: Group,
    forced: Option<Route>,
) -> Result<Route> {
    match forced {
        None => Ok(abilities.choose(door.stream, between, group)),
        Some(route) if abilities.allow(route, door.stream) => Ok(route),
        Some(route) => Err(Error::new(
            ErrorKind::Unsupported,
            door.operation,
            format!("the route \"{route}\" is not possible on this device and stream"),
            "choose another route, or none",
        )),
    }
}
