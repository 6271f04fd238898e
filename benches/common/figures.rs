//! Figures, as a table and as the JSON that `docs/measured` keeps.

use std::error::Error;
use std::path::PathBuf;

use serde_json::{Value, json};

/// What the command line says.
#[derive(Default)]
pub struct Options {
    json: Option<PathBuf>,
    commit: Option<String>,
    date: Option<String>,
    only: Option<String>,
    /// A short run, to see that everything works; its figures mean little.
    pub quick: bool,
}

impl Options {
    pub fn from_args() -> Result<Self, Box<dyn Error>> {
        let mut options = Options::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--json" => options.json = Some(value()?.into()),
                "--commit" => options.commit = Some(value()?),
                "--date" => options.date = Some(value()?),
                "--only" => options.only = Some(value()?),
                "--quick" => options.quick = true,
                "--bench" => {} // cargo bench adds it
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        Ok(options)
    }
}

pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    /// `lower` or `higher`.
    pub better: &'static str,
    /// What it is compared with, from the same run.
    pub reference: Option<(&'static str, f64)>,
    pub samples: usize,
    pub method: &'static str,
}

pub struct Report {
    device: String,
    only: Option<String>,
    figures: Vec<Figure>,
}

impl Report {
    pub fn new(device: &str, options: &Options) -> Self {
        Report { device: device.into(), only: options.only.clone(), figures: Vec::new() }
    }

    /// Whether figures whose names start with `prefix` may be wanted.
    pub fn wants(&self, prefix: &str) -> bool {
        let Some(only) = &self.only else { return true };
        prefix.starts_with(only.as_str()) || only.starts_with(prefix)
    }

    /// Keeps the figure if it is wanted.
    pub fn add(&mut self, figure: Figure) {
        if self.only.as_ref().is_none_or(|only| figure.name.starts_with(only)) {
            self.figures.push(figure);
        }
    }

    pub fn print(&self) {
        println!("on {}", self.device);
        println!(
            "{:<32} {:>10} {:<6} {:>10} {:>7}",
            "figure", "value", "unit", "reference", "ratio"
        );
        for figure in &self.figures {
            let (reference, ratio) = match figure.reference {
                Some((_, value)) => (format!("{value:.2}"), format!("{:.3}", figure.value / value)),
                None => ("-".into(), "-".into()),
            };
            let Figure { name, value, unit, .. } = figure;
            println!("{name:<32} {value:>10.2} {unit:<6} {reference:>10} {ratio:>7}");
        }
    }

    pub fn write(&self, options: &Options) -> Result<(), Box<dyn Error>> {
        let Some(path) = &options.json else { return Ok(()) };
        let report = json!({
            "machine": self.machine(),
            "commit": options.commit,
            "date": options.date,
            "figures": self.figures.iter().map(Figure::to_json).collect::<Vec<_>>(),
        });
        std::fs::write(path, format!("{report:#}\n"))
            .map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn machine(&self) -> Value {
        let versions = pinlane::driver::cuda_runtime().and_then(|driver| driver.versions().ok());
        let (driver, cuda) = versions.unwrap_or((0, 0));
        let field = |file: &str, name: &str| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let kibibytes = field("/proc/meminfo", "MemTotal");
        let kibibytes = kibibytes.trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        // The kernel module's own number, such as 580.159.04; CUDA tells only its API version.
        let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let module = module.split_whitespace().find(|word| {
            word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.')
        });
        json!({
            "gpu": self.device,
            "driver": module,
            "driver_api": driver,
            "cuda": cuda,
            "cpu": field("/proc/cpuinfo", "model name"),
            "cores": std::thread::available_parallelism().map_or(0, |cores| cores.get()),
            "memory_gib": kibibytes >> 20,
        })
    }
}

impl Figure {
    fn to_json(&self) -> Value {
        let (reference, value) = self.reference.unzip();
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "better": self.better,
            "reference": reference,
            "reference_value": value,
            "ratio": value.map(|value| self.value / value),
            "samples": self.samples,
            "method": self.method,
        })
    }
}
