//! The numbers of rows.

use std::ops::RangeFull;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceBuf, DeviceBytes, DeviceSlice};

/// The rows of a table that a copy uses, by their numbers, counted from 0: a slice of `u32`, `i32`,
/// `u64`, `i64` or `usize`, in host or in device memory; or `..`, all rows in order.
///
/// Numbers in host memory are read and checked at the call. Numbers in device memory are read when
/// the copy runs, in stream order: a row whose number is not in the table is not copied. So such
/// numbers, -1 for example, may pad a list, any number of times, with tables in any memory.
///
/// A row that is read may be named twice. A row that is written may not: numbers in host memory are
/// checked, unless [`distinct`](Self::distinct) turns the check off. For rows in pageable memory,
/// which threads write, the check always runs. If a row is written twice nevertheless, each of its
/// bytes comes from one of its sources.
#[derive(Clone)]
pub struct Indices<'a> {
    pub(super) numbers: Numbers<'a>,
    /// The bytes of one number.
    pub(super) width: usize,
    /// The numbers are signed and 4 bytes long: read as unsigned, numbers of 2^31 and more are
    /// negative.
    pub(super) signed: bool,
    pub(super) distinct: bool,
}

#[derive(Clone)]
pub(super) enum Numbers<'a> {
    InOrder,
    Short(&'a [u32]),
    Long(&'a [u64]),
    /// Their bytes.
    OnDevice(DeviceSlice<'a, u8>),
}

impl<'a> Indices<'a> {
    fn new<T>(numbers: Numbers<'a>, signed: bool) -> Self {
        let width = size_of::<T>();
        Indices { numbers, width, signed, distinct: false }
    }

    /// Promises that no number is repeated, which skips the check. This is safe even if the promise
    /// is false: see above for the effect of a repeated number.
    #[must_use]
    pub fn distinct(mut self) -> Self {
        self.distinct = true;
        self
    }

    /// How many numbers there are; `None` for `..`.
    pub(super) fn count(&self) -> Option<usize> {
        Some(match &self.numbers {
            Numbers::InOrder => return None,
            Numbers::Short(numbers) => numbers.len(),
            Numbers::Long(numbers) => numbers.len(),
            Numbers::OnDevice(bytes) => bytes.len() / self.width,
        })
    }

    pub(super) fn is_on_device(&self) -> bool {
        matches!(self.numbers, Numbers::OnDevice(_))
    }

    pub(super) fn on_device(&self) -> Option<DeviceBytes<'a>> {
        match &self.numbers {
            Numbers::OnDevice(bytes) => Some(bytes.as_bytes()),
            _ => None,
        }
    }

    /// How many rows of a table of `rows` rows the numbers can name.
    pub(super) fn limit(&self, rows: usize) -> u64 {
        let rows = rows as u64;
        if self.signed { rows.min(1 << 31) } else { rows }
    }

    /// Refuses numbers in host memory that are not in a table of `rows` rows.
    pub(super) fn check(&self, operation: &'static str, rows: usize) -> Result<()> {
        let limit = self.limit(rows);
        let found = match &self.numbers {
            Numbers::Short(numbers) => outside(numbers, |&n| u64::from(n), limit),
            Numbers::Long(numbers) => outside(numbers, |&n| n, limit),
            _ => None,
        };
        let Some((at, number)) = found else { return Ok(()) };
        let shown = match (&self.numbers, self.signed) {
            (Numbers::Short(_), true) => i64::from(number as u32 as i32),
            _ => number as i64,
        };
        let what = format!("index {at} names row {shown} of a table that has {rows} rows");
        let remedy = "name rows from 0 to the number of rows less 1";
        Err(Error::new(ErrorKind::OutOfRange, operation, what, remedy))
    }

    /// Refuses repeated numbers in host memory.
    pub(super) fn check_distinct(&self, operation: &'static str) -> Result<()> {
        let twice = match &self.numbers {
            Numbers::Short(numbers) => first_twice(numbers.iter().map(|&n| u64::from(n))),
            Numbers::Long(numbers) => first_twice(numbers.iter().copied()),
            _ => None,
        };
        twice.map_or(Ok(()), |(at, number)| Err(written_twice(operation, at, number)))
    }

    /// Refuses repeated numbers at these places.
    pub(super) fn check_distinct_at(&self, operation: &'static str, at: &[usize]) -> Result<()> {
        let twice = first_twice(at.iter().map(|&place| self.get(place)));
        twice.map_or(Ok(()), |(n, number)| Err(written_twice(operation, at[n], number)))
    }

    /// Number `n`. Numbers on the device are not known.
    #[inline]
    pub(super) fn get(&self, n: usize) -> u64 {
        match &self.numbers {
            Numbers::Short(numbers) => numbers[n].into(),
            Numbers::Long(numbers) => numbers[n],
            _ => n as u64,
        }
    }

    /// The numbers in host memory, as bytes.
    pub(super) fn bytes(&self) -> &'a [u8] {
        match self.numbers {
            Numbers::Short(numbers) => bytemuck::cast_slice(numbers),
            Numbers::Long(numbers) => bytemuck::cast_slice(numbers),
            _ => &[],
        }
    }
}

