//! Where the parts lie, in bytes, and the one pass that checks them.

use std::ops::Range;

use super::arrays::{Lengths, Parts};
use crate::copy::entry::{Direction, PIECE};
use crate::copy::route::Group;
use crate::error::{Error, ErrorKind, Result};

/// Parts that lie in both sides. Those of the destination are apart.
pub(super) struct Places<'i> {
    direction: Direction,
    from: &'i [usize],
    to: &'i [usize],
    lengths: Lengths<'i>,
    /// The size of an element in bytes.
    size: usize,
    group: Group,
    /// From the first part to the end of the last one, in elements: of the source, and of the
    /// destination.
    spans: (Range<usize>, Range<usize>),
    /// The bytes of the longest part.
    longest: usize,
}

impl<'i> Places<'i> {
    /// Checks the parts of a host side and a device side of so many `bytes`. `None` if there is
    /// nothing to copy.
    pub(super) fn new<T>(
        operation: &'static str,
        direction: Direction,
        parts: &Parts<'i>,
        bytes: (usize, usize),
    ) -> Result<Option<Self>> {
        let Parts { from, to, lengths, .. } = *parts;
        let counts = [from.len(), to.len(), lengths.count().unwrap_or(to.len())];
        if counts != [from.len(); 3] {
            let [from, to, lengths] = counts;
            let what =
                format!("{from} parts of the source, {to} of the destination, {lengths} lengths");
            let remedy = "give each array an element for each part";
            return Err(Error::new(ErrorKind::LengthMismatch, operation, what, remedy));
        }
        let size = size_of::<T>().saturating_mul(parts.unit);
        if size == 0 {
            return Ok(None);
        }
        let (src, dst) = direction.pair(bytes.0, bytes.1);
        let mut places = Places {
            direction,
            from,
            to,
            lengths,
            size,
            group: Group::default(),
            spans: (0..0, 0..0),
            longest: 0,
        };
        let outside = |n: usize, side, at: usize, length: usize, has: usize| {
            let what = format!(
                "part {n} is {length} elements from {at} on, in a {side} of {has} elements of \
                 {size} bytes"
            );
            Error::new(ErrorKind::OutOfRange, operation, what, "keep each part inside both sides")
        };
        let (src, dst) = (src / size, dst / size);
        let ascends = match lengths {
            Lengths::All(length) => places.survey(src, dst, |_| length),
            Lengths::Each(lengths) => places.survey(src, dst, |n| lengths[n]),
        };
        let ascends = ascends.map_err(|n| {
            let (at, length) = ((from[n], to[n]), lengths.get(n));
            match at.0.checked_add(length).is_some_and(|end| end <= src) {
                true => outside(n, "destination", at.1, length, dst),
                false => outside(n, "source", at.0, length, src),
            }
        })?;
        if !ascends && let Some((first, second)) = places.overlap() {
            let part = |n: usize| format!("{} elements at {}", lengths.get(n), to[n]);
            let what = format!(
                "part {second} ({}) overlaps part {first} ({}) in the destination",
                part(second),
                part(first)
            );
            let remedy = "the parts of a copy are unordered: give each its own destination";
            return Err(Error::invalid(operation, what, remedy));
        }
        Ok(Some(places).filter(|places| places.group.entries > 0))
    }

    /// Counts and checks all parts of sides of so many elements. Returns whether the parts of the
    /// destination ascend.
    ///
    /// # Errors
    ///
    /// The number of a part that does not lie in both sides.
    #[inline(always)]
    fn survey(
        &mut self,
        src: usize,
        dst: usize,
        length: impl Fn(usize) -> usize,
    ) -> Result<bool, usize> {
        let is_inside = |at: usize, length: usize, len: usize| at <= len && length <= len - at;
        let (mut entries, mut follow, mut elements, mut longest) = (0, 0, 0usize, 0);
        let mut lowest = (usize::MAX, usize::MAX);
        let mut highest = (0, 0);
        let mut end = (usize::MAX, 0);
        let mut ascends = true;
        for (n, (&from, &to)) in self.from.iter().zip(self.to).enumerate() {
            let length = length(n);
            if !is_inside(from, length, src) || !is_inside(to, length, dst) {
                return Err(n);
            }
            if length == 0 {
                continue;
            }
            ascends &= end.1 <= to;
            follow += usize::from(end == (from, to));
            end = (from + length, to + length);
            entries += 1;
            // The parts may overlap.
            elements = elements.saturating_add(length);
            longest = longest.max(length);
            lowest = (lowest.0.min(from), lowest.1.min(to));
            highest = (highest.0.max(end.0), highest.1.max(end.1));
        }
        let bytes = elements.saturating_mul(self.size);
        self.group = Group { entries, runs: entries - follow, bytes };
        self.longest = longest * self.size;
        self.spans = (lowest.0..highest.0, lowest.1..highest.1);
        Ok(ascends)
    }

