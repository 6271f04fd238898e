//! Rows that lie a pitch apart, by the way of the rules, and by each way that is possible. The
//! reference is `cudaMemcpy2DAsync` of the same memory.

use pinlane::batch::{Downloads, Route, Uploads};
use pinlane::driver::{
    CopyKind, DevicePtr, Layer, Pitched, RawStream, RowIndex, RowMove, StridedCopy,
};
use pinlane::{DeviceBuf, PinnedBuf, PinnedPool, Result, Stream, Strided, Strides};

use super::common::cuda::{Lines, Way};
use super::common::figures::{Figure, Report};
use super::common::pageable::Pageable;
use super::common::timing::{seconds, seconds_of};
use super::{Bench, GIB, KIB, MIB};

const GROUP: &str = "strided";

const ROWS: usize = 4096;
const LENGTHS: [usize; 5] = [256, KIB, 4 * KIB, 16 * KIB, 64 * KIB];
/// How many rows long a pitch is.
const PITCHES: [usize; 3] = [1, 2, 4];

const OURS: &str = "4096 rows of page-locked memory, whose pitch is so many rows long, to or from \
    contiguous device memory, by upload_strided or download_strided; from the call until the data \
    is there, host's clock; median, in turns with the reference";
const PAGEABLE: &str = "the same of ordinary memory; the reference takes the same memory";
const ON_DEVICE: &str = "4096 rows of device memory, whose pitch is so many rows long, to \
    contiguous memory of the same device, by copy_strided; from the call until it is done, host's \
    clock; median, in turns with one call of cuMemcpy2DAsync, the reference, and with the kernel";
const FORCED: &str = "the same rows of page-locked memory by this way alone, in the same turns: \
    one call of cuMemcpy2DAsync, the moving kernel, or a cuMemcpyAsync for each row";

/// The host's rows, those of the device, and all that copies between them.
struct Shape {
    stream: Stream,
    bare: Pageable,
    host: PinnedBuf<u8>,
    pageable: Vec<u8>,
    gpu: DeviceBuf<u8>,
    /// The kernel's list of planes.
    list: PinnedBuf<Layer>,
    strides: Strides,
}

/// Ways that the rules choose from, at the seam.
#[derive(Clone, Copy)]
enum Forced {
    Call,
    Kernel,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants(GROUP) {
        return Ok(());
    }
    for row in LENGTHS {
        for times in PITCHES {
            let bytes = ROWS * row * times;
            let ways = [("h2d", Way::H2D), ("d2h", Way::D2H)];
            let names = ways.map(|(name, way)| (format!("{GROUP}.{name}.{row}x{times}"), way));
            let on_device = format!("{GROUP}.d2d.{row}x{times}");
            let wanted = names.iter().any(|(name, _)| report.wants(name));
            if !(wanted || report.wants(&on_device)) || !bench.has_time_for(bytes) {
                continue;
            }
            let mut shape = Shape::new(bench, row, times)?;
            if report.wants(&on_device) {
                cell_on_device(bench, report, &mut shape, &on_device)?;
            }
            for (name, way) in names {
                if report.wants(&name) {
                    cells(bench, report, &mut shape, &name, way)?;
                }
            }
        }
    }
    Ok(())
}

fn cells(
    bench: &Bench,
    report: &mut Report,
    shape: &mut Shape,
    name: &str,
    way: Way,
) -> Result<()> {
    let samples = bench.samples(shape.gpu.len());
    let [ours, theirs, call, kernel, rows] = seconds_of(
        shape,
        samples,
        [
            &|it| it.ours(way),
            &|it| it.theirs(way, false),
            &|it| it.forced(bench, way, Forced::Call),
            &|it| it.forced(bench, way, Forced::Kernel),
            &|it| it.row_by_row(way),
        ],
    )?;
    let reference = bench.bare.name("cudaMemcpy2DAsync from and to page-locked memory");
    report.add(
        Figure::micros(name, &ours).beside(reference, theirs.median() * 1e6).by(OURS, ours.count()),
    );
    for (how, runs) in [("call", call), ("kernel", kernel), ("rows", rows)] {
        report.add(Figure::micros(format!("{name}.{how}"), &runs).by(FORCED, runs.count()));
    }
    let [ours, theirs] =
        seconds_of(shape, samples, [&|it| it.ours_of_pageable(way), &|it| it.theirs(way, true)])?;
    let reference = bench.bare.name("cudaMemcpy2DAsync from and to ordinary memory");
    report.add(
        Figure::micros(format!("{name}.pageable"), &ours)
            .beside(reference, theirs.median() * 1e6)
            .by(PAGEABLE, ours.count()),
    );
    Ok(())
}

