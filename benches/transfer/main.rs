//! The costs of transfers: pinned, staged and batched copies, files, overlap, peers.
//!
//! `cargo bench --bench transfer -- [--json FILE] [--commit NAME] [--date DATE] [--only PREFIX]
//! [--quick] [--cublas FILE] [--files FOLDER]`
//!
//! ```text
//!   pinned    from and to page-locked memory     batch     many small copies at once
//!   submit    what a tracked call costs          routes   whether it chooses the fastest way
//!   staged    from and to pageable memory        file      files that are in memory
//!   slices    many pageable slices               overlap   H2D, kernel and D2H at once
//!   pooled    slices in memory of a pool
//!   versus    beside the runtime's own staging   matmul    what copies cost a matrix product
//!   threads   the same by many threads at once   peer      between two devices
//!   prefetch  batches, ahead of their use        emulated  the emulated device's own cost
//!   requests  a buffer that fresh streams share rows      rows of a table by their numbers
//!   two       two devices fed at the same time   strided   rows that lie a pitch apart
//!   host      what copies cost the host          graphs    what a launch costs, and a step
//!   shared    one stream that threads share
//!
//!   ceiling   a bare copy of the same bytes      tuning    other options of staging
//!   blocks    the memory of the batches
//! ```
//!
//! Every figure has a reference from the same run. The two are measured in turns, so that both see
//! the same machine. There are two ways of timing:
//!
//! * *Held*: device time between two events. All work is enqueued before any of it runs, so the
//!   figure contains no time of the host.
//! * *End to end*: the host's clock, from the call until the data has arrived.
//!
//! Without a GPU the emulated device is measured, which shows this crate's own cost, but not the
//! cost of copies. `--quick` shows that everything works. It leaves large sizes out, and its
//! figures mean little.

mod batch;
mod blocks;
mod ceiling;
#[path = "../common/mod.rs"]
mod common;
mod emulated;
mod file;
mod graphs;
mod host;
mod matmul;
mod overlap;
mod peer;
mod pinned;
mod pooled;
mod prefetch;
mod requests;
mod routes;
mod rows;
mod shared;
mod slices;
mod staged;
mod strided;
mod submit;
mod threads;
mod tuning;
mod two;
mod versus;

use common::bare::{self, Bare};
use common::figures::Report;
use common::folder;
use common::options::Options;
use pinlane::{Device, DeviceBuf, PinnedPool, Result};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The sizes of single copies, and their names.
const SIZES: [(&str, usize); 4] =
    [("1gib", GIB), ("256mib", 256 * MIB), ("64mib", 64 * MIB), ("16mib", 16 * MIB)];

/// A tensor of a million floats.
const TENSOR: usize = 4_000_000;

/// The state of every measurement.
struct Bench {
    device: Device,
    bare: Bare,
    quick: bool,
    /// The path of cuBLAS.
    cublas: Option<String>,
    /// The folder for the files that are measured.
    files: Option<String>,
}

impl Bench {
    /// A new pool for each measurement, so that they do not affect each other.
    fn pool(&self) -> Result<PinnedPool> {
        PinnedPool::builder(&self.device).max_bytes(4 * GIB).build()
    }

    /// Device memory whose allocation is complete, so that every stream may use it at once.
    fn device_memory(&self, bytes: usize) -> Result<DeviceBuf<u8>> {
        self.bare.device_memory(&self.device, bytes)
    }

    /// How many times a copy of this size is measured.
    fn samples(&self, bytes: usize) -> usize {
        match bytes {
            _ if self.quick => 3,
            0..=0xffff => 301,
            0x1_0000..=0xff_ffff => 101,
            0x100_0000..=0xfff_ffff => 31,
            _ => 9,
        }
    }

    /// Whether there is time for copies of this size.
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
    let own = ["cublas", folder::OPTION, file::FIRST_LOAD, file::WARM_LOAD, file::ONE_LOAD];
    let options = Options::from_args(&[&own[..], &tuning::OPTIONS].concat())?;
    let (device, bare) = bare::open()?;
    tuning::apply(&options, &device)?;
    for option in [file::FIRST_LOAD, file::WARM_LOAD, file::ONE_LOAD] {
        if let Some(path) = options.value(option) {
            return file::first_load(&device, path, option);
        }
    }
    let mut report = Report::new(device.name(), &options)?;
    let said = |name| options.value(name).map(str::to_owned);
    let (cublas, files) = (said("cublas"), said(folder::OPTION));
    let bench = Bench { device, bare, quick: options.quick, cublas, files };
    pinned::run(&bench, &mut report)?;
    submit::run(&bench, &mut report)?;
    requests::run(&bench, &mut report)?;
    shared::run(&bench, &mut report)?;
    graphs::run(&bench, &mut report)?;
    staged::run(&bench, &mut report)?;
    host::run(&bench, &mut report)?;
    slices::run(&bench, &mut report)?;
    pooled::run(&bench, &mut report)?;
    versus::run(&bench, &mut report)?;
    threads::run(&bench, &mut report)?;
    versus::worst(&mut report);
    batch::run(&bench, &mut report)?;
    routes::run(&bench, &mut report)?;
    rows::run(&bench, &mut report)?;
    strided::run(&bench, &mut report)?;
    prefetch::run(&bench, &mut report)?;
    file::run(&bench, &mut report)?;
    overlap::run(&bench, &mut report)?;
    matmul::run(&bench, &mut report)?;
    peer::run(&bench, &mut report)?;
    two::run(&bench, &mut report)?;
    emulated::run(&bench, &mut report)?;
    report.finish()
}