    /// Two parts that overlap in the destination, if there are any: their numbers, in order.
    fn overlap(&self) -> Option<(usize, usize)> {
        self.sorted().windows(2).find_map(|pair| {
            let [one, other] = *pair else { unreachable!("two of them") };
            let overlap = self.to[one] + self.lengths.get(one) > self.to[other];
            overlap.then_some((one.min(other), one.max(other)))
        })
    }

    /// The numbers of the parts that are not empty, in the order of their destinations.
    ///
    /// A comparison sort would cost more than all other work on the host. Destinations are mostly
    /// spread evenly over their span. So each part goes to one of about as many buckets as there
    /// are parts, and most buckets have one or two.
    fn sorted(&self) -> Vec<usize> {
        let (span, count) = (&self.spans.1, self.count());
        let parts = || (0..count).filter(|&n| self.lengths.get(n) > 0);
        let width = (0..usize::BITS).find(|&width| span.len() >> width < count);
        let width = width.expect("there are parts");
        let bucket = |n: usize| (self.to[n] - span.start) >> width;
        // First the number of parts in each bucket, then where it begins, then where it ends.
        let mut ends = vec![0; (span.len() >> width) + 1];
        parts().for_each(|n| ends[bucket(n)] += 1);
        let mut before = 0;
        for end in &mut ends {
            before += std::mem::replace(end, before);
        }
        let mut sorted = vec![0; before];
        for n in parts() {
            let end = &mut ends[bucket(n)];
            sorted[*end] = n;
            *end += 1;
        }
        let mut start = 0;
        for end in ends {
            if end - start > 1 {
                sorted[start..end].sort_unstable_by_key(|&n| (self.to[n], n));
            }
            start = end;
        }
        sorted
    }

    pub(super) fn count(&self) -> usize {
        self.to.len()
    }

    pub(super) fn group(&self) -> Group {
        self.group
    }

    /// Whether a part needs several items of the kernel.
    pub(super) fn has_pieces(&self) -> bool {
        self.longest > PIECE
    }

    /// From the first part on the host to the end of the last one, in bytes.
    pub(super) fn host_span(&self) -> Range<usize> {
        self.in_bytes(self.direction.pair(&self.spans.0, &self.spans.1).0)
    }

    /// From the first part on the device to the end of the last one, in bytes.
    pub(super) fn device_span(&self) -> Range<usize> {
        self.in_bytes(self.direction.pair(&self.spans.0, &self.spans.1).1)
    }

    fn in_bytes(&self, range: &Range<usize>) -> Range<usize> {
        range.start * self.size..range.end * self.size
    }

    /// Part `n`: its offset on the host and on the device, and its length, in bytes.
    #[inline]
    pub(super) fn get(&self, n: usize) -> (usize, usize, usize) {
        let (host, device) = self.direction.pair(self.from[n], self.to[n]);
        (host * self.size, device * self.size, self.lengths.get(n) * self.size)
    }

    /// The runs of parts in `range` that follow each other on both sides, as [`get`](Self::get)
    /// gives a part. None is empty.
    pub(super) fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
        let parts = range.map(|n| self.get(n)).filter(|&(.., bytes)| bytes > 0);
        let mut parts = parts.peekable();
        std::iter::from_fn(move || {
            let (host, device, mut bytes) = parts.next()?;
            while let Some(next) =
                parts.next_if(|&(h, d, _)| (h, d) == (host + bytes, device + bytes))
            {
                bytes += next.2;
            }
            Some((host, device, bytes))
        })
    }
}
