//! The command-line tool: checks a machine, measures its copies, and advises how to copy.
//!
//! | module | what |
//! |---|---|
//! | [`doctor`] | is this machine fit for fast copies? |
//! | [`bench`] | what copies and the pool reach |
//! | [`advise`] | how to copy a given workload, and why |
//! | [`trace`] | a timeline of what devices and threads do |
//! | [`load`], [`example`] | safetensors files to the device |
//! | [`device`] | which device, and what it is called |
//! | [`system`] | the files in which Linux describes the machine |
//! | [`measure`] | how time is measured |
//! | [`machine`] | the machine of a run, for its JSON |
//! | [`figures`] | the results of a benchmark |
//! | [`plot`] | the same as SVG and PNG |
//! | [`progress`] | bars at a terminal |
//! | [`python`] | the commands of the package for Python |
//! | [`size`] | sizes on the command line |
//! | [`output`] | text and JSON on the standard output |
//! | [`error`] | what can go wrong |

mod advise;
mod bench;
mod device;
mod doctor;
mod error;
mod example;
mod figures;
mod load;
mod machine;
mod measure;
mod output;
mod plot;
mod progress;
mod python;
mod size;
mod system;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use device::Choice;
use error::Error;
use output::Report;

/// Looks at this machine, measures copies between host and GPU, and says how to copy.
#[derive(Parser)]
#[command(name = "pinlane", version, after_help = MORE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print JSON in place of text
    #[arg(long, global = true)]
    json: bool,
    /// GPU number N, or `emulated` [default: GPU 0 if there is one, else emulated]
    #[arg(long, global = true, value_name = "N", default_value = "any", hide_default_value = true)]
    device: Choice,
}

const MORE: &str = "\
`pinlane race` and `pinlane env` run the package for Python, which finds races of PyTorch programs.

Exit code: 0 if all is well, 1 if something failed or is wrong, 2 if the command line is.";

#[derive(Subcommand)]
enum Command {
    /// Check devices, driver, link and limits, and say what to fix
    Doctor(doctor::Options),
    /// Measure copies and the pool: tables, CSV, plots, and a comparison with an earlier run
    Bench(bench::Options),
    /// Say how to copy a given workload on this machine, and why: predicted, then measured
    Advise(advise::Options),
    /// Load safetensors files to the device, and verify that every byte arrived
    Load(load::Options),
    /// Run copies and kernels, and write a timeline of them
    Trace(trace::Options),
}

fn main() -> ExitCode {
    if let Some(arguments) = python::arguments() {
        eprintln!("pinlane: {}", python::run(arguments));
        return ExitCode::FAILURE;
    }
    let cli = Cli::parse();
    match run(&cli).and_then(|report| report.print(cli.json)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("pinlane: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<Report, Error> {
    match &cli.command {
        Command::Doctor(options) => doctor::run(options, cli.device),
        Command::Bench(options) => bench::run(options, cli.device),
        Command::Advise(options) => advise::run(options, cli.device),
        Command::Load(options) => load::run(options, cli.device),
        Command::Trace(options) => trace::run(options, cli.device),
    }
}
