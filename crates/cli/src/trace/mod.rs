//! `pinlane trace`: runs a workload, and writes a timeline of it.
//!
//! | module | what |
//! |---|---|
//! | [`workload`] | what is run |
//! | [`summary`] | how long copies, kernels and threads took, and how much overlapped |

mod summary;
mod workload;

use std::path::PathBuf;

use pinlane::trace::Recording;
use serde_json::json;

use crate::device::{self, Choice, EMULATED};
use crate::error::Result;
use crate::output::{Report, write_file};
use summary::Summary;
use workload::{Memory, Rig, Workload};

#[derive(clap::Args)]
pub struct Options {
    /// What to run
    #[arg(value_enum, default_value = "pipeline")]
    workload: Workload,
    /// The file that `load` uploads
    #[arg(long, value_name = "FILE", required_if_eq("workload", "load"))]
    file: Option<PathBuf>,
    /// The host memory from which `copies` uploads
    #[arg(long, value_enum, default_value = "page-locked")]
    memory: Memory,
    /// How many streams `copies` uses: with 2, kernels and copies have a stream each
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    streams: u8,
    /// The size of each copy in MiB
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    mib: u32,
    /// Write JSON that ui.perfetto.dev and chrome://tracing open
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a drawing
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn run(options: &Options, choice: Choice) -> Result<Report> {
    let device = device::open(choice)?;
    let emulated = device.emulator().is_some();
    let recording = Recording::new();
    let rig = Rig::new(&device, &recording, options.mib as usize * (1 << 20))?;
    match options.workload {
        Workload::Copies => rig.copies(options.memory, options.streams == 2)?,
        Workload::Pipeline => rig.pipeline()?,
        Workload::Graph => rig.graph()?,
        Workload::Load => rig.load(options.file.as_deref().expect("the parser asks for it"))?,
    }
    let trace = recording.stop()?;
    if let Some(path) = &options.out {
        write_file(path, trace.to_json().as_bytes())?;
    }
    if let Some(path) = &options.svg {
        write_file(path, trace.to_svg().as_bytes())?;
    }

    let summary = Summary::of(&trace);
    let name = device.name();
    let mut text = format!("device   {name}\n{summary}");
    if emulated {
        text += &format!("note     {EMULATED}; kernels take time on its clock only\n");
    }
    for file in [&options.out, &options.svg].into_iter().flatten() {
        text += &format!("written  {}\n", file.display());
    }
    let json = json!({
        "command": "trace",
        "version": env!("CARGO_PKG_VERSION"),
        "device": name,
        "emulated": emulated,
        "note": if emulated { EMULATED } else { "" },
        "summary": summary.to_json(),
        "missing": trace.missing(),
    });
    Ok(Report { text, json, good: true })
}
