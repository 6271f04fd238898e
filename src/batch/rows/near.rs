//! Reorders rows, so that rows near each other in host memory are copied one after the other.
//!
//! A GPU translates the address of every page of host memory that it uses, and caches few
//! translations. Rows at random places of a large table wait for one translation each. Rows of one
//! region, copied at about the same time, share them: an upload of 65,536 rows of 256 bytes out of
//! 4 GiB took 650 us instead of 1540 when the caller had ordered them (docs/measured). A full sort
//! by address is not needed: regions of 32 MiB are as good, and one counting sort finds them.
//!
//! ```text
//!   numbers in host memory    7  902    3  411  905        regions of 400 rows
//!   their other side          0    1    2    3    4
//!
//!   the same by regions       7    3 | 411 | 902  905
//!                             0    2 |   3 |   1    4
//! ```
//!
//! The sort takes a few nanoseconds a row. So it runs only where measurements showed a gain:
//! several rows must share a page; a table that is read must have 2 GiB or more, with rows below 1
//! KiB; a table that is written must have 1 GiB or more.

use super::indices::{Indices, Numbers};
use super::tables::Tables;
use crate::copy::entry::Direction;

/// The size of a region in bytes.
const REGION: usize = if cfg!(test) { 4 << 10 } else { 32 << 20 };
/// The most regions. Huge tables have larger regions instead.
const MOST: usize = if cfg!(test) { 50 } else { 4096 };
/// How many bytes of host memory one translation covers.
const PAGE: usize = if cfg!(test) { 1 << 10 } else { 2 << 20 };
/// How many rows must share a page.
const SHARING: usize = 4;
/// The smallest table whose translations the GPU cannot cache: when it is read, and when it is
/// written.
const READ: usize = if cfg!(test) { 64 << 10 } else { 2 << 30 };
const WRITTEN: usize = READ / 2;
/// From this length on, reordering did not speed up rows that are read.
const LONG: usize = 1 << 10;

impl Tables<'_, '_> {
    /// Whether copying region by region pays.
    pub(super) fn are_scattered(&self) -> bool {
        let (host, device) = self.by_side();
        let bytes = self.host_rows.saturating_mul(self.row);
        let waits = match self.direction {
            Direction::Up => bytes >= READ && self.row < LONG,
            Direction::Down => bytes >= WRITTEN,
        };
        waits
            && self.count / SHARING >= bytes / PAGE
            && u32::try_from(self.count).is_ok()
            && !device.is_on_device()
            && match &host.numbers {
                Numbers::Short(numbers) => !numbers.is_sorted(),
                Numbers::Long(numbers) => !numbers.is_sorted(),
                _ => false,
            }
    }

    /// Writes the numbers of the rows on the host, and on the device, region by region. Each list
    /// has the width of its numbers; `..` becomes numbers of type `u32`. Both lists have a place
    /// for each row, and the rows [are scattered](Self::are_scattered).
    pub(super) fn write_by_regions(&self, host: &mut [u64], device: &mut [u64]) {
        let (numbers, others) = self.by_side();
        let regions = Regions::of(self.host_rows, self.row);
        match &numbers.numbers {
            Numbers::Short(numbers) => regions.write(numbers, short(host), others, device),
            Numbers::Long(numbers) => regions.write(numbers, host, others, device),
            _ => unreachable!("they are scattered"),
        }
    }
}

fn short(words: &mut [u64]) -> &mut [u32] {
    bytemuck::cast_slice_mut(words)
}

/// How the rows of a table are divided.
struct Regions {
    /// A row's number, shifted right by this, is the number of its region.
    shift: u32,
    count: usize,
}

impl Regions {
    /// For a table of `rows` rows of `row` bytes.
    fn of(rows: usize, row: usize) -> Self {
        let mut shift = (REGION / row).max(1).ilog2();
        while (rows - 1) >> shift >= MOST {
            shift += 1;
        }
        Regions { shift, count: ((rows - 1) >> shift) + 1 }
    }

