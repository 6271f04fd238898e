//! `pinlane advise`: how to copy a given workload on this machine, and why.
//!
//! | module | what |
//! |---|---|
//! | [`workload`] | what is to be copied |
//! | [`rates`] | a few figures of this machine, measured first |
//! | [`ways`] | the ways to copy: what each should take, and what it takes |
//! | [`considerations`] | the questions that people ask, answered |

mod considerations;
mod rates;
mod ways;
mod workload;

use std::fmt::Write;

use pinlane::staging::CopyTeam;
use serde_json::json;

use crate::device::{self, Choice, EMULATED};
use crate::error::{Error, Result};
use crate::figures::time;
use crate::machine::machine;
use crate::output::{Report, in_units, wrapped};
use rates::Rates;
use ways::{Measured, Part};
use workload::{Direction, Memory, Workload};

#[derive(clap::Args)]
pub struct Options {
    /// How many pieces
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// The size of a piece: 4096, 64K, 4M, 1G
    #[arg(long, value_parser = crate::size::bytes)]
    bytes: usize,
    /// To the device or from it
    #[arg(long, value_enum, default_value_t = Direction::Up)]
    direction: Direction,
    /// The host's memory
    #[arg(long, value_enum, default_value_t = Memory::Pageable)]
    memory: Memory,
    /// How many cores may copy [default: all]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    cores: Option<u32>,
}

pub fn run(options: &Options, choice: Choice) -> Result<Report> {
    let cores = match options.cores {
        Some(cores) => {
            CopyTeam::new().threads(cores as usize - 1).install()?;
            cores as usize
        }
        None => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
    };
    let workload = Workload {
        count: options.count as usize,
        bytes: options.bytes,
        direction: options.direction,
        memory: options.memory,
        cores,
    };
    let total = workload.total().ok_or_else(|| {
        Error(format!(
            "{} pieces of {} bytes are too much; give less",
            options.count, options.bytes
        ))
    })?;
    let device = device::open(choice)?;
    let emulated = device.emulator().is_some();
    let rates = Rates::measure(&device, workload.direction)?;
    let part = Part::of(&workload);
    let ways = ways::measure(&device, &workload, part, &rates)?;
    let best = ways::best(&ways);
    let answers = considerations::answers(&device, &workload, &rates, &ways)?;

    let mut text = device.name().to_owned();
    if emulated {
        let _ = write!(text, " ({EMULATED})");
    }
    let _ = writeln!(
        text,
        "\n\n{} pieces of {}, {} in all, {}",
        workload.count,
        in_units(workload.bytes as u64),
        in_units(total as u64),
        workload.words()
    );
    let _ = writeln!(text, "\n  {:9}  {:9}  way", "predicted", "measured");
    for way in &ways {
        let mark = if std::ptr::eq(way, best) { "  <- take this" } else { "" };
        let (predicted, measured) = (time(way.predicted), time(way.seconds));
        let _ = writeln!(text, "  {predicted:>9}  {measured:>9}  {}{mark}", way.way.name());
    }
    if !part.is_all_of(&workload) {
        let (count, bytes) = (part.count, in_units(part.bytes as u64));
        let _ = writeln!(text, "\nmeasured with {count} pieces of {bytes}, and scaled");
    }
    let _ =
        writeln!(text, "\n{}", wrapped(&format!("{}: {}", best.way.name(), best.way.code()), 0));
    for answer in &answers {
        let _ = writeln!(text, "\n{}\n  {}", answer.question, wrapped(&answer.text, 2));
    }

    let json = json!({
        "command": "advise",
        "version": env!("CARGO_PKG_VERSION"),
        "emulated": emulated,
        "note": if emulated { EMULATED } else { "" },
        "machine": machine(&device),
        "workload": workload.json(),
        "rates": rates.json(),
        "measured_pieces": part.count,
        "measured_piece_bytes": part.bytes,
        "ways": ways.iter().map(Measured::json).collect::<Vec<_>>(),
        "best": best.way.name(),
        "considerations": answers.iter().map(|answer| {
            json!({ "question": answer.question, "answer": answer.text })
        }).collect::<Vec<_>>(),
    });
    Ok(Report { text, json, good: true })
}
