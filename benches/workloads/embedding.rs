//! Rows of an embedding table in host memory are gathered by their numbers for every step.
//! Reference: threads gather them into page-locked memory, and one copy uploads them.

use std::ptr::NonNull;
use std::thread;

use pinlane::batch::HostSlice;
use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::common::bare::Bare;
use super::common::figures::{Figure, Report};
use super::common::numbers::drawn;
use super::common::product::Work;
use super::common::timing::samples_of;
use super::{Bench, GIB, MIB, busy, pattern};

const NAME: &str = "workload.embedding";
/// 128 floats.
const ROW: usize = 512;
const ROWS: usize = 65_536;
const TABLE: usize = 4 * GIB;
/// How many steps differ, so that no cache holds their rows.
const STEPS: usize = 8;
const THREADS: usize = 8;

const METHOD: &str = "65,536 rows of 512 B at random places of a table of 4 GiB, page-locked or \
    pageable, other rows in each of 8 steps; from their numbers in host memory until the rows are \
    on the device, host's clock; median, in turns with the reference";

enum Table {
    Pinned(PinnedBuf<u8>),
    Pageable(Vec<u8>),
}

struct Lookup {
    stream: Stream,
    table: Table,
    rows: DeviceBuf<u8>,
    steps: Vec<Vec<u32>>,
    step: usize,
    gathered: Gathered,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants(NAME) {
        return Ok(());
    }
    let reference = bench.bare.name("a gather by 8 threads, and cudaMemcpyAsync");
    let mut product = busy::product(bench, report, &format!("{NAME}.busy"))?;
    for place in ["pinned", "pageable"] {
        let name = format!("{NAME}.{place}");
        if !report.wants(&name) {
            continue;
        }
        let mut lookup = Lookup::new(bench, place == "pinned")?;
        lookup.check()?;
        let bytes = lookup.rows.len();
        let (ours, theirs) = (Lookup::ours, Lookup::theirs);
        let [runs, their_runs] = samples_of(&mut lookup, bench.samples(101), [&ours, &theirs])?;
        report.add(
            Figure::micros(&*name, &runs)
                .beside(reference, their_runs.median() * 1e6)
                .by(METHOD, runs.count()),
        );
        report.add(Figure::cores(&name, bytes, &runs, (reference, &their_runs)));
        if let Some(product) = &mut product {
            let both: [Work<'_, _>; 2] = [&ours, &theirs];
            busy::figures(report, product, (&name, bytes), &mut lookup, reference, both)?;
        }
    }
    Ok(())
}

impl Lookup {
    fn new(bench: &Bench, pinned: bool) -> Result<Self> {
        let (bytes, count) = if bench.small { (4 * MIB, 1000) } else { (TABLE, ROWS) };
        let mut table = if pinned {
            Table::Pinned(bench.pool(bytes)?.alloc(bytes)?)
        } else {
            Table::Pageable(vec![0; bytes])
        };
        let all = match &mut table {
            Table::Pinned(table) => table.write()?,
            Table::Pageable(table) => table,
        };
        all.chunks_exact_mut(ROW).enumerate().for_each(|(row, bytes)| pattern::write(row, bytes));
        Ok(Lookup {
            stream: bench.device.stream()?,
            table,
            rows: bench.device_memory(count * ROW)?,
            steps: (0..STEPS as u64).map(|seed| drawn(seed, count, bytes / ROW)).collect(),
            step: 0,
            gathered: Gathered::new(bench, count * ROW)?,
        })
    }

    fn ours(&mut self) -> Result<()> {
        self.step += 1;
        let Lookup { stream, table, rows, steps, step, .. } = self;
        let table: HostSlice<'_, u8> = match table {
            Table::Pinned(table) => (&*table).into(),
            Table::Pageable(table) => table.as_slice().into(),
        };
        stream.upload_rows(table, &steps[*step % STEPS], rows)?.wait()
    }

    fn theirs(&mut self) -> Result<()> {
        self.step += 1;
        let Lookup { table, rows, steps, step, gathered, .. } = self;
        let table = match table {
            Table::Pinned(table) => table.read()?,
            Table::Pageable(table) => table,
        };
        gathered.upload(table, &steps[*step % STEPS], rows)
    }

    fn check(&mut self) -> Result<()> {
        for way in [Lookup::ours, Lookup::theirs] {
            self.stream.fill(&mut self.rows, 0)?.wait()?;
            way(self)?;
            let mut back = vec![0u8; self.rows.len()];
            self.stream.download_slice(&self.rows, &mut back)?;
            let numbers = &self.steps[self.step % STEPS];
            for (&number, row) in numbers.iter().zip(back.chunks_exact(ROW)) {
                pattern::check(NAME, number as usize, row);
            }
        }
        Ok(())
    }
}

/// Page-locked memory of the runtime's own, into which threads gather rows.
struct Gathered {
    bare: Bare,
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only this value owns the memory, and the runtime's calls may be made on any thread.
unsafe impl Send for Gathered {}

impl Gathered {
    fn new(bench: &Bench, bytes: usize) -> Result<Self> {
        let bare = bench.bare.another(&bench.device)?;
        let memory = bare.host_alloc(bytes);
        // SAFETY: the block has this many bytes, and no other user.
        unsafe { memory.as_ptr().write_bytes(0, bytes) };
        Ok(Gathered { bare, memory, bytes })
    }

    fn upload(&mut self, table: &[u8], numbers: &[u32], rows: &mut DeviceBuf<u8>) -> Result<()> {
        assert_eq!((rows.len(), numbers.len() * ROW), (self.bytes, self.bytes));
        // SAFETY: the block has this many bytes, which `new` has written, is borrowed exclusively
        // through `self`, and idle: the copy below is waited for.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) };
        let share = numbers.len().div_ceil(THREADS);
        thread::scope(|scope| {
            for (numbers, part) in numbers.chunks(share).zip(memory.chunks_mut(share * ROW)) {
                scope.spawn(move || {
                    for (&number, to) in numbers.iter().zip(part.chunks_exact_mut(ROW)) {
                        to.copy_from_slice(&table[number as usize * ROW..][..ROW]);
                    }
                });
            }
        });
        // SAFETY: both ranges have this many bytes, are borrowed exclusively and idle; the host's
        // is page-locked; the copy is waited for.
        unsafe { self.bare.upload(rows.as_device_ptr(), self.memory.as_ptr(), self.bytes) };
        self.bare.synchronize()
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        // SAFETY: the block came from this runtime; every copy was waited for.
        unsafe { self.bare.host_free(self.memory) };
    }
}