    fn write<N: Copy + Default + Into<u64>>(
        &self,
        numbers: &[N],
        sorted: &mut [N],
        others: &Indices<'_>,
        places: &mut [u64],
    ) {
        match &others.numbers {
            Numbers::Long(others) => self.sort(numbers, sorted, places, |n| others[n]),
            Numbers::Short(others) => self.sort(numbers, sorted, short(places), |n| others[n]),
            _ => self.sort(numbers, sorted, short(places), |n| n as u32),
        }
    }

    /// A counting sort of `numbers` into `sorted`, and of the value of `other` for each into
    /// `others`. It works in memory that stays in the caches: the device has read `sorted` and
    /// `others` before, so a store out of order there would wait for a cache line.
    fn sort<N: Copy + Default + Into<u64>, O: Copy + Default>(
        &self,
        numbers: &[N],
        sorted: &mut [N],
        others: &mut [O],
        other: impl Fn(usize) -> O,
    ) {
        let region = |number: N| (number.into() >> self.shift) as usize;
        let mut places = vec![0u32; self.count];
        numbers.iter().for_each(|&number| places[region(number)] += 1);
        let mut next = 0;
        for place in &mut places {
            (*place, next) = (next, next + *place);
        }
        let mut rows = vec![(N::default(), O::default()); numbers.len()];
        for (n, &number) in numbers.iter().enumerate() {
            let place = &mut places[region(number)];
            rows[*place as usize] = (number, other(n));
            *place += 1;
        }
        let lists = sorted.iter_mut().zip(others);
        for ((number, other), row) in lists.zip(rows) {
            (*number, *other) = row;
        }
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use super::*;
    use crate::{Device, DeviceBuf, PinnedBuf, PinnedPool, Result, Stream};

    /// Different numbers below `limit`, without a pattern.
    fn scattered(count: usize, limit: usize) -> Vec<u32> {
        let step = (1..limit).rev().find(|step| gcd(*step, limit) == 1 && *step < limit * 5 / 8);
        let step = step.expect("1 has no divisor");
        (0..count).map(|n| (n * step % limit) as u32).collect()
    }

    fn gcd(a: usize, b: usize) -> usize {
        if b == 0 { a } else { gcd(b, a % b) }
    }

    struct Setup {
        stream: Stream,
        pool: PinnedPool,
        device: Device,
    }

    impl Setup {
        fn new() -> Result<Self> {
            let device = Device::emulated()?;
            let pool = PinnedPool::builder(&device).build()?;
            Ok(Setup { stream: device.stream()?, pool, device })
        }

        /// A table whose bytes identify their rows.
        fn table(&self, rows: usize, row: usize) -> Result<PinnedBuf<u8>> {
            let mut table = self.pool.alloc::<u8>(rows * row)?;
            let bytes = table.write()?.chunks_exact_mut(row).enumerate();
            bytes.for_each(|(number, bytes)| bytes.fill(tag(number)));
            Ok(table)
        }

        fn rows(&self, count: usize, row: usize) -> Result<DeviceBuf<u8>> {
            self.device.alloc(count * row)
        }

        fn back(&self, rows: &DeviceBuf<u8>) -> Result<Vec<u8>> {
            let mut back = vec![0; rows.len()];
            self.stream.download_slice(rows, &mut back)?;
            Ok(back)
        }
    }

    fn tag(number: usize) -> u8 {
        (number * 31 % 251) as u8
    }

    #[test]
    fn scattered_rows_come_up_to_their_places() -> Result<()> {
        let setup = Setup::new()?;
        for (rows, row, count) in [(700, 100, 500), (2000, 64, 600), (300, 3000, 299)] {
            let table = setup.table(rows, row)?;
            let mut numbers = scattered(count, rows);
            numbers[7] = numbers[90]; // may come twice
            let long: Vec<u64> = numbers.iter().map(|&n| n.into()).collect();
            for indices in [Indices::from(&numbers), Indices::from(&long)] {
                let mut gpu = setup.rows(count, row)?;
                setup.stream.upload_rows(&table, indices, &mut gpu)?;
                for (&number, bytes) in numbers.iter().zip(setup.back(&gpu)?.chunks_exact(row)) {
                    assert!(bytes.iter().all(|&byte| byte == tag(number as usize)));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn scattered_rows_go_down_to_their_places_and_nowhere_else() -> Result<()> {
        let setup = Setup::new()?;
        for (rows, row, count) in [(700, 100, 500), (2000, 64, 600), (300, 3000, 299)] {
            let mut table = setup.table(rows, row)?;
            let numbers = scattered(count, rows);
            let mut gpu = setup.rows(count, row)?;
            let bytes: Vec<u8> = (0..count * row).map(|at| (at / row % 200) as u8 ^ 0x55).collect();
            setup.stream.upload_slice(&bytes, &mut gpu)?;
            setup.stream.download_rows(&gpu, &numbers, &mut table)?;
            let mut expected: Vec<u8> = (0..rows * row).map(|at| tag(at / row)).collect();
            for (&number, bytes) in numbers.iter().zip(bytes.chunks_exact(row)) {
                expected[number as usize * row..][..row].copy_from_slice(bytes);
            }
            assert!(*table.read()? == expected[..]);
        }
        Ok(())
    }

    /// Both sides by their numbers, of both widths, in two layers.
    #[test]
    fn scattered_blocks_of_layers_go_from_place_to_place() -> Result<()> {
        let setup = Setup::new()?;
        let (rows, row, count, places) = (900, 100, 400, 401);
        let tables = [setup.table(rows, row)?, setup.table(rows, row)?];
        let from = scattered(count, rows);
        let to: Vec<u64> = scattered(count, places).into_iter().map(u64::from).collect();
        let mut gpu = [setup.rows(places, row)?, setup.rows(places, row)?];
        setup.stream.upload_blocks(tables.iter().zip(&mut gpu), row, &from, &to)?;
        for gpu in &gpu {
            let back = setup.back(gpu)?;
            for (&from, &to) in from.iter().zip(&to) {
                let bytes = &back[to as usize * row..][..row];
                assert!(bytes.iter().all(|&byte| byte == tag(from as usize)));
            }
        }
        let mut tables = tables;
        for gpu in &mut gpu {
            setup.stream.fill(gpu, 0xaa)?;
        }
        setup.stream.download_blocks(gpu.iter().zip(&mut tables), row, &to, &from)?;
        for table in &tables {
            for (number, bytes) in table.read()?.chunks_exact(row).enumerate() {
                let copied = from.contains(&(number as u32));
                let expected = if copied { 0xaa } else { tag(number) };
                assert!(bytes.iter().all(|&byte| byte == expected), "row {number}");
            }
        }
        Ok(())
    }

    #[test]
    fn every_number_has_one_place_in_its_region() {
        let numbers = scattered(1000, 1009);
        let regions = Regions { shift: 6, count: 16 };
        for count in [1000, 999, 65, 64, 1] {
            let numbers = &numbers[..count];
            let (mut sorted, mut places) = (vec![0u32; count], vec![0u32; count]);
            regions.sort(numbers, &mut sorted, &mut places, |n| n as u32);
            assert!(sorted.is_sorted_by_key(|number| number >> 6));
            for (&number, &place) in sorted.iter().zip(&places) {
                assert_eq!(numbers[place as usize], number);
            }
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..count as u32));
        }
    }

    #[test]
    fn huge_tables_have_larger_regions() {
        for (rows, row) in [(1, 1), (1, 1 << 20), (1000, 64), (1 << 40, 64), (usize::MAX, 1)] {
            let Regions { shift, count } = Regions::of(rows, row);
            assert!((1..=MOST).contains(&count) && (rows - 1) >> shift == count - 1);
        }
    }
}