fn written_twice(operation: &'static str, at: usize, number: u64) -> Error {
    let what = format!("index {at} names row {number}, which an earlier one names: both write it");
    Error::invalid(operation, what, "name each row once that is written")
}

/// The first number that is not below `limit`, and its place. Checks all numbers first, many at a
/// time, and searches for the place only if one is outside.
fn outside<N>(numbers: &[N], number: impl Fn(&N) -> u64, limit: u64) -> Option<(usize, u64)> {
    let largest = numbers.iter().map(&number).fold(0, u64::max);
    if numbers.is_empty() || largest < limit {
        return None;
    }
    let at = numbers.iter().position(|it| number(it) >= limit)?;
    Some((at, number(&numbers[at])))
}

/// The first repeated number, and its place.
fn first_twice(numbers: impl ExactSizeIterator<Item = u64> + Clone) -> Option<(usize, u64)> {
    // Ascending numbers, which are common, need no table.
    if numbers.clone().is_sorted_by(|before, next| before < next) {
        return None;
    }
    twice_by_table(numbers.clone()).unwrap_or_else(|Crowded| twice_by_sorting(numbers))
}

/// Too many numbers collide in a table.
#[derive(Debug, PartialEq, Eq)]
struct Crowded;

/// As [`first_twice`], with a bound on the time: an adversary can choose numbers that all collide.
fn twice_by_table(
    numbers: impl ExactSizeIterator<Item = u64>,
) -> Result<Option<(usize, u64)>, Crowded> {
    // An open-addressing table with twice as many places. A place holds a number plus 1.
    let bits = (2 * numbers.len()).next_power_of_two().trailing_zeros();
    let mut places = vec![0u64; 1 << bits];
    // Numbers without a pattern need half a step each on average.
    let mut steps = 4 * numbers.len();
    for (at, number) in numbers.enumerate() {
        let mark = number.wrapping_add(1); // no table has 2^64 rows
        let mut place = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize;
        while places[place] != 0 {
            if places[place] == mark {
                return Ok(Some((at, number)));
            }
            place = (place + 1) % places.len();
            steps = steps.checked_sub(1).ok_or(Crowded)?;
        }
        places[place] = mark;
    }
    Ok(None)
}

/// As [`first_twice`], in about five times the time, for any numbers.
fn twice_by_sorting(numbers: impl ExactSizeIterator<Item = u64>) -> Option<(usize, u64)> {
    let mut sorted: Vec<_> = numbers.enumerate().map(|(at, number)| (number, at)).collect();
    sorted.sort_unstable();
    let again = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    again.map(|pair| (pair[1].1, pair[1].0)).min()
}

impl From<RangeFull> for Indices<'_> {
    fn from(_: RangeFull) -> Self {
        Indices::new::<u64>(Numbers::InOrder, false)
    }
}

