//! The costs of the pool of page-locked memory.
//!
//! `cargo bench --bench pool -- [--json FILE] [--commit NAME] [--date DATE] [--only PREFIX]
//! [--quick]`
//!
//! ```text
//!   hit      allocate + drop from the cache        growth   new memory, and giving it back
//!   single   the same, one at a time: quantiles    stalls   what a growth costs the others
//!   remote   dropped by another thread             waste    rounding, on a mix of real sizes
//!   copies   with a copy each; large copies        budget   64 threads and 3 blocks
//!
//!   capi     C against Rust (feature capi)    lists    what long lists cost, an entry
//!
//!   ring     a queue                          ticks    a fine clock
//! ```
//!
//! The workloads are those of `benches/peers`, so that the figures can be compared with the peers'
//! in the same run. Without a GPU the emulated device is measured, which shows the pool's own cost,
//! but not the cost of page-locking and copies. `--quick` shows that everything works; its figures
//! mean little, and figures of large memory have the smaller size in their names.

mod budget;
#[cfg(feature = "capi")]
mod capi;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod growth;
mod hit;
mod lists;
mod remote;
mod ring;
mod single;
mod stalls;
mod ticks;
mod waste;

use common::bare::{self, Bare};
use common::figures::Report;
use common::options::Options;
use pinlane::{Device, PinnedPool, Result};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const SMALL: usize = 4 * KIB;

/// The state of every measurement.
struct Bench {
    device: Device,
    bare: Bare,
    /// How often a timed loop is repeated.
    rounds: usize,
    /// The least time that a timed loop takes, in seconds.
    shortest: f64,
    /// The size of "large" memory, and its name.
    large: (usize, &'static str),
}

impl Bench {
    /// A new pool for each measurement, so that they do not affect each other.
    fn pool(&self) -> Result<PinnedPool> {
        PinnedPool::builder(&self.device).max_bytes(4 * GIB).build()
    }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("benchmark: {error}");
        std::process::exit(1);
    }
}

fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_args(&[])?;
    let (device, bare) = bare::open()?;
    let mut report = Report::new(device.name(), &options)?;
    let bench = if options.quick {
        Bench { device, bare, rounds: 3, shortest: 0.002, large: (32 * MIB, "32mib") }
    } else {
        Bench { device, bare, rounds: 7, shortest: 0.02, large: (GIB, "1gib") }
    };
    hit::run(&bench, &mut report)?;
    single::run(&bench, &mut report)?;
    remote::run(&bench, &mut report)?;
    copies::small(&bench, &mut report)?;
    copies::large(&bench, &mut report)?;
    growth::run(&bench, &mut report)?;
    stalls::run(&bench, &mut report)?;
    waste::run(&mut report);
    budget::run(&bench, &mut report)?;
    lists::run(options.quick, &mut report)?;
    #[cfg(feature = "capi")]
    capi::run(&bench, &mut report)?;
    report.finish()
}
