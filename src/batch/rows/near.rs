//! Rows in another order: those that lie near each other in host memory come one after the other.
//!
//! A GPU translates the address of every page of host memory that it uses, and remembers few
//! translations. Rows at random places of a large table wait for one translation each. Rows of one
//! region, copied at about the same time, share them: 65,536 rows of 256 bytes come up out of 4 GiB
//! in 650 us instead of 1540 (docs/measured). It need not be the order of the addresses: regions of
//! 32 MiB do as well, and are found by one counting sort.
//!
//! ```text
//!   numbers in host memory    7  902    3  411  905        regions of 400 rows
//!   their other side          0    1    2    3    4
//!
//!   the same by regions       7    3 | 411 | 902  905
//!                             0    2 |   3 |   1    4
//! ```
//!
//! Several threads count and place, each its own part of the numbers.

use std::ops::Range;

use super::indices::{Indices, Numbers};
use super::tables::Tables;
use crate::copy::entry::Direction;
use crate::copy::staged::team::{self, Helpers, Task};
use crate::driver::Ordinal;
use crate::sync::Mutex;

/// How many bytes of a table are a region.
const REGION: usize = if cfg!(test) { 4 << 10 } else { 32 << 20 };
/// There are no more regions than this: those of huge tables are larger.
const MOST: usize = if cfg!(test) { 50 } else { 4096 };
/// The least number of rows that are worth it.
const ROWS: usize = if cfg!(test) { 100 } else { 4096 };
/// Of a table that is shorter, the GPU remembers the translations.
const TABLE: usize = if cfg!(test) { 64 << 10 } else { 512 << 20 };
/// How many numbers are work for one thread.
const PART: usize = if cfg!(test) { 64 } else { 4096 };
/// The most parts.
const PARTS: usize = 8;

impl Tables<'_, '_> {
    /// Whether the rows are to be copied region by region.
    pub(super) fn are_scattered(&self) -> bool {
        let (host, device) = self.by_side();
        let bytes = self.host_rows.saturating_mul(self.row);
        self.count >= ROWS
            && u32::try_from(self.count).is_ok()
            && bytes >= TABLE
            && !device.is_on_device()
            && match &host.numbers {
                Numbers::Short(numbers) => !numbers.is_sorted(),
                Numbers::Long(numbers) => !numbers.is_sorted(),
                _ => false,
            }
    }

    /// The numbers of the rows on the host, and on the device.
    pub(super) fn by_side(&self) -> (&Indices<'_>, &Indices<'_>) {
        match self.direction {
            Direction::Up => (&self.from, &self.to),
            Direction::Down => (&self.to, &self.from),
        }
    }
}

/// A number as a list has it.
pub(super) trait Number: Send {
    fn new(number: u64) -> Self;
}

impl Number for u32 {
    fn new(number: u64) -> Self {
        number as u32
    }
}

impl Number for u64 {
    fn new(number: u64) -> Self {
        number
    }
}

/// The rows of a table in host memory, by regions.
pub(super) struct Regions<'n> {
    numbers: &'n Indices<'n>,
    others: &'n Indices<'n>,
    count: usize,
    /// A row's number, shifted by as much, is that of its region.
    shift: u32,
    regions: usize,
    device: Ordinal,
}

impl<'n> Regions<'n> {
    /// Of tables whose rows [are scattered](Tables::are_scattered).
    pub(super) fn of(tables: &'n Tables<'_, '_>, device: Ordinal) -> Self {
        let (numbers, others) = tables.by_side();
        let mut shift = (REGION / tables.row).max(1).ilog2();
        while (tables.host_rows - 1) >> shift >= MOST {
            shift += 1;
        }
        let regions = ((tables.host_rows - 1) >> shift) + 1;
        Regions { numbers, others, count: tables.count, shift, regions, device }
    }

