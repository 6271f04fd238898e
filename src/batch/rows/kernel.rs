//! Rows of page-locked tables: one launch of the moving kernel computes the addresses and copies.

use super::indices::Indices;
use super::tables::Tables;
use crate::copy::entry::Side;
use crate::copy::order::Door;
use crate::driver::{Driver, Layer, RawStream, RowIndex, RowMove};
use crate::error::Result;
use crate::memory::hazard::Access;
use crate::memory::sealed::Sealed;
use crate::memory::{Operand, PinnedBuf};
use crate::pool::PinnedPool;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

/// The block that the kernel reads: the layers, and the numbers of both sides if they are in host
/// memory or [reordered](super::near).
struct Lists {
    block: PinnedBuf<u64>,
    from: RowIndex,
    to: RowIndex,
}

impl Lists {
    fn write(tables: &Tables<'_, '_>, pool: &PinnedPool) -> Result<Lists> {
        let scattered = tables.are_scattered();
        let width = |indices: &Indices<'_>| match indices.count() {
            None if scattered => size_of::<u32>(),
            _ => indices.width,
        };
        let words = |indices: &Indices<'_>| {
            let bytes =
                if scattered { tables.count * width(indices) } else { indices.bytes().len() };
            bytes.div_ceil(size_of::<u64>())
        };
        let layers = 2 * tables.layers.len();
        let (from, to) = (words(&tables.from), words(&tables.to));
        let mut block = pool.alloc::<u64>(layers + from + to)?;
        let start = block.as_ptr().expose_provenance() as u64;
        let (head, rest) = block.write()?.split_at_mut(layers);
        let layers: &mut [Layer] = bytemuck::cast_slice_mut(head);
        for (place, (host, device)) in layers.iter_mut().zip(&tables.layers) {
            let host = host.host.expose_provenance() as u64;
            let (src, dst) = tables.direction.pair(host, device.ptr());
            *place = Layer { src, dst };
        }
        let places = rest.split_at_mut(from);
        if scattered {
            let (host, other) = tables.direction.pair(places.0, places.1);
            tables.write_by_regions(host, other);
        } else {
            for (place, indices) in [(places.0, &tables.from), (places.1, &tables.to)] {
                let bytes = indices.bytes();
                bytemuck::cast_slice_mut::<u64, u8>(place)[..bytes.len()].copy_from_slice(bytes);
            }
        }
        let behind = start + size_of_val(layers) as u64;
        let second = behind + (from * size_of::<u64>()) as u64;
        let (from_rows, to_rows) = tables.rows();
        let index = |indices: &Indices<'_>, words, here, rows| RowIndex {
            at: match indices.on_device() {
                Some(numbers) => numbers.ptr(),
                None if words == 0 => 0,
                None => here,
            },
            bytes: width(indices) as u64,
            limit: indices.limit(rows),
            pitch: tables.row as u64,
        };
        let from = index(&tables.from, from, behind, from_rows);
        let to = index(&tables.to, to, second, to_rows);
        Ok(Lists { block, from, to })
    }
}

/// Enqueues the copy of tables that the kernel can copy.
pub(super) fn enqueue(
    door: Door<'_>,
    tables: &Tables<'_, '_>,
    pool: &PinnedPool,
) -> Result<Ticket> {
    let direction = tables.direction;
    let lists = Lists::write(tables, pool)?;
    let rows = RowMove {
        layers: lists.block.as_ptr().addr() as u64,
        layer_count: tables.layers.len() as u64,
        count: tables.count as u64,
        bytes: tables.row as u64,
        from: lists.from,
        to: lists.to,
    };
    let mut operands: Vec<Operand<'_>> = Vec::with_capacity(2 * tables.layers.len() + 3);
    for (host, device) in &tables.layers {
        let pinned = host.pinned.expect("page-locked");
        operands.push(pinned.operand_at(host.host, host.bytes, direction.access(Side::Host)));
        operands.push(device.operand(direction.access(Side::Device)));
    }
    let numbers = [&tables.from, &tables.to].into_iter().filter_map(Indices::on_device);
    operands.extend(numbers.map(|it| it.operand(Access::Read)));
    operands.push(lists.block.reading());
    let launch = |driver: &dyn Driver, raw: RawStream| {
        // SAFETY: the stream is live. The layers and the numbers lie in a page-locked block of
        // their own, complete and aligned to 8, or in a view of device memory of their elements.
        // Each table has at least `limit` rows, in one registration that the device can address
        // (`fit_the_kernel`) or in one allocation. Written tables are borrowed exclusively, or were
        // found apart (`check_overlaps`). The uses that `ordered` records keep all valid until
        // retired, and keep the host from touching them.
        unsafe { driver.move_rows(raw, direction.kind(), &rows) }
    };
    let describe = || format!("copying {} rows of {} bytes", tables.count, tables.row);
    let bytes = tables.count * tables.row * tables.layers.len();
    door.moving(bytes).ordered(&operands, Fencing::Own, launch, describe)
}
