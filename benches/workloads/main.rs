//! Five complete workloads of users, each from the call until the data has arrived.
//!
//! `cargo bench --bench workloads -- [--json FILE] [--commit NAME] [--date DATE] [--only PREFIX]
//! [--quick] [--cublas FILE] [--files FOLDER] [--tensors COUNT]`
//!
//! ```text
//!   kv           blocks of a KV cache, down and up       embedding   rows of a table, by index
//!   experts      weights on demand, beside compute       optimizer   state, around a CPU step
//!   checkpoint   all tensors of a device to a file
//!
//!   pattern      bytes that say where they come from     busy        copies beside a product
//!   mapping      a new file as memory
//! ```
//!
//! `benches/peers/workloads.py` does the same with PyTorch: the sizes are the same in both. A
//! figure's reference is the same job by CUDA's own calls, measured in turns. The time includes
//! making lists. Every workload checks its bytes once, outside of the time.
//!
//! Without a GPU the emulated device runs small versions, whose times say nothing about copies.
//! `--quick` is small everywhere. `--tensors` is how many tensors of 32 MiB a checkpoint has.

mod busy;
mod checkpoint;
#[path = "../common/mod.rs"]
mod common;
mod embedding;
mod experts;
mod kv;
mod mapping;
mod optimizer;
mod pattern;

use common::bare::{self, Bare};
use common::figures::Report;
use common::folder;
use common::options::Options;
use pinlane::{Device, DeviceBuf, PinnedPool, Result};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The state of every workload.
struct Bench {
    device: Device,
    bare: Bare,
    /// A short run, which shows that everything works.
    small: bool,
    /// The path of cuBLAS.
    cublas: Option<String>,
    /// The folder for files, and the number of tensors of a checkpoint, if given.
    files: Option<String>,
    tensors: Option<usize>,
}

impl Bench {
    fn pool(&self, bytes: usize) -> Result<PinnedPool> {
        PinnedPool::builder(&self.device).max_bytes(bytes + bytes / 8 + 64 * MIB).build()
    }

    fn device_memory(&self, bytes: usize) -> Result<DeviceBuf<u8>> {
        self.bare.device_memory(&self.device, bytes)
    }

    fn samples(&self, full: usize) -> usize {
        if self.small { 3 } else { full }
    }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("benchmark: {error}");
        std::process::exit(1);
    }
}

fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_args(&["cublas", folder::OPTION, checkpoint::TENSORS])?;
    let (device, bare) = bare::open()?;
    let mut report = Report::new(device.name(), &options)?;
    let small = options.quick || bare.is_emulated();
    let said = |name| options.value(name).map(str::to_owned);
    let tensors = options.value(checkpoint::TENSORS).map(str::parse).transpose()?;
    if tensors == Some(0) {
        return Err("a checkpoint needs a tensor: --tensors 1 or more".into());
    }
    let (cublas, files) = (said("cublas"), said(folder::OPTION));
    let bench = Bench { device, bare, small, cublas, files, tensors };
    kv::run(&bench, &mut report)?;
    embedding::run(&bench, &mut report)?;
    experts::run(&bench, &mut report)?;
    optimizer::run(&bench, &mut report)?;
    checkpoint::run(&bench, &mut report)?;
    report.finish()
}