    /// Writes the numbers, and those of the other side, region by region. Both lists have as many
    /// places as there are rows.
    pub(super) fn write<N: Number, O: Number>(&self, numbers: &mut [N], others: &mut [O]) {
        assert!(numbers.len() == self.count && others.len() == self.count, "a place for each");
        let parts = self.count.div_ceil(PART).min(PARTS);
        let part = |n: usize| n * self.count / parts..(n + 1) * self.count / parts;
        // How many rows of each region each part has; then where the first of them goes.
        let mut places = vec![0u32; parts * self.regions];
        self.share(&mut places, &|n, places| self.count_rows(part(n), places));
        let mut next = 0;
        for region in 0..self.regions {
            for part in 0..parts {
                let rows = &mut places[part * self.regions + region];
                (*rows, next) = (next, next + *rows);
            }
        }
        let lists = Lists { numbers: numbers.as_mut_ptr(), others: others.as_mut_ptr() };
        self.share(&mut places, &|n, places| {
            // SAFETY: the places of a part are its own: it has counted the same rows before, all
            // parts have `count` rows together, and both lists have as many places.
            unsafe { self.place_rows(part(n), places, &lists) };
        });
    }

    /// Calls `work` for each part, with its number and its places, on several threads.
    fn share(&self, places: &mut [u32], work: &(dyn Fn(usize, &mut [u32]) + Sync)) {
        let parts = Mutex::new(places.chunks_mut(self.regions).enumerate());
        let helpers = Helpers::of(self.device, Task::Copying);
        let take = || {
            while let Some((number, places)) = { parts.lock().next() } {
                work(number, places);
            }
        };
        let helpers = helpers.at_most(self.count.div_ceil(PART).min(PARTS) - 1);
        team::run(helpers, &take, &mut || take());
    }

    fn count_rows(&self, part: Range<usize>, places: &mut [u32]) {
        part.for_each(|n| places[self.region(n)] += 1);
    }

    /// # Safety
    ///
    /// * `places` has, for each region, where the first row of the part goes, and that place and
    ///   those behind it, as many as the part has rows of the region, are in both lists and the
    ///   caller's.
    unsafe fn place_rows<N: Number, O: Number>(
        &self,
        part: Range<usize>,
        places: &mut [u32],
        lists: &Lists<N, O>,
    ) {
        for n in part {
            let place = &mut places[self.region(n)];
            // SAFETY: one of the places that are the caller's, by the precondition.
            unsafe {
                lists.numbers.add(*place as usize).write(N::new(self.numbers.get(n)));
                lists.others.add(*place as usize).write(O::new(self.others.get(n)));
            }
            *place += 1;
        }
    }

    fn region(&self, n: usize) -> usize {
        (self.numbers.get(n) >> self.shift) as usize
    }
}

/// Where the two lists lie.
struct Lists<N, O> {
    numbers: *mut N,
    others: *mut O,
}

// SAFETY: addresses; whoever writes there has the place alone (`place_rows`).
unsafe impl<N: Send, O: Send> Sync for Lists<N, O> {}

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

        /// A table in which every byte tells its row.
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
        for (rows, row, count) in [(700, 100, 500), (5000, 64, 101), (300, 9000, 299)] {
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
        for (rows, row, count) in [(700, 100, 500), (5000, 64, 101)] {
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
        let (rows, row, count, places) = (900, 128, 400, 401);
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
        let mut regions = Regions {
            numbers: &Indices::from(&numbers),
            others: &(..).into(),
            count: numbers.len(),
            shift: 6,
            regions: 16,
            device: 0,
        };
        for count in [1000, 999, 65, 64, 1] {
            regions.count = count;
            let (mut sorted, mut places) = (vec![0u64; count], vec![0u32; count]);
            regions.write(&mut sorted, &mut places);
            assert!(sorted.is_sorted_by_key(|number| number >> 6));
            for (&number, &place) in sorted.iter().zip(&places) {
                assert_eq!(u64::from(numbers[place as usize]), number);
            }
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..count as u32));
        }
    }
}
