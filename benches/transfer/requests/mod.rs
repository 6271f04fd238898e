//! Requests of a server. Each has two own streams, reads a shared buffer, and ends.
//!
//! Nothing waits for these streams. If the buffer remembered them all, it would keep them alive and
//! get slower with each request.

#[cfg(feature = "capi")]
mod c;

use std::time::Instant;

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::Bench;
use super::common::figures::{Figure, Report};

const BYTES: usize = 4096;

const REQUEST: &str = "two fresh streams, a copy of 4 KiB on each from one shared page-locked \
    buffer, and their end; mean of the last tenth of the requests";
const STREAMS: &str = "streams of the device that exist at that point, the crate's own among them";
const HELD: &str =
    "one copy of 4 KiB from one shared page-locked buffer on each of the live streams; mean";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let counts: &[usize] = if bench.quick { &[1000] } else { &[1000, 10_000, 100_000] };
    if report.wants("requests.fresh") {
        fresh(bench, report, counts)?;
    }
    #[cfg(feature = "capi")]
    if report.wants("requests.c") {
        fresh_from_c(report, counts);
    }
    let many = if bench.quick { 1000 } else { 100_000 };
    if report.wants("requests.live") {
        live(bench, report, many)?;
    }
    Ok(())
}

/// The shared buffer, and the two destinations.
fn ends(bench: &Bench) -> Result<(PinnedBuf<u8>, [DeviceBuf<u8>; 2])> {
    let gpus = [bench.device_memory(BYTES)?, bench.device_memory(BYTES)?];
    Ok((bench.pool()?.alloc_zeroed(BYTES)?, gpus))
}

fn fresh(bench: &Bench, report: &mut Report, counts: &[usize]) -> Result<()> {
    let (shared, mut gpus) = ends(bench)?;
    let mut done = 0;
    for &count in counts {
        let mut run_until = |end: usize| -> Result<f64> {
            let start = Instant::now();
            let requests = end - done;
            for _ in done..end {
                for gpu in &mut gpus {
                    bench.device.stream()?.upload(&shared, gpu)?;
                }
            }
            done = end;
            Ok(start.elapsed().as_secs_f64() / requests as f64)
        };
        run_until(count - count / 10)?;
        let tail = run_until(count)?;
        let name = format!("requests.fresh.{count}");
        report.add(Figure::lower(&name, tail * 1e6, "us").by(REQUEST, count / 10));
        let live = bench.device.live_streams() as f64;
        report.add(Figure::lower(format!("{name}.live"), live, "").by(STREAMS, 1));
    }
    Ok(())
}

/// The same requests through the C interface.
#[cfg(feature = "capi")]
fn fresh_from_c(report: &mut Report, counts: &[usize]) {
    let requests = c::Requests::new();
    let mut done = 0;
    for &count in counts {
        let mut run_until = |end: usize| {
            let start = Instant::now();
            (done..end).for_each(|_| requests.one());
            let requests = end - done;
            done = end;
            start.elapsed().as_secs_f64() / requests as f64
        };
        run_until(count - count / 10);
        let tail = run_until(count);
        let name = format!("requests.c.{count}");
        report.add(Figure::lower(&name, tail * 1e6, "us").by(REQUEST, count / 10));
        let live = requests.live_streams() as f64;
        report.add(Figure::lower(format!("{name}.live"), live, "").by(STREAMS, 1));
    }
}

fn live(bench: &Bench, report: &mut Report, count: usize) -> Result<()> {
    let (shared, mut gpus) = ends(bench)?;
    let mut streams: Vec<Stream> = Vec::with_capacity(count);
    while streams.len() < count {
        match bench.device.stream() {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                let made = streams.len();
                report.skip("requests.live", format!("only {made} streams could be made: {error}"));
                break;
            }
        }
    }
    let start = Instant::now();
    for stream in &streams {
        stream.upload(&shared, &mut gpus[0])?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let name = format!("requests.live.{}", streams.len());
    let mean = seconds / streams.len().max(1) as f64;
    report.add(Figure::lower(name, mean * 1e6, "us").by(HELD, streams.len()));
    Ok(())
}