fn cell_on_device(bench: &Bench, report: &mut Report, shape: &mut Shape, name: &str) -> Result<()> {
    let wide = bench.device_memory(shape.host.len())?;
    let at = wide.as_device_ptr();
    let samples = bench.samples(shape.gpu.len());
    let [ours, call, kernel] = seconds_of(
        shape,
        samples,
        [
            &|Shape { stream, gpu, strides, .. }| {
                let rows = Strided::new(wide.as_slice(), *strides)?;
                seconds(|| stream.copy_strided(rows, gpu)?.wait())
            },
            &|it| it.on_device(bench, at, Forced::Call),
            &|it| it.on_device(bench, at, Forced::Kernel),
        ],
    )?;
    report.add(
        Figure::micros(name, &ours)
            .beside("the driver's call", call.median() * 1e6)
            .by(ON_DEVICE, ours.count()),
    );
    report.add(Figure::micros(format!("{name}.kernel"), &kernel).by(ON_DEVICE, kernel.count()));
    Ok(())
}

impl Shape {
    fn new(bench: &Bench, row: usize, times: usize) -> Result<Self> {
        let pool = PinnedPool::builder(&bench.device).max_bytes(GIB + 64 * MIB).build()?;
        let bytes = ROWS * row * times;
        let mut host = pool.alloc::<u8>(bytes)?;
        host.write()?.fill(1);
        Ok(Shape {
            stream: bench.device.stream()?,
            bare: Pageable::new(&bench.bare, &bench.device)?,
            host,
            pageable: vec![1; bytes],
            gpu: bench.device_memory(ROWS * row)?,
            list: pool.alloc(1)?,
            strides: Strides::new(row, ROWS, row * times),
        })
    }

    fn ours(&mut self, way: Way) -> Result<f64> {
        let Shape { stream, host, gpu, strides, .. } = self;
        seconds(|| match way {
            Way::H2D => {
                stream.upload_strided(Strided::new(host.as_slice(), *strides)?, &mut *gpu)?.wait()
            }
            Way::D2H => {
                let rows = Strided::new(host.as_slice_mut(), *strides)?;
                stream.download_strided(&*gpu, rows)?.wait()
            }
        })
    }

    fn ours_of_pageable(&mut self, way: Way) -> Result<f64> {
        let Shape { stream, pageable, gpu, strides, .. } = self;
        seconds(|| match way {
            Way::H2D => {
                stream.upload_strided(Strided::new(&pageable[..], *strides)?, &mut *gpu)?.wait()
            }
            Way::D2H => {
                let rows = Strided::new(&mut pageable[..], *strides)?;
                stream.download_strided(&*gpu, rows)?.wait()
            }
        })
    }

    /// `cudaMemcpy2DAsync`.
    fn theirs(&mut self, way: Way, pageable: bool) -> Result<f64> {
        let host =
            if pageable { self.pageable.as_mut_ptr() } else { self.host.write()?.as_mut_ptr() };
        let Strides { row, pitch, .. } = self.strides;
        let gpu = self.gpu.as_device_ptr();
        let (width, height) = (row, ROWS);
        let lines = match way {
            Way::H2D => {
                let (dst, src) = (gpu as *mut u8, host.cast_const());
                Lines { dst, dst_pitch: row, src, src_pitch: pitch, width, height }
            }
            Way::D2H => {
                let (dst, src) = (host, gpu as *const u8);
                Lines { dst, dst_pitch: pitch, src, src_pitch: row, width, height }
            }
        };
        // SAFETY: the lines of both sides lie in memory that this shape has, which is idle: every
        // copy is waited for.
        seconds(|| unsafe { self.bare.copy_lines_and_wait(way, lines) })
    }

