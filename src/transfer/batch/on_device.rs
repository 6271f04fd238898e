//! Batches between device buffers.

use super::item::CopyItem;
use crate::driver::{BatchCopy, BatchKind, Driver, DriverResult, Item, Mover, RawStream};
use crate::error::Result;
use crate::memory::Operand;
use crate::memory::hazard::Access;
use crate::memory::sealed::Sealed;
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::transfer::apart::check_apart;
use crate::transfer::order::{check_device, ordered};
use crate::transfer::path::Path;
use crate::transfer::peer::introduce;
use crate::transfer::plan::Planner;
use crate::transfer::staging::Engine;
use crate::transfer::survey::Group;

impl Stream {
    /// Makes all the copies of `items`, between device buffers: of one device, or of two, one of
    /// which this stream belongs to. Does not block; ordered as [`upload`](Self::upload); the items
    /// are unordered among themselves.
    ///
    /// # Errors
    ///
    /// As for [`copy`](Self::copy); [`InvalidValue`](crate::ErrorKind::InvalidValue) if a
    /// destination in borrowed memory overlaps another one or a source.
    pub fn copy_batch(&self, items: &mut [CopyItem<'_>]) -> Result<Ticket> {
        const OPERATION: &str = "Stream::copy_batch";
        let mut group = Group { entries: 0, runs: 0, bytes: 0 };
        let (mut borrowed, mut here) = (false, true);
        for item in items.iter().filter(|item| item.bytes() > 0) {
            check_device(OPERATION, self, &[item.src.context(), item.dst.context()])?;
            borrowed |= item.src.is_borrowed() || item.dst.is_borrowed();
            here &= item.src.context().ordinal() == item.dst.context().ordinal();
            let driver = item.src.context().driver(OPERATION)?;
            introduce(item.src.context(), item.dst.context(), driver);
            group.entries += 1;
            group.runs += 1;
            group.bytes += item.bytes();
        }
        if borrowed {
            let ranges = items
                .iter()
                .flat_map(|item| [(&item.dst, Access::Write), (&item.src, Access::Read)]);
            check_apart(OPERATION, ranges.map(|(it, access)| (it.ptr(), it.len(), access)))?;
        }
        let engine = Engine::of(self)?;
        let machine = engine.machine(self, OPERATION)?;
        let batches = machine.batches_on(self);
        let planner = Planner { machine, batches, threads: 1, first: 0, portion: usize::MAX };
        let path = match planner.on_device(group) {
            None => return self.nothing(OPERATION),
            Some(choice) if here => choice.path,
            // Kernels reach other devices only where peer access is enabled; copies reach all.
            Some(_) => Path::Copies,
        };

        let mut operands: Vec<Operand<'_>> = Vec::with_capacity(2 * items.len() + 1);
        for item in items.iter() {
            operands.push(item.src.operand(Access::Read));
            operands.push(item.dst.operand(Access::Write));
        }
        let mut list = None;
        if path == Path::Pull {
            let list = list.insert(engine.lists.alloc::<Item>(items.len())?);
            for (place, item) in list.write()?.iter_mut().zip(&*items) {
                let (src, dst) = (item.src.ptr(), item.dst.ptr());
                *place = Item { src, dst, bytes: item.bytes() as u64 };
            }
        }
        operands.extend(list.as_ref().map(Sealed::reading));
        let list_at = list.as_ref().map_or(0, |list| list.as_ptr().addr() as u64);
        let ((), ticket) = ordered(
            self,
            OPERATION,
            &operands,
            |driver, raw| match path {
                // SAFETY: the stream is live. The items, complete and aligned, lie in one
                // page-locked block that the device can address (`Machine::kernels`), sources and
                // destinations in this device's memory; a destination overlaps nothing else,
                // borrowed exclusively or found apart (`check_apart`). The uses that `ordered`
                // records keep all valid until retired.
                Path::Pull => unsafe {
                    driver.move_items(raw, Mover::OnDevice, list_at, items.len(), group.bytes)
                },
                Path::Batch => batch(driver, raw, items),
                _ => one_by_one(driver, raw, items),
            },
            || format!("copying {} bytes of {} device buffers", group.bytes, group.entries),
        )?;
        Ok(ticket)
    }
}

fn batch(driver: &dyn Driver, raw: RawStream, items: &[CopyItem<'_>]) -> DriverResult<()> {
    let copies: Vec<_> = items
        .iter()
        .map(|item| BatchCopy { dst: item.dst.ptr(), src: item.src.ptr(), bytes: item.bytes() })
        .collect();
    // SAFETY: the stream is live. Each range lies in one allocation; destinations overlap nothing,
    // since they are borrowed exclusively, or were checked; the uses that `ordered` records keep
    // all valid until retired.
    unsafe { driver.copy_batch(raw, BatchKind::D2D, &copies) }
}

fn one_by_one(driver: &dyn Driver, raw: RawStream, items: &[CopyItem<'_>]) -> DriverResult<()> {
    items.iter().filter(|item| item.bytes() > 0).try_for_each(|item| {
        let (src, dst, bytes) = (item.src.ptr(), item.dst.ptr(), item.bytes());
        let (from, to) = (item.src.context().ordinal(), item.dst.context().ordinal());
        if from == to {
            // SAFETY: as in `batch`.
            unsafe { driver.copy_d2d(raw, dst, src, bytes) }
        } else {
            // SAFETY: as in `batch`; the devices are those of the buffers.
            unsafe { driver.copy_peer(raw, dst, to, src, from, bytes) }
        }
    })
}
