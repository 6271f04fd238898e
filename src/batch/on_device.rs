//! Batches between device buffers.

use super::items::DeviceCopy;
use crate::copy::entry::PIECE;
use crate::copy::issue::{Items, copy_on_devices, introduce, issue};
use crate::copy::route::{Between, Group, Route};
use crate::copy::transfer::check_apart;
use crate::driver::{CopyKind, Item};
use crate::error::Result;
use crate::memory::hazard::Access;
use crate::memory::sealed::Sealed;
use crate::memory::{Operand, PinnedBuf};
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

impl Stream {
    /// Makes many copies between device buffers: of one device, or of two. The stream belongs to
    /// one of them. Does not block; ordered as [`upload`](Self::upload); the copies are unordered
    /// among themselves.
    ///
    /// # Errors
    ///
    /// As for [`copy`](Self::copy); [`InvalidValue`](crate::ErrorKind::InvalidValue) if a
    /// destination in borrowed memory overlaps another one or a source.
    pub fn copy_batch<'a>(
        &self,
        copies: impl IntoIterator<Item = impl Into<DeviceCopy<'a>>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::copy_batch");
        let mut items: Vec<DeviceCopy<'a>> = copies.into_iter().map(Into::into).collect();
        for DeviceCopy { src, dst } in &items {
            door.check_lengths::<u8>(src.len(), dst.len())?;
        }
        items.retain(|item| item.bytes() > 0);
        let (mut borrowed, mut here, mut bytes) = (false, true, 0);
        for DeviceCopy { src, dst } in &items {
            let (from, to) = (src.context(), dst.context());
            door.check_device(&[from, to])?;
            borrowed |= src.is_borrowed() || dst.is_borrowed();
            here &= from.ordinal() == to.ordinal();
            introduce(from, to, from.driver(door.operation)?);
            bytes += dst.len();
        }
        if items.is_empty() {
            return door.nothing();
        }
        if borrowed {
            let ranges = items
                .iter()
                .flat_map(|item| [(&item.dst, Access::Write), (&item.src, Access::Read)]);
            let ranges = ranges.map(|(it, access)| (it.ptr(), it.len(), access));
            check_apart(door.operation, ranges)?;
        }
        let engine = self.device.engine()?;
        let group = Group { entries: items.len(), runs: items.len(), bytes };
        let route = engine.abilities(door)?.choose(door.stream, Between::Device, group);

        let mut operands: Vec<Operand<'_>> = Vec::with_capacity(2 * items.len() + 1);
        for item in &items {
            operands.push(item.src.operand(Access::Read));
            operands.push(item.dst.operand(Access::Write));
        }
        let mut list = None;
        // Kernels reach other devices only where peer access is enabled; copies reach all.
        if here && route == Route::Kernel {
            let pieces = items.iter().flat_map(|DeviceCopy { src, dst }| {
                (0..dst.len()).step_by(PIECE).map(move |at| {
                    let bytes = (dst.len() - at).min(PIECE) as u64;
                    Item { src: src.ptr() + at as u64, dst: dst.ptr() + at as u64, bytes }
                })
            });
            let list = list.insert(engine.lists.alloc::<Item>(pieces.clone().count())?);
            list.write()?.iter_mut().zip(pieces).for_each(|(place, piece)| *place = piece);
        }
        operands.extend(list.as_ref().map(Sealed::reading));
        let at = list.as_ref().map_or(0, |list| list.as_ptr().addr() as u64);
        let count = list.as_ref().map_or(0, PinnedBuf::len);
        let kernel = Items { at, count, bytes };
        door.moving(bytes).ordered(
            &operands,
            Fencing::Own,
            |driver, raw| {
                if !here {
                    return items.iter().try_for_each(|DeviceCopy { src, dst }| {
                        // SAFETY: the stream is live. The lengths were compared above; each range
                        // lies in one allocation, and overlaps no other, as below.
                        unsafe { copy_on_devices(driver, raw, src, dst) }
                    });
                }
                let copies = items.iter().map(|DeviceCopy { src, dst }| Item {
                    dst: dst.ptr(),
                    src: src.ptr(),
                    bytes: dst.len() as u64,
                });
                // SAFETY: the stream is live. Each range lies in one allocation of this device. A
                // destination overlaps no other range: it is borrowed exclusively, or was found
                // apart (`check_apart`). The items, complete and aligned, lie in one page-locked
                // block that the device can address (`Abilities::allow`). The uses that `ordered`
                // records keep all valid until retired.
                unsafe { issue(driver, raw, CopyKind::D2D, route, copies, kernel) }
            },
            || format!("copying {bytes} bytes of {} device buffers", items.len()),
        )
    }
}
