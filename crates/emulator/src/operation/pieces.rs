//! Operations in pieces: CUDA lets the bytes of a copy land in any order (rule 5).

use crate::memory::host::{HostPtr, HostUse};
use crate::operation::{Action, Source, Transfer};
use crate::words::rng::Rng;
use pinlane_driver::DevicePtr;

/// Whether an operation can land in pieces.
pub(crate) fn can_split(action: &Action) -> bool {
    match action {
        Action::Copy(_, transfer) => can_part(transfer),
        Action::Batch(_, transfers) => transfers.len() > 1,
        Action::Fill { bytes, pattern, .. } => *bytes > pattern.as_slice().len(),
        _ => false,
    }
}

/// Splits an operation into at most `count` pieces, in any order; one that cannot be split stays
/// whole.
pub(crate) fn split(action: Action, count: usize, rng: &mut Rng) -> Vec<Action> {
    let mut pieces: Vec<Action> = match action {
        Action::Copy(call, ref transfer) if can_part(transfer) => {
            let ranges = cut(length(transfer), count, 1, rng);
            let part = |(start, bytes)| Action::Copy(call, part(transfer, start, bytes));
            ranges.into_iter().map(part).collect()
        }
        Action::Batch(call, transfers) => {
            let ranges = cut(transfers.len(), count, 1, rng);
            let mut rest = transfers.into_iter();
            let group = |(_, many)| Action::Batch(call, rest.by_ref().take(many).collect());
            ranges.into_iter().map(group).collect()
        }
        Action::Fill { dst, bytes, pattern } => {
            let ranges = cut(bytes, count, pattern.as_slice().len(), rng);
            let part = |(start, bytes)| Action::Fill { dst: dst + start as u64, bytes, pattern };
            ranges.into_iter().map(part).collect()
        }
        whole => vec![whole],
    };
    rng.shuffle(&mut pieces);
    pieces
}

/// Cuts a length into at most `count` ranges, at multiples of `unit`.
fn cut(length: usize, count: usize, unit: usize, rng: &mut Rng) -> Vec<(usize, usize)> {
    let mut ends = vec![length];
    ends.extend((1..count).map(|_| rng.below(length.div_ceil(unit)) * unit));
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.clone());
    let ranges = starts.zip(ends).map(|(start, end)| (start, end - start));
    ranges.filter(|&(_, bytes)| bytes > 0).collect()
}

fn length(transfer: &Transfer) -> usize {
    match transfer {
        Transfer::In { src: Source::Host(host), .. } | Transfer::Out { dst: host, .. } => {
            host.bytes
        }
        Transfer::In { src: Source::Taken { bytes, .. }, .. } => bytes.len(),
        Transfer::Across { bytes, .. } => *bytes,
    }
}

/// Bytes that were taken at the call are there already; ranges that overlap are moved at once.
fn can_part(transfer: &Transfer) -> bool {
    let apart = match *transfer {
        Transfer::In { ref src, .. } => matches!(src, Source::Host(_)),
        Transfer::Out { .. } => true,
        Transfer::Across { dst, src, bytes } => dst.abs_diff(src) >= bytes as u64,
    };
    apart && length(transfer) > 1
}

fn part(transfer: &Transfer, start: usize, bytes: usize) -> Transfer {
    let on_device = |address: DevicePtr| address + start as u64;
    let on_host = |host: &HostUse| HostUse {
        ptr: HostPtr(host.ptr.0.wrapping_add(start)),
        bytes,
        ..host.clone()
    };
    match *transfer {
        Transfer::In { dst, src: Source::Host(ref host) } => {
            Transfer::In { dst: on_device(dst), src: Source::Host(on_host(host)) }
        }
        Transfer::In { dst, src: Source::Taken { bytes: ref taken, from, ahead } } => {
            Transfer::In {
                dst: on_device(dst),
                src: Source::Taken {
                    bytes: taken[start..][..bytes].into(),
                    from: from + start,
                    ahead,
                },
            }
        }
        Transfer::Out { ref dst, src } => Transfer::Out { dst: on_host(dst), src: on_device(src) },
        Transfer::Across { dst, src, .. } => {
            Transfer::Across { dst: on_device(dst), src: on_device(src), bytes }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_everything_once_in_whole_units() {
        for seed in 0..200 {
            let mut rng = Rng::keyed(seed, [0; 4]);
            let (length, count, unit) = (1 + rng.below(40), 1 + rng.below(5), 1 + rng.below(8));
            let ranges = cut(length, count, unit, &mut rng);
            assert!(ranges.len() <= count);
            let mut at = 0;
            for (start, bytes) in ranges {
                assert!(start == at && bytes > 0 && start % unit == 0);
                at = start + bytes;
            }
            assert_eq!(at, length);
        }
    }
}
