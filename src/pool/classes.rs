//! Size classes: what block a request gets.
//!
//! Up to 4 KiB a request is rounded up to a power of two of at least 256 bytes, beyond that to one of
//! eight steps in each doubling, so that at most 12.5% of a block above 4 KiB is waste.

const SMALLEST: usize = 256;
const STEPPED_ABOVE: usize = 4096;

/// The size of the block that a request of `bytes` gets; `None` if there is no such block.
pub(crate) fn block_size(bytes: usize) -> Option<usize> {
    if bytes <= STEPPED_ABOVE {
        return Some(bytes.next_power_of_two().max(SMALLEST));
    }
    let doubling = 1usize << (usize::BITS - 1 - (bytes - 1).leading_zeros());
    bytes.checked_next_multiple_of(doubling / 8).filter(|&size| size <= isize::MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_its_request_with_at_most_an_eighth_of_waste() {
        for bytes in (0..70_000).chain((1 << 30) - 3..(1 << 30) + 3) {
            let size = block_size(bytes).expect("small enough");
            assert!(size >= bytes);
            assert_eq!(block_size(size), Some(size), "a block's size is its own class");
            if bytes > STEPPED_ABOVE {
                assert!((size - bytes) * 8 <= size, "{bytes} in {size}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_in_an_address_space_has_no_block() {
        assert_eq!(block_size(usize::MAX), None);
        assert_eq!(block_size(isize::MAX as usize + 1), None);
    }
}
