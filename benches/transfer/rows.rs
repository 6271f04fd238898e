//! Rows by their numbers, out of one table. Reference: the kernel alone.

use pinlane::batch::Indices;
use pinlane::driver::{CopyKind, Driver, Layer, RawStream, RowIndex, RowMove};
use pinlane::{DeviceBuf, PinnedBuf, PinnedPool, Result, Stream};

use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::numbers::scattered;
use super::common::timing::{seconds, seconds_of};
use super::{Bench, GIB, MIB};

const ROWS: usize = 65_536;
const LENGTHS: [usize; 3] = [256, 1024, 4096];

const OURS: &str = "65,536 rows at random places of a page-locked table, by their numbers (u32 in \
    ordinary memory); 16 GiB of table, 64 MiB in a short run; numbers that are written are checked \
    to be distinct, but for .distinct, where the caller says so; from the call until the data is \
    there, host's clock; median, in turns with the reference";

struct Rows {
    stream: Stream,
    table: PinnedBuf<u8>,
    rows: DeviceBuf<u8>,
    numbers: Vec<u32>,
    lists: PinnedBuf<u64>,
    length: usize,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let shapes = LENGTHS.map(|length| (length, format!("rows.h2d.{length}")));
    let all = |length: usize| {
        let names = ["h2d", "d2h", "d2h.distinct", "h2d.pageable", "d2h.pageable"];
        names.map(|name| match name.split_once('.') {
            Some((way, how)) => format!("rows.{way}.{length}.{how}"),
            None => format!("rows.{name}.{length}"),
        })
    };
    if !shapes.iter().any(|&(length, _)| all(length).iter().any(|name| report.wants(name))) {
        return Ok(());
    }
    let bytes = if bench.quick || bench.bare.is_emulated() { 64 * MIB } else { 16 * GIB };
    let pool = PinnedPool::builder(&bench.device).max_bytes(bytes + 64 * MIB).build()?;
    let mut table = pool.alloc::<u8>(bytes)?;
    for (length, _) in shapes {
        let (samples, count) = (if bench.quick { 3 } else { 31 }, ROWS.min(bytes / length));
        let numbers = scattered(count, bytes / length);
        let layers = Layer { src: 0, dst: 0 };
        let mut lists = pool.alloc::<u64>(2 + count.div_ceil(2))?;
        let words = lists.write()?;
        words[..2].copy_from_slice(bytemuck::cast_slice(&[layers]));
        let places: &mut [u32] = bytemuck::cast_slice_mut(&mut words[2..]);
        places[..count].copy_from_slice(&numbers);
        let mut rows = Rows {
            stream: bench.device.stream()?,
            table,
            rows: bench.device_memory(count * length)?,
            numbers,
            lists,
            length,
        };
        let [up, down, distinct, kernel_up, kernel_down] = seconds_of(
            &mut rows,
            samples,
            [
                &|it| it.ours(Way::H2D, false),
                &|it| it.ours(Way::D2H, false),
                &|it| it.ours(Way::D2H, true),
                &|it| it.kernel(bench, Way::H2D),
                &|it| it.kernel(bench, Way::D2H),
            ],
        )?;
        for (name, runs, kernel) in [
            (format!("rows.h2d.{length}"), up, &kernel_up),
            (format!("rows.d2h.{length}"), down, &kernel_down),
            (format!("rows.d2h.{length}.distinct"), distinct, &kernel_down),
        ] {
            report.add(
                Figure::micros(name, &runs)
                    .beside("the kernel alone, its lists made before", kernel.median() * 1e6)
                    .by(OURS, runs.count()),
            );
        }
        Rows { table, .. } = rows;
        rows_of_pageable(bench, report, length, count, samples)?;
    }
    Ok(())
}

/// The same out of 1 GiB of ordinary memory.
fn rows_of_pageable(
    bench: &Bench,
    report: &mut Report,
    length: usize,
    count: usize,
    samples: usize,
) -> Result<()> {
    let names = ["h2d", "d2h"].map(|way| format!("rows.{way}.{length}.pageable"));
    if !names.iter().any(|name| report.wants(name)) {
        return Ok(());
    }
    let bytes = if bench.quick || bench.bare.is_emulated() { 64 * MIB } else { GIB };
    let count = count.min(bytes / length);
    let numbers = scattered(count, bytes / length);
    let stream = bench.device.stream()?;
    let subject = (vec![1u8; bytes], bench.device_memory(count * length)?);
    let [up, down] = seconds_of(
        &mut { subject },
        samples,
        [
            &|(table, rows)| seconds(|| stream.upload_rows(&*table, &numbers, rows)?.wait()),
            &|(table, rows)| seconds(|| stream.download_rows(&*rows, &numbers, table)?.wait()),
        ],
    )?;
    let method = "65,536 rows at random places of 1 GiB of ordinary memory, by their numbers; from \
        the call until the data is there, host's clock; median";
    for (name, runs) in names.into_iter().zip([up, down]) {
        report.add(Figure::micros(name, &runs).by(method, runs.count()));
    }
    Ok(())
}

impl Rows {
    fn ours(&mut self, way: Way, distinct: bool) -> Result<f64> {
        let Rows { stream, table, rows, numbers, .. } = self;
        seconds(|| {
            let indices = Indices::from(&*numbers);
            let indices = if distinct { indices.distinct() } else { indices };
            match way {
                Way::H2D => stream.upload_rows(&*table, indices, &mut *rows)?.wait(),
                Way::D2H => stream.download_rows(&*rows, indices, &mut *table)?.wait(),
            }
        })
    }

    fn kernel(&mut self, bench: &Bench, way: Way) -> Result<f64> {
        let (driver, stream) = (bench.bare.driver(), bench.bare.stream());
        let raw = RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() };
        let (host, device) = (self.table.as_ptr().addr() as u64, self.rows.as_device_ptr());
        let (layer, kind) = match way {
            Way::H2D => (Layer { src: host, dst: device }, CopyKind::H2D),
            Way::D2H => (Layer { src: device, dst: host }, CopyKind::D2H),
        };
        self.lists.write()?[..2].copy_from_slice(bytemuck::cast_slice(&[layer]));
        let at = self.lists.as_ptr().addr() as u64;
        let limit = (self.table.len() / self.length) as u64;
        let pitch = self.length as u64;
        let table = RowIndex { at: at + 16, bytes: 4, limit, pitch };
        let rows = RowIndex { at: 0, bytes: 4, limit: self.numbers.len() as u64, pitch };
        let (from, to) = match way {
            Way::H2D => (table, rows),
            Way::D2H => (rows, table),
        };
        let (count, bytes) = (self.numbers.len() as u64, self.length as u64);
        let all = RowMove { layers: at, layer_count: 1, count, bytes, from, to };
        seconds(|| {
            launch(&*driver, raw, kind, &all);
            bench.bare.synchronize()
        })
    }
}

fn launch(driver: &dyn Driver, raw: RawStream, kind: CopyKind, rows: &RowMove) {
    // SAFETY: the stream is live. The lists are complete, aligned, and in page-locked memory, as
    // the table is, which the device can address. The table and the rows have as many rows as said,
    // do not overlap, and are idle: the other measurements are complete, and this is waited for.
    unsafe { driver.move_rows(raw, kind, rows) }.expect("the kernel starts");
}
