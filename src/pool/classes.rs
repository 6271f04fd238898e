//! Size classes: they say which block a request gets.
//!
//! ```text
//!   up to 2 KiB      multiples of 256 bytes
//!   up to 32 MiB     eight steps in each doubling: at most 12.5% of a block is waste
//!   beyond           exact, in pages of 4096 bytes
//! ```
//!
//! Every block is as aligned as its size allows, up to a page. A request for more alignment gets a
//! block whose size is a multiple of it, from memory with that alignment.

/// Memory is page-locked in units of this many bytes.
pub(super) const PAGE: usize = 4096;
/// The largest alignment of a request.
pub(super) const MAX_ALIGN: usize = 2 << 20;

const STEP: usize = 256;
const STEPPED_ABOVE: usize = 2048;
const EXACT_ABOVE: usize = 32 << 20;
/// Blocks up to this size are kept by threads.
pub(super) const LARGEST_KEPT: usize = 1 << 20;
/// How many classes there are up to [`LARGEST_KEPT`].
pub(super) const KEPT_CLASSES: usize = 80;

/// What a request gets: a block of `bytes`, in memory aligned to `align`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size {
    pub(super) bytes: usize,
    /// [`PAGE`], or more.
    pub(super) align: usize,
}

impl Size {
    /// The block for a request; `None` if there is no such block. `align` is a power of two, at
    /// most [`MAX_ALIGN`].
    #[inline]
    pub(super) fn of(bytes: usize, align: usize) -> Option<Size> {
        if bytes <= EXACT_ABOVE && align <= STEP {
            return Some(Size { bytes: rounded(bytes), align: PAGE });
        }
        Size::unusual(bytes, align)
    }

    #[cold]
    fn unusual(bytes: usize, align: usize) -> Option<Size> {
        debug_assert!(align.is_power_of_two() && align <= MAX_ALIGN);
        let mut size = bytes.max(1).checked_next_multiple_of(align)?;
        if size > EXACT_ABOVE {
            size = size.checked_next_multiple_of(PAGE)?;
        }
        while size <= EXACT_ABOVE {
            size = rounded(size);
            if size.is_multiple_of(align) {
                break;
            }
            size += 1;
        }
        (size <= isize::MAX as usize).then_some(Size { bytes: size, align: align.max(PAGE) })
    }

    /// The class under which threads keep such blocks, if they do.
    #[inline]
    pub(super) fn class(self) -> Option<usize> {
        if self.align == PAGE { class_of(self.bytes, 1) } else { None }
    }

    /// Whether a free block of size `other` may serve this request: it has the same size or, among
    /// the exact sizes, at most an eighth too much.
    pub(super) fn accepts(self, other: Size) -> bool {
        self == other
            || self.align == other.align
                && self.bytes > EXACT_ABOVE
                && other.bytes >= self.bytes
                && (other.bytes - self.bytes) <= other.bytes / 8
    }
}

/// The class under which threads keep the blocks for a request, if they do.
#[inline]
pub(super) fn class_of(bytes: usize, align: usize) -> Option<usize> {
    let last = bytes.wrapping_sub(1);
    if last >= LARGEST_KEPT || align > STEP {
        return None;
    }
    if bytes <= STEPPED_ABOVE {
        return Some(last / STEP);
    }
    let doubling = last.ilog2();
    let step = (last >> (doubling - 3)) & 7;
    Some(STEPPED_ABOVE / STEP + (doubling - STEPPED_ABOVE.ilog2()) as usize * 8 + step)
}

/// The size of the blocks of a class that threads keep.
#[inline]
pub(super) fn class_bytes(class: usize) -> usize {
    const STEPS: usize = STEPPED_ABOVE / STEP;
    if class < STEPS {
        return (class + 1) * STEP;
    }
    let (doubling, step) = ((class - STEPS) / 8, (class - STEPS) % 8);
    (STEP << doubling) * (STEPS + 1 + step)
}

/// The size of the class of a request of at most [`EXACT_ABOVE`] bytes.
#[inline]
fn rounded(bytes: usize) -> usize {
    if bytes <= STEPPED_ABOVE {
        return bytes.max(1).next_multiple_of(STEP);
    }
    let step = 1usize << ((bytes - 1).ilog2() - 3);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: usize) -> usize {
        Size::of(bytes, 1).expect("small enough").bytes
    }

    #[test]
    fn a_block_holds_its_request_with_at_most_an_eighth_of_waste() {
        let large = (1 << 30) - 3..(1 << 30) + 3;
        for bytes in (0..70_000).chain(EXACT_ABOVE - 9..EXACT_ABOVE + 9).chain(large) {
            let size = size(bytes);
            assert!(size >= bytes && size.is_multiple_of(STEP));
            assert_eq!(Size::of(size, 1).map(|size| size.bytes), Some(size), "its own class");
            if bytes > STEPPED_ABOVE {
                assert!((size - bytes) * 8 <= size, "{bytes} in {size}");
            }
            if bytes > EXACT_ABOVE {
                assert!(size - bytes < PAGE);
            }
        }
    }

    #[test]
    fn classes_count_the_sizes() {
        let mut sizes: Vec<usize> = (1..=LARGEST_KEPT).map(size).collect();
        sizes.dedup();
        assert_eq!(sizes.len(), KEPT_CLASSES);
        for (class, &bytes) in sizes.iter().enumerate() {
            assert_eq!(Size { bytes, align: PAGE }.class(), Some(class));
            assert_eq!(class_bytes(class), bytes);
            for request in [bytes - 1, bytes] {
                assert_eq!(class_of(request, STEP), Some(class));
            }
        }
        assert_eq!(Size::of(LARGEST_KEPT + 1, 1).and_then(Size::class), None);
        assert_eq!(class_of(LARGEST_KEPT + 1, 1), None);
        assert_eq!(class_of(0, 1), None);
        assert_eq!(class_of(64, 512), None);
        assert_eq!(Size::of(64, 8192).and_then(Size::class), None, "other memory");
    }

    #[test]
    fn alignment_is_given_by_size_and_memory() {
        for bytes in [0, 1, 255, 257, 3000, 70_000, 5 << 20, 33 << 20] {
            for shift in 0..=MAX_ALIGN.ilog2() {
                let align = 1 << shift;
                let size = Size::of(bytes, align).expect("small enough");
                assert!(size.bytes >= bytes && size.align >= align.max(PAGE));
                assert!(size.bytes.is_multiple_of(align), "{bytes} aligned to {align}: {size:?}");
            }
        }
    }

    #[test]
    fn a_large_block_may_serve_a_request_that_wastes_an_eighth_of_it() {
        let of = |mib: usize| Size::of(mib << 20, 1).expect("small enough");
        assert!(of(70).accepts(of(80)));
        assert!(!of(69).accepts(of(80)) && !of(80).accepts(of(70)));
        assert!(of(3).accepts(of(3)) && !of(7).accepts(of(8)), "classes are exact");
    }

    #[test]
    fn what_does_not_fit_in_an_address_space_has_no_block() {
        assert_eq!(Size::of(usize::MAX, 1), None);
        assert_eq!(Size::of(isize::MAX as usize + 1, 1), None);
        assert_eq!(Size::of(isize::MAX as usize - 1, MAX_ALIGN), None);
    }
}