    /// The rows of page-locked memory, by one way.
    fn forced(&mut self, bench: &Bench, way: Way, forced: Forced) -> Result<f64> {
        let host = self.host.write()?.as_mut_ptr().expose_provenance() as u64;
        let (kind, copy) = self.copy(way, host);
        self.at_the_seam(bench, kind, copy, forced)
    }

    /// Rows of device memory at `from`, to contiguous memory.
    fn on_device(&mut self, bench: &Bench, from: DevicePtr, forced: Forced) -> Result<f64> {
        let (_, copy) = self.copy(Way::H2D, from);
        self.at_the_seam(bench, CopyKind::D2D, copy, forced)
    }

    fn at_the_seam(
        &mut self,
        bench: &Bench,
        kind: CopyKind,
        copy: StridedCopy,
        forced: Forced,
    ) -> Result<f64> {
        let (driver, stream) = (bench.bare.driver(), bench.bare.stream());
        let raw = RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() };
        match forced {
            Forced::Call => {
                seconds(|| {
                    // SAFETY: the rows lie in memory that this shape has, which is idle.
                    unsafe { driver.copy_strided(raw, kind, &copy) }.expect("it is enqueued");
                    stream.synchronize()
                })
            }
            Forced::Kernel => {
                seconds(|| {
                    self.list.write()?[0] = Layer { src: copy.src.at, dst: copy.dst.at };
                    let index = |side: Pitched| RowIndex {
                        at: 0,
                        bytes: 4,
                        limit: ROWS as u64,
                        pitch: side.pitch as u64,
                    };
                    let rows = RowMove {
                        layers: self.list.as_ptr().addr() as u64,
                        layer_count: 1,
                        count: ROWS as u64,
                        bytes: copy.row as u64,
                        from: index(copy.src),
                        to: index(copy.dst),
                    };
                    // SAFETY: as above; the list is complete.
                    unsafe { driver.move_rows(raw, kind, &rows) }.expect("the kernel starts");
                    stream.synchronize()
                })
            }
        }
    }

    /// The copy at the seam.
    fn copy(&self, way: Way, host: u64) -> (CopyKind, StridedCopy) {
        let Strides { row, pitch, .. } = self.strides;
        let gpu = self.gpu.as_device_ptr();
        let host = Pitched { at: host, pitch, height: ROWS };
        let gpu = Pitched { at: gpu, pitch: row, height: ROWS };
        let (kind, src, dst) = match way {
            Way::H2D => (CopyKind::H2D, host, gpu),
            Way::D2H => (CopyKind::D2H, gpu, host),
        };
        (kind, StridedCopy { src, dst, row, rows: ROWS, planes: 1 })
    }

    /// The rows of page-locked memory, by a call for each.
    fn row_by_row(&mut self, way: Way) -> Result<f64> {
        let Shape { stream, host, gpu, strides, .. } = self;
        let Strides { row, pitch, .. } = *strides;
        match way {
            Way::H2D => {
                let mut left = gpu.as_slice_mut();
                let mut list = Uploads::new().route(Route::Copies);
                for n in 0..ROWS {
                    let (next, rest) = left.split_at_mut(row)?;
                    list.push((host.slice(n * pitch..n * pitch + row)?, next));
                    left = rest;
                }
                seconds(|| stream.upload_list(&mut list)?.wait())
            }
            Way::D2H => {
                let mut left = host.as_slice_mut();
                let mut list = Downloads::new().route(Route::Copies);
                for n in 0..ROWS {
                    let (next, rest) = left.split_at_mut(if n + 1 < ROWS { pitch } else { row })?;
                    let (next, _) = next.split_at_mut(row)?;
                    list.push((gpu.slice(n * row..(n + 1) * row)?, next));
                    left = rest;
                }
                seconds(|| stream.download_list(&mut list)?.wait())
            }
        }
    }
}
