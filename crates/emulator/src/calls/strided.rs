//! Copies of rows that lie a pitch apart, whose kind of memory the caller names.

use crate::machine::Machine;
use crate::memory::host::{Access, HostPtr, HostUse};
use crate::operation::{Action, Transfer};
use crate::words::slots::Key;
use pinlane_driver::{Call, CopyKind, CudaCode, DriverResult, Item, Ordinal, Pitched, StridedCopy};

/// The longest pitch, as GPUs have it (`cudaDevAttrMaxPitch`).
pub(crate) const MAX_PITCH: i32 = i32::MAX;

const CALL: Call = Call::CopyStrided;

impl Machine {
    /// Enqueues a copy of rows from or to page-locked memory, or within a device: one operation,
    /// whose rows land in any order.
    pub(crate) fn copy_strided(
        &mut self,
        key: Key,
        kind: CopyKind,
        copy: &StridedCopy,
    ) -> DriverResult<()> {
        if copy.row == 0 || copy.rows == 0 || copy.planes == 0 {
            return Ok(());
        }
        let src = span(copy.src, copy).ok_or(CudaCode::INVALID_VALUE)?;
        let dst = span(copy.dst, copy).ok_or(CudaCode::INVALID_VALUE)?;
        self.check_side(key, copy.src, src, kind == CopyKind::H2D)?;
        self.check_side(key, copy.dst, dst, kind == CopyKind::D2H)?;
        let transfers: DriverResult<Box<[Transfer]>> =
            copy.items().map(|row| self.transfer_of(CALL, key, kind, &row)).collect();
        self.submit(key, Vec::new(), Action::Batch(CALL, transfers?))
    }

    /// Enqueues a copy of rows between two devices, on a stream of `home`.
    pub(crate) fn copy_strided_peer(
        &mut self,
        (key, home): (Key, Ordinal),
        copy: &StridedCopy,
        dst_device: Ordinal,
        src_device: Ordinal,
    ) -> DriverResult<()> {
        const CALL: Call = Call::CopyStridedPeer;
        let devices = [dst_device, src_device];
        self.check_present(devices)?;
        if copy.row == 0 || copy.rows == 0 || copy.planes == 0 {
            return Ok(());
        }
        for side in [copy.src, copy.dst] {
            let bytes = span(side, copy).ok_or(CudaCode::INVALID_VALUE)?;
            self.check_allocated(CALL, key, side.at, bytes)?;
        }
        let mut transfers = Vec::new();
        for Item { src, dst, bytes } in copy.items() {
            let (bytes, at) = (bytes as usize, ((dst, dst_device), (src, src_device)));
            self.check_across(CALL, key, at.0, at.1, bytes)?;
            transfers.push(Transfer::Across { dst, src, bytes });
        }
        self.submit_across(key, home, devices, Action::Batch(CALL, transfers.into()))
    }

    /// Checks that a side lies in one piece, gaps and all: in page-locked memory, or in an
    /// allocation of a device.
    fn check_side(
        &mut self,
        key: Key,
        side: Pitched,
        bytes: usize,
        is_host: bool,
    ) -> DriverResult<()> {
        if !is_host {
            return self.check_allocated(CALL, key, side.at, bytes);
        }
        let host = HostPtr(std::ptr::without_provenance_mut(side.at as usize));
        self.check_page_locked(CALL, key, &HostUse::new(host, bytes, Access::Read))
    }
}

/// The distance from the first byte of a side to behind its last row. `None` if its rows overlap,
/// its pitch is too long, or memory has no such range.
fn span(side: Pitched, copy: &StridedCopy) -> Option<usize> {
    let StridedCopy { row, rows, planes, .. } = *copy;
    let fits = row <= side.pitch && side.pitch <= MAX_PITCH as usize;
    if !fits || planes > 1 && side.height < rows {
        return None;
    }
    let lines = (planes - 1).checked_mul(side.height)?.checked_add(rows - 1)?;
    let bytes = lines.checked_mul(side.pitch)?.checked_add(row)?;
    Some(bytes).filter(|&bytes| bytes <= isize::MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_no_gpu_can_copy_are_refused() {
        let side = |pitch, height| Pitched { at: 0, pitch, height };
        let copy = |side, planes| StridedCopy { src: side, dst: side, row: 8, rows: 3, planes };
        let of = |pitch, height, planes| {
            let side = side(pitch, height);
            span(side, &copy(side, planes))
        };
        assert_eq!(of(8, 3, 2), Some(48));
        assert_eq!(of(10, 4, 2), Some(68));
        assert_eq!(of(10, 0, 1), Some(28));
        assert_eq!(of(7, 3, 1), None);
        assert_eq!(of(8, 2, 2), None);
        assert_eq!(of(MAX_PITCH as usize + 1, 3, 1), None);
        assert_eq!(of(10, usize::MAX, 2), None);
        assert_eq!(of(MAX_PITCH as usize, 1 << 40, 2), None);
    }
}
