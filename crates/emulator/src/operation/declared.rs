//! Kernels whose caller declares what they use.

use std::fmt;

use pinlane_base::lock::Mutex;
use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;

/// Rows of bytes that a kernel uses. One row is one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeclaredUse {
    /// The address of the first row.
    pub start: u64,
    /// The length of a row in bytes.
    pub bytes: u64,
    /// How many rows.
    pub rows: u64,
    /// From the start of a row to that of the next, in bytes. One row needs none.
    pub stride: u64,
    /// Whether it writes to them, or reads them.
    pub writes: bool,
    /// Which of these bytes it uses is told when it has run. This by itself is no use.
    pub later: bool,
}

impl DeclaredUse {
    /// The same as rows with gaps between them; `None` if there are no bytes.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if it is longer than an address space.
    pub(crate) fn settled(self) -> DriverResult<Option<Self>> {
        if self.bytes == 0 || self.rows == 0 {
            return Ok(None);
        }
        let to_last = (self.rows - 1).checked_mul(self.stride);
        let span = to_last.and_then(|bytes| bytes.checked_add(self.bytes));
        let span = span.filter(|&span| self.start.checked_add(span).is_some());
        let span = span.ok_or(CudaCode::INVALID_VALUE)?;
        let is_range = self.rows == 1 || self.stride <= self.bytes;
        let range = DeclaredUse { bytes: span, rows: 1, stride: 0, ..self };
        Ok(Some(if is_range { range } else { self }))
    }

    /// From the first byte to the end of the last row.
    pub(crate) fn span(&self) -> u64 {
        (self.rows - 1) * self.stride + self.bytes
    }

    /// Where each row begins.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> + use<> {
        let DeclaredUse { start, stride, rows, .. } = *self;
        (0..rows).map(move |row| start + row * stride)
    }
}

/// What a kernel does, on the host. It gives the uses that were not known at its launch.
pub(crate) type Work = Box<dyn Fn() -> Vec<DeclaredUse> + Send>;

/// A kernel with declared uses.
pub(crate) struct Declared {
    /// Settled, and of no pageable memory.
    pub(crate) uses: Box<[DeclaredUse]>,
    /// Of what it will tell. The same.
    pub(crate) later: Box<[DeclaredUse]>,
    pub(crate) work: Mutex<Work>,
}

impl fmt::Debug for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Declared").field(&self.uses).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_gaps_are_one_range_and_those_past_the_last_address_are_refused() {
        let of = |start, bytes, rows, stride| {
            let all = DeclaredUse { start, bytes, rows, stride, writes: true, later: false };
            all.settled().map(|one| one.map(|one| (one.bytes, one.rows, one.span())))
        };
        assert_eq!(of(100, 8, 1, 0), Ok(Some((8, 1, 8))));
        assert_eq!(of(100, 8, 3, 8), Ok(Some((24, 1, 24))), "next to each other");
        assert_eq!(of(100, 8, 3, 4), Ok(Some((16, 1, 16))), "over each other");
        assert_eq!(of(100, 8, 3, 9), Ok(Some((8, 3, 26))));
        assert_eq!((of(100, 0, 3, 9), of(100, 8, 0, 9)), (Ok(None), Ok(None)));
        for (start, rows, stride) in [(u64::MAX - 7, 1, 0), (100, u64::MAX, 9), (100, 2, u64::MAX)]
        {
            assert_eq!(of(start, 8, rows, stride), Err(CudaCode::INVALID_VALUE));
        }
    }
}
