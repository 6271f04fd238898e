//! `pinlane bench`: what copies and the pool reach on this machine.
//!
//! | module | what |
//! |---|---|
//! | [`copies`] | bandwidth by size, each way and both ways at once |
//! | [`batches`] | small and scattered blocks |
//! | [`pool`] | the pool by threads |
//! | [`overlap`] | copies beside kernels |
//! | [`rig`] | what the measurements share |
//! | [`bare`], [`driver`] | calls of the runtime, to compare with |
//! | [`compare`] | this run beside an earlier one |
//! | [`report`] | the table and CSV |

mod bare;
mod batches;
mod compare;
mod copies;
mod driver;
mod overlap;
mod pool;
mod report;
mod rig;

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use crate::device::{self, Choice, EMULATED};
use crate::error::{Error, Result};
use crate::figures::Chart;
use crate::machine::machine;
use crate::output::{Report, write_file};
use crate::plot;
use rig::{Extent, Rig};

#[derive(clap::Args)]
pub struct Options {
    /// Few sizes, once or twice: only shows that everything works
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All sizes up to 1 GiB, many times; takes minutes
    #[arg(long)]
    full: bool,
    /// Only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CHART,...")]
    only: Vec<Family>,
    /// Also write a table of all points
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write every chart as SVG and as PNG
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// Compare with the output of an earlier `bench --json`
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Family {
    /// Host to device, by size
    Up,
    /// Device to host, by size
    Down,
    /// Both ways at once, by size
    Both,
    /// Many small buffers of pageable memory
    Small,
    /// Many blocks of one page-locked buffer
    Scattered,
    /// Allocations from the pool, by threads
    Pool,
    /// Copies beside kernels
    Overlap,
}

impl Family {
    fn measure(self, rig: &Rig) -> Result<Chart> {
        match self {
            Family::Up => copies::up(rig),
            Family::Down => copies::down(rig),
            Family::Both => copies::both(rig),
            Family::Small => batches::small(rig),
            Family::Scattered => batches::scattered(rig),
            Family::Pool => pool::by_threads(rig),
            Family::Overlap => overlap::pipeline(rig),
        }
    }
}

pub fn run(options: &Options, choice: Choice) -> Result<Report> {
    let earlier = options.compare.as_deref().map(compare::Earlier::read).transpose()?;
    let device = device::open(choice)?;
    let emulated = device.emulator().is_some();
    let extent = match (options.quick, options.full) {
        (true, _) => Extent::Quick,
        (_, true) => Extent::Full,
        _ => Extent::Short,
    };
    let families = match options.only.as_slice() {
        [] => Family::value_variants(),
        some => some,
    };
    let bar = crate::progress::bar(families.len() as u64);
    let rig = Rig::new(device, extent)?;
    let mut charts = Vec::with_capacity(families.len());
    for family in families {
        bar.set_message(format!("{family:?}").to_lowercase());
        charts.push(family.measure(&rig)?);
        bar.inc(1);
    }
    bar.finish_and_clear();

    let label = if emulated { EMULATED } else { "" };
    let device = rig.device.name();
    let title = if emulated { format!("{device} ({EMULATED})") } else { device.to_owned() };
    if let Some(path) = &options.csv {
        write_file(path, report::csv(&charts, &title).as_bytes())?;
    }
    if let Some(folder) = &options.plots {
        std::fs::create_dir_all(folder).map_err(|error| {
            let folder = folder.display();
            Error(format!("{folder}: cannot make the folder: {error}; choose another path"))
        })?;
        for chart in &charts {
            let picture = plot::chart(chart, &title);
            write_file(&folder.join(format!("{}.svg", chart.id)), picture.svg().as_bytes())?;
            write_file(&folder.join(format!("{}.png", chart.id)), &picture.png())?;
        }
    }
    let text = format!("{title}\n{}", report::table(&charts, earlier.as_ref()));
    let json = json!({
        "command": "bench",
        "version": env!("CARGO_PKG_VERSION"),
        "emulated": emulated,
        "note": label,
        "machine": machine(&rig.device),
        "extent": extent.name(),
        "charts": charts.iter().map(Chart::json).collect::<Vec<_>>(),
        "compared": earlier.map(|earlier| earlier.json(&charts)),
    });
    Ok(Report { text, json, good: true })
}
