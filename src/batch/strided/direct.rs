//! Rows of page-locked memory and of devices: the copy engine takes them by one call, or the moving
//! kernel by one launch.

use super::grid::{Dimension, Grid};
use crate::copy::order::Door;
use crate::copy::route::{Abilities, Route};
use crate::driver::{
    CopyKind, Driver, Layer, Ordinal, Pitched, RawStream, RowIndex, RowMove, StridedCopy,
};
use crate::error::Result;
use crate::memory::sealed::Sealed;
use crate::memory::{Operand, PinnedBuf};
use crate::pool::PinnedPool;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

/// From this many bytes on a row is long: one call of the copy engine is then faster than the
/// kernel, by a quarter at 256 B on an H100. Shorter rows are not measured.
const LONG_ROW: usize = 256;

/// For fewer rows than this, one call costs less than a kernel, however short they are. A guess.
const FEW_ROWS: usize = 4;

/// The way of rows that each side has in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One call of the copy engine.
    Call(StridedCopy),
    /// One launch of the moving kernel.
    Kernel,
    /// A copy for each row.
    Rows,
}

/// Rows between two places, each of which the device reaches as one piece.
pub(super) struct Direct<'a> {
    pub(super) kind: CopyKind,
    /// The address of the first row at the source and at the destination.
    pub(super) at: (u64, u64),
    pub(super) grid: Grid,
    /// Both sides, as parts of the operation.
    pub(super) operands: [Operand<'a>; 2],
}

impl Direct<'_> {
    /// The way that is fastest by rule.
    pub(super) fn way(&self, door: Door<'_>, abilities: Abilities) -> Way {
        let call = self.call(abilities.max_pitch());
        let kernel = abilities.allow(Route::Kernel, door.stream).then_some(Way::Kernel);
        let suits_a_call = self.grid.row >= LONG_ROW || self.grid.count() < FEW_ROWS;
        let wanted = if suits_a_call { [call, kernel] } else { [kernel, call] };
        wanted.into_iter().flatten().next().unwrap_or(Way::Rows)
    }

    /// The rows as the copy engine takes them: a plane of rows, or planes that begin a whole number
    /// of rows apart. `None` if they are neither.
    fn call(&self, max_pitch: usize) -> Option<Way> {
        let as_it_is = |grid: Grid| {
            let Grid { row, rows, planes } = grid;
            let side = |at, pitch: usize, plane_pitch: usize| {
                let height = if planes.count == 1 { rows.count } else { plane_pitch / pitch };
                let is_whole = planes.count == 1 || plane_pitch.is_multiple_of(pitch);
                // Rows are apart, so that the height is no less than a plane has.
                (is_whole && pitch <= max_pitch).then_some(Pitched { at, pitch, height })
            };
            let src = side(self.at.0, rows.src, planes.src)?;
            let dst = side(self.at.1, rows.dst, planes.dst)?;
            Some(StridedCopy { src, dst, row, rows: rows.count, planes: planes.count })
        };
        let other = || Some(self.grid.swapped()).filter(|grid| grid.rows.count > 1);
        as_it_is(self.grid).or_else(|| as_it_is(other()?)).map(Way::Call)
    }

    /// Enqueues a copy between two devices as one call. `None` if the copy engine does not take the
    /// rows as they lie.
    pub(super) fn by_peer_call(
        &self,
        door: Door<'_>,
        abilities: Abilities,
        (to, from): (Ordinal, Ordinal),
    ) -> Option<Result<Ticket>> {
        let Way::Call(copy) = self.call(abilities.max_pitch())? else { return None };
        let Direct { grid, ref operands, .. } = *self;
        let enqueue = |driver: &dyn Driver, raw: RawStream| {
            // SAFETY: as in `by_call`; the devices are those of the two sides.
            unsafe { driver.copy_strided_peer(raw, &copy, to, from) }
        };
        let door = door.moving(grid.bytes());
        Some(door.ordered(operands, Fencing::Own, enqueue, || grid.describe()))
    }

    /// Enqueues the copy as one call.
    pub(super) fn by_call(self, door: Door<'_>, copy: &StridedCopy) -> Result<Ticket> {
        let Direct { kind, grid, operands, .. } = self;
        let bytes = grid.bytes();
        let enqueue = |driver: &dyn Driver, raw: RawStream| {
            // SAFETY: the stream is live. Each side lies in one registration or in one allocation
            // (`Direct`), and its rows are apart: pitches are no shorter than rows, heights no
            // shorter than planes (`call`). No row overlaps one of the other side: two views are
            // disjoint if one is exclusive, and borrowed memory was checked. The uses that
            // `ordered` records keep both sides valid until retired, and keep the host from
            // touching them.
            unsafe { driver.copy_strided(raw, kind, copy) }
        };
        let fencing = Fencing::of_copy(bytes);
        door.moving(bytes).ordered(&operands, fencing, enqueue, || grid.describe())
    }

    /// Enqueues the copy as one launch of the kernel, which reads the planes from a list in memory
    /// of `pool`.
    pub(super) fn by_kernel(self, door: Door<'_>, pool: &PinnedPool) -> Result<Ticket> {
        let grid = match self.grid {
            // A plane is an entry of the list.
            grid if grid.planes.count > grid.rows.count => grid.swapped(),
            grid => grid,
        };
        let list = self.list(grid.planes, pool)?;
        let Dimension { count, src, dst } = grid.rows;
        let count = count as u64;
        let index = |pitch| RowIndex { at: 0, bytes: 4, limit: count, pitch: pitch as u64 };
        let rows = RowMove {
            layers: list.as_ptr().addr() as u64,
            layer_count: grid.planes.count as u64,
            count,
            bytes: grid.row as u64,
            from: index(src),
            to: index(dst),
        };
        let (kind, bytes) = (self.kind, grid.bytes());
        let launch = |driver: &dyn Driver, raw: RawStream| {
            // SAFETY: the stream is live. The layers lie in a page-locked block of their own,
            // complete and aligned to 8. Each table has `limit` rows that do not overlap
            // (`Strided::new`), in one registration that the device can address
            // (`Abilities::allow`) or in one allocation (`Direct`); the rows of one side overlap
            // none of the other, as in `by_call`. The uses that `ordered` records keep all valid
            // until retired, and keep the host from touching them.
            unsafe { driver.move_rows(raw, kind, &rows) }
        };
        let [src, dst] = self.operands;
        let operands = [src, dst, list.reading()];
        door.moving(bytes).ordered(&operands, Fencing::Own, launch, || grid.describe())
    }

    /// The first row of each plane on both sides.
    fn list(&self, planes: Dimension, pool: &PinnedPool) -> Result<PinnedBuf<Layer>> {
        let mut list = pool.alloc::<Layer>(planes.count)?;
        for (plane, place) in list.write()?.iter_mut().enumerate() {
            let (src, dst) = (plane * planes.src, plane * planes.dst);
            *place = Layer { src: self.at.0 + src as u64, dst: self.at.1 + dst as u64 };
        }
        Ok(list)
    }
}
