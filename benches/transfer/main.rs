//! What transfers cost: pinned, staged and batched copies, files, overlap, peers.
//!
//! `cargo bench --bench transfer -- [--json FILE] [--commit NAME] [--date DATE] [--only PREFIX]
//! [--quick] [--cublas FILE] [--files FOLDER]`
//!
//! ```text
//!   pinned    from and to page-locked memory     batch     many small copies at once
//!   submit    what a tracked call costs          planner   whether it chooses the fastest way
//!   staged    from and to ordinary memory        file      files that are in memory
//!   slices    many ordinary slices               overlap   H2D, kernel and D2H at once
//!   versus    beside the runtime's own staging   matmul    what copies cost a matrix product
//!   threads   and by many threads at once        peer      between two devices
//!   prefetch  batches, ahead of their use        emulated  the emulated device's own cost
//!   requests  a buffer that fresh streams share
//!
//!   ceiling   a bare copy of the same bytes      cublas    the library of that product
//!   blocks    what batches are measured on       tuning    staging other than by default
//! ```
//!
//! Every figure stands beside its reference from the same run, taken in turns with it, so that both
//! meet the same machine. There are two ways to take time. *Held*: device time between two events,
//! with all work enqueued before any of it runs, so that the host is in no figure. *End to end*:
//! the host's clock, from the call until the data is there.
//!
//! Without a GPU the emulated device is measured, which says something about this crate's own cost
//! and nothing about copies. `--quick` shows that everything works; its figures mean little, and
//! large sizes are left out.

mod batch;
mod blocks;
mod ceiling;
#[path = "../common/mod.rs"]
mod common;
mod cublas;
mod emulated;
mod file;
mod matmul;
mod overlap;
mod peer;
mod pinned;
mod planner;
mod prefetch;
mod requests;
mod slices;
mod staged;
mod submit;
mod threads;
mod tuning;
mod versus;

use common::bare::{self, Bare};
use common::figures::Report;
use common::options::Options;
use pinlane::{Device, DeviceBuf, PinnedPool, Result, Stream};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The sizes of single copies, and their names.
const SIZES: [(&str, usize); 4] =
    [("1gib", GIB), ("256mib", 256 * MIB), ("64mib", 64 * MIB), ("16mib", 16 * MIB)];

/// A tensor of a million floats.
const TENSOR: usize = 4_000_000;

/// What every measurement needs.
struct Bench {
    device: Device,
    bare: Bare,
    /// For what is done before a measurement.
    fills: Stream,
    quick: bool,
    /// Where cuBLAS is.
    cublas: Option<String>,
    /// Where files that are measured lie meanwhile.
    files: Option<String>,
}

impl Bench {
    /// A pool of its own for each measurement, so that none meets what another left.
    fn pool(&self) -> Result<PinnedPool> {
        PinnedPool::builder(&self.device).max_bytes(4 * GIB).build()
    }

    /// Device memory that every stream may use at once: its allocation is complete.
    fn device_memory(&self, bytes: usize) -> Result<DeviceBuf<u8>> {
        let mut memory = self.device.alloc::<u8>(bytes)?;
        self.fills.fill(&mut memory, 0)?.wait()?;
        Ok(memory)
    }

    /// How often a copy of so many bytes is measured.
    fn samples(&self, bytes: usize) -> usize {
        match bytes {
            _ if self.quick => 3,
            0..=0xffff => 301,
            0x1_0000..=0xff_ffff => 101,
            0x100_0000..=0xfff_ffff => 31,
            _ => 9,
        }
    }

    /// Whether there is time for copies of so many bytes.
    fn has_time_for(&self, bytes: usize) -> bool {
        !self.quick || bytes <= 16 * MIB
    }
}

/// GB/s.
fn rate(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

fn main() {
    if let Err(error) = run() {
        eprintln!("benchmark: {error}");
        std::process::exit(1);
    }
}

fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let own = ["cublas", file::FOLDER, file::FIRST_LOAD];
    let options = Options::from_args(&[&own[..], &tuning::OPTIONS].concat())?;
    let (device, bare) = bare::open()?;
    tuning::apply(&options, &device)?;
    if let Some(path) = options.value(file::FIRST_LOAD) {
        return file::first_load(&device, path);
    }
    let mut report = Report::new(device.name(), &options);
    let said = |name| options.value(name).map(str::to_owned);
    let (cublas, files) = (said("cublas"), said(file::FOLDER));
    let bench =
        Bench { fills: device.stream()?, device, bare, quick: options.quick, cublas, files };
    pinned::run(&bench, &mut report)?;
    submit::run(&bench, &mut report)?;
    requests::run(&bench, &mut report)?;
    staged::run(&bench, &mut report)?;
    slices::run(&bench, &mut report)?;
    versus::run(&bench, &mut report)?;
    threads::run(&bench, &mut report)?;
    versus::worst(&mut report);
    batch::run(&bench, &mut report)?;
    planner::run(&bench, &mut report)?;
    prefetch::run(&bench, &mut report)?;
    file::run(&bench, &mut report)?;
    overlap::run(&bench, &mut report)?;
    matmul::run(&bench, &mut report)?;
    peer::run(&bench, &mut report)?;
    emulated::run(&bench, &mut report)?;
    report.print();
    report.write(&options)
}
