//! The costs of lists that callers can make long: the time of one entry, in lists of a thousand to
//! a hundred thousand. A cost per entry that grows with the length is quadratic in total.
//!
//! Always on the emulated device, because the lists belong to this crate.

mod blocks;
mod copies;
#[cfg(feature = "capi")]
mod handles;
mod machine;
mod requests;
mod tickets;

use std::time::Instant;

use pinlane::driver::RawStream;
use pinlane::emulated::Emulator;
use pinlane::{Device, PinnedPool, Result, Stream};

use super::SMALL;
#[cfg(feature = "capi")]
use super::common::c;
use super::common::figures::{Figure, Report};

const LENGTHS: [(usize, &str); 3] = [(1_000, "1e3"), (10_000, "1e4"), (100_000, "1e5")];
/// A list that takes longer than this many seconds, including its setup, is not made longer.
const PATIENCE: f64 = 5.0;

/// A list: its name, the seconds for this many entries, and a description of an entry.
type Row = (&'static str, fn(&Rig, usize) -> Result<f64>, &'static str);

const ROWS: &[&[Row]] = &[
    requests::ROWS,
    tickets::ROWS,
    copies::ROWS,
    blocks::ROWS,
    #[cfg(feature = "capi")]
    handles::ROWS,
    machine::ROWS,
];

/// A separate machine for each list.
struct Rig {
    emulator: Emulator,
    device: Device,
    stream: Stream,
}

impl Rig {
    fn new() -> Result<Self> {
        Rig::of(Emulator::new())
    }

    fn of(emulator: Emulator) -> Result<Self> {
        let device = Device::of_emulator(&emulator, 0)?;
        Ok(Rig { stream: device.stream()?, device, emulator })
    }

    /// A pool of this many small blocks.
    fn pool(&self, blocks: usize) -> Result<PinnedPool> {
        PinnedPool::builder(&self.device).max_bytes(blocks * SMALL).build()
    }

    fn raw(stream: &Stream) -> RawStream {
        RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() }
    }

    /// This many streams, on which nothing runs.
    fn stalled(&self, count: usize) -> Result<Vec<Stream>> {
        let streams = (0..count).map(|_| self.device.stream()).collect::<Result<Vec<_>>>()?;
        streams.iter().for_each(|stream| {
            self.emulator.stall(Self::raw(stream)).expect("a live stream");
        });
        Ok(streams)
    }

    fn release(&self, streams: &[Stream]) {
        streams.iter().for_each(|stream| {
            self.emulator.release(Self::raw(stream)).expect("a live stream");
        });
    }
}

pub fn run(quick: bool, report: &mut Report) -> Result<()> {
    for &(list, measure, method) in ROWS.iter().copied().flatten() {
        let lengths = if quick { &LENGTHS[..1] } else { &LENGTHS[..] };
        let mut last = 0.0;
        for &(length, size) in lengths {
            let name = format!("lists.{list}.{size}");
            if !report.wants(&name) {
                continue;
            }
            if last > PATIENCE {
                report.skip(&name, format!("a tenth of it took {last:.0} s"));
                continue;
            }
            let start = Instant::now();
            let each = measure(&Rig::new()?, length)? / length as f64 * 1e9;
            last = start.elapsed().as_secs_f64();
            report.add(Figure::lower(name, each, "ns").by(method, 1));
        }
    }
    Ok(())
}

fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}
