//! Figures, as a table and as the JSON that `docs/measured` keeps.

use std::error::Error;

use serde_json::{Map, Value, json};

use super::machine::machine;
use super::options::Options;
use super::timing::Samples;

/// One figure, and its reference. Names contain the size.
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    /// `lower` or `higher`.
    pub better: &'static str,
    /// The name and the value that it is compared with, from the same run.
    pub reference: Option<(&'static str, f64)>,
    pub samples: usize,
    pub method: &'static str,
    /// How the samples lie around the value, in its unit.
    pub spread: Option<Value>,
}

impl Figure {
    /// A figure that is better if lower.
    pub fn lower(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Figure {
            name: name.into(),
            value,
            unit,
            better: "lower",
            reference: None,
            samples: 1,
            method: "",
            spread: None,
        }
    }

    /// A figure that is better if higher.
    pub fn higher(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Figure { better: "higher", ..Figure::lower(name, value, unit) }
    }

    /// The GB/s of runs that copy `bytes` bytes each.
    pub fn rate(name: impl Into<String>, bytes: usize, runs: &Samples) -> Self {
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        Figure::higher(name, rate(runs.median()), "GB/s").spread_of(runs, rate)
    }

    pub fn millis(name: impl Into<String>, runs: &Samples) -> Self {
        let millis = |seconds: f64| seconds * 1e3;
        Figure::lower(name, millis(runs.median()), "ms").spread_of(runs, millis)
    }

    pub fn micros(name: impl Into<String>, runs: &Samples) -> Self {
        let micros = |seconds: f64| seconds * 1e6;
        Figure::lower(name, micros(runs.median()), "us").spread_of(runs, micros)
    }

    /// The time of the host's cores for runs that copy `bytes` bytes each, compared with other runs
    /// that do the same.
    pub fn cores(
        name: &str,
        bytes: usize,
        runs: &Samples,
        (reference, theirs): (&'static str, &Samples),
    ) -> Self {
        let a_gb = |runs: &Samples| runs.core_seconds() / (bytes as f64 / 1e9);
        Figure::lower(format!("{name}.core_seconds"), a_gb(runs), "s/GB")
            .beside(reference, a_gb(theirs))
            .by("seconds of all threads of the process, by getrusage, for a GB", runs.count())
    }

    /// The best and the worst run, and what 90, 99 and 99.9% of the runs reach, if there are enough
    /// runs.
    fn spread_of(self, runs: &Samples, convert: impl Fn(f64) -> f64) -> Self {
        let mut spread = Map::new();
        let shares =
            [("best", 0.0, 1), ("p90", 0.9, 10), ("p99", 0.99, 100), ("p999", 0.999, 1000)];
        for (name, part, fewest) in shares.into_iter().chain([("worst", 1.0, 1)]) {
            if runs.count() >= fewest {
                spread.insert(name.into(), convert(runs.quantile(part)).into());
            }
        }
        Figure { spread: Some(spread.into()), samples: runs.count(), ..self }
    }

    pub fn beside(self, reference: &'static str, value: f64) -> Self {
        Figure { reference: Some((reference, value)), ..self }
    }

    pub fn by(self, method: &'static str, samples: usize) -> Self {
        Figure { method, samples, ..self }
    }

    fn ratio(&self) -> Option<f64> {
        self.reference.map(|(_, value)| self.value / value)
    }

    fn to_json(&self) -> Value {
        let (reference, value) = self.reference.unzip();
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "better": self.better,
            "reference": reference,
            "reference_value": value,
            "ratio": self.ratio(),
            "samples": self.samples,
            "spread": self.spread,
            "method": self.method,
        })
    }
}

/// What was measured so far. Each figure is printed and saved at once, so that a run that is
/// stopped keeps what it has.
pub struct Report {
    machine: Value,
    only: Option<String>,
    json: Option<String>,
    commit: Option<String>,
    date: Option<String>,
    figures: Vec<Figure>,
    /// The method and the reference of a figure. Figures share most of them.
    notes: Vec<(&'static str, Option<&'static str>)>,
    /// Figures that could not be measured here, and why.
    skipped: Map<String, Value>,
}

impl Report {
    /// A report on the device with this name. Fails if the file that `--json` names cannot be
    /// written.
    pub fn new(device: &str, options: &Options) -> Result<Self, Box<dyn Error>> {
        let value = |name| options.value(name).map(str::to_owned);
        let report = Report {
            machine: machine(device),
            only: value("only"),
            json: value("json"),
            commit: value("commit"),
            date: value("date"),
            figures: Vec::new(),
            notes: Vec::new(),
            skipped: Map::new(),
        };
        report.save()?;
        let said = |key: &str| report.machine[key].as_str().unwrap_or("none").to_owned();
        println!("{}, driver {}, {}", said("gpu"), said("driver"), said("cpu"));
        println!(
            "figure                                        value unit    reference   ratio note"
        );
        Ok(report)
    }

    /// Whether figures whose names start with `prefix` may be wanted.
    pub fn wants(&self, prefix: &str) -> bool {
        let Some(only) = &self.only else { return true };
        prefix.starts_with(only.as_str()) || only.starts_with(prefix)
    }

    /// Keeps the figure if it is wanted. Its row ends with the number of a note, which `finish`
    /// prints.
    pub fn add(&mut self, figure: Figure) {
        if self.only.as_ref().is_some_and(|only| !figure.name.starts_with(only)) {
            return;
        }
        let note = (figure.method, figure.reference.map(|(name, _)| name));
        let known = self.notes.iter().position(|&other| other == note);
        let number = known.unwrap_or_else(|| {
            self.notes.push(note);
            self.notes.len() - 1
        });
        let Figure { name, value, unit, .. } = &figure;
        let reference = figure.reference.map_or("-".into(), |(_, value)| format!("{value:.2}"));
        let ratio = figure.ratio().map_or("-".into(), |ratio| format!("{ratio:.3}"));
        println!("{name:<40} {value:>10.2} {unit:<6} {reference:>10} {ratio:>7} {number:>4}");
        self.figures.push(figure);
        // `finish` saves again, and tells of an error.
        let _ = self.save();
    }

    /// The largest ratio of a figure whose name starts with `prefix` to its reference.
    pub fn largest_ratio(&self, prefix: &str) -> Option<f64> {
        let figures = self.figures.iter().filter(|figure| figure.name.starts_with(prefix));
        figures.filter_map(Figure::ratio).max_by(f64::total_cmp)
    }

    /// Notes that figures cannot be measured on this machine.
    pub fn skip(&mut self, name: &str, reason: impl Into<String>) {
        self.skipped.insert(name.into(), reason.into().into());
    }

    /// Prints the notes of the figures, and what was left out.
    pub fn finish(&self) -> Result<(), Box<dyn Error>> {
        for (number, (method, reference)) in self.notes.iter().enumerate() {
            println!("note {number}: {method}; reference: {}", reference.unwrap_or("none"));
        }
        for (name, reason) in &self.skipped {
            println!("{name}: left out: {}", reason.as_str().unwrap_or_default());
        }
        self.save()
    }

    /// Writes the file that `--json` names.
    fn save(&self) -> Result<(), Box<dyn Error>> {
        let Some(path) = &self.json else { return Ok(()) };
        let report = json!({
            "machine": self.machine,
            "commit": self.commit,
            "date": self.date,
            "figures": self.figures.iter().map(Figure::to_json).collect::<Vec<_>>(),
            "skipped": self.skipped,
        });
        std::fs::write(path, format!("{report:#}\n"))
            .map_err(|error| format!("{path}: {error}").into())
    }
}