macro_rules! numbers {
    ($($type:ty: $host:ident, $signed:literal;)*) => {
        $(
            impl<'a> From<&'a [$type]> for Indices<'a> {
                fn from(numbers: &'a [$type]) -> Self {
                    Indices::new::<$type>(Numbers::$host(bytemuck::cast_slice(numbers)), $signed)
                }
            }

            impl<'a> From<&'a Vec<$type>> for Indices<'a> {
                fn from(numbers: &'a Vec<$type>) -> Self {
                    numbers.as_slice().into()
                }
            }

            impl<'a, const N: usize> From<&'a [$type; N]> for Indices<'a> {
                fn from(numbers: &'a [$type; N]) -> Self {
                    numbers.as_slice().into()
                }
            }

            impl<'a> From<DeviceSlice<'a, $type>> for Indices<'a> {
                fn from(numbers: DeviceSlice<'a, $type>) -> Self {
                    let bytes = numbers.cast().expect("bytes are aligned");
                    Indices::new::<$type>(Numbers::OnDevice(bytes), $signed)
                }
            }

            impl<'a> From<&'a DeviceBuf<$type>> for Indices<'a> {
                fn from(numbers: &'a DeviceBuf<$type>) -> Self {
                    numbers.as_slice().into()
                }
            }
        )*
    };
}

numbers! {
    u32: Short, false;
    i32: Short, true;
    u64: Long, false;
    i64: Long, false;
}
#[cfg(target_pointer_width = "64")]
numbers! {
    usize: Long, false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_that_comes_twice_is_found() {
        let twice = |numbers: &[u64]| first_twice(numbers.iter().copied());
        assert_eq!(twice(&[]), None);
        assert_eq!(twice(&[3]), None);
        assert_eq!(twice(&[3, 5, 9]), None);
        assert_eq!(twice(&[9, 5, 3, 0]), None);
        assert_eq!(twice(&[0, 0]), Some((1, 0)));
        assert_eq!(twice(&[9, 5, 3, 5, 9]), Some((3, 5)));
        let many: Vec<_> = (0..1000).map(|n| (n * 7919 % 1000) << 40).collect();
        assert_eq!(twice(&many), None);
        let again: Vec<_> = many.iter().chain(&many[500..501]).copied().collect();
        assert_eq!(twice(&again), Some((1000, many[500])));
    }

    /// The multiples of the factor's inverse all collide at the first place of a table.
    #[test]
    fn numbers_that_are_chosen_to_collide_are_sorted() {
        const INVERSE: u64 = 0xf1de_83e1_9937_733d;
        let chosen: Vec<u64> = (1..=131_072u64).rev().map(|n| n.wrapping_mul(INVERSE)).collect();
        let numbers = || chosen.iter().copied();
        assert_eq!(twice_by_table(numbers()), Err(Crowded));
        assert_eq!(first_twice(numbers()), None);
        let mut again = chosen.clone();
        again[100_000] = again[7];
        again[90_000] = again[80_000];
        let expected = Some((90_000, again[80_000]));
        assert_eq!(first_twice(again.iter().copied()), expected);
    }

    #[test]
    fn sorting_finds_what_the_table_finds() {
        for modulus in 1..40u64 {
            let numbers: Vec<u64> = (0..60).map(|n| n * n * 31 % modulus % 17).collect();
            for count in 0..numbers.len() {
                let of = || numbers[..count].iter().copied();
                if count > 0 {
                    assert_eq!(twice_by_table(of()), Ok(twice_by_sorting(of())));
                }
                assert_eq!(first_twice(of()), twice_by_sorting(of()));
            }
        }
    }

    #[test]
    fn numbers_that_are_not_in_the_table_are_refused_with_their_place() {
        let refused = |indices: Indices<'_>, rows| {
            let error = indices.check("test", rows).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfRange);
            error.to_string()
        };
        assert!(Indices::from(&[0u32, 7]).check("test", 8).is_ok());
        assert!(Indices::from(&[0u32; 0]).check("test", 0).is_ok());
        assert!(refused((&[0u32, 8, 9]).into(), 8).contains("index 1 names row 8"));
        assert!(refused((&[-1i32]).into(), 8).contains("names row -1"));
        assert!(refused((&[-1i64]).into(), 8).contains("names row -1"));
        assert!(refused((&[i32::MIN]).into(), usize::MAX).contains("names row -2147483648"));
        assert!(Indices::from(&[u32::MAX]).check("test", 1 << 32).is_ok());
        assert!(refused((&[0u64]).into(), 0).contains("names row 0 of a table that has 0"));
    }
}
