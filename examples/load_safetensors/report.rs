//! The output: the progress bar, the table, and the totals as text and as JSON.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::error::{Error, Result};
use super::load::Loaded;
use super::tensor_file::{TensorFile, printable};
use super::verify::Verified;

/// The phases before the load.
pub struct Phases {
    /// Opening the device; the driver starts with the first one.
    pub device: Duration,
    /// Opening the file and reading its header.
    pub header: Duration,
}

/// The result of a run. `Display` is the text for the user.
pub struct Report<'a> {
    pub file: &'a TensorFile,
    pub device: &'a str,
    pub phases: Phases,
    pub loaded: &'a Loaded,
    pub verified: &'a Verified,
}

/// A rate in 10^9 bytes a second.
fn gb_per_s(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e9 / time.as_secs_f64()
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEAD: [&str; 5] = ["tensor", "dtype", "shape", "bytes", "verified"];
        let rows: Vec<[String; 5]> = (0..self.file.tensors().len()).map(|i| self.row(i)).collect();
        let widths: [usize; 5] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(HEAD[column].len())
        });
        let mut line = |cells: [&str; 5]| {
            let [tensor, dtype, shape, bytes, verified] = cells;
            let [w0, w1, w2, w3, _] = widths;
            writeln!(f, "{tensor:w0$}  {dtype:w1$}  {shape:w2$}  {bytes:>w3$}  {verified}")
        };
        line(HEAD)?;
        for row in &rows {
            line(row.each_ref().map(String::as_str))?;
        }
        self.totals(f)
    }
}

/// As many dimensions as fit in a line.
fn shape(dimensions: &[usize]) -> String {
    const SHOWN: usize = 8;
    match dimensions.get(..SHOWN) {
        Some(first) if first.len() < dimensions.len() => {
            let first = format!("{first:?}");
            format!("{}, … {} in all]", first.trim_end_matches(']'), dimensions.len())
        }
        _ => format!("{dimensions:?}"),
    }
}

impl Report<'_> {
    fn row(&self, index: usize) -> [String; 5] {
        let tensor = &self.file.tensors()[index];
        let verified = if self.verified.downloaded[index] { "checksum, bytes" } else { "checksum" };
        [
            printable(&tensor.name),
            format!("{:?}", tensor.dtype),
            shape(&tensor.shape),
            tensor.bytes.to_string(),
            verified.into(),
        ]
    }

    fn totals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { file, device, phases, loaded, verified } = self;
        let (tensors, bytes) = (file.tensors().len(), file.bytes());
        let way = match &loaded.reader {
            reader if reader.is_mapped() => "mapped from",
            reader if reader.is_direct() => "past",
            _ => "through",
        };
        writeln!(f)?;
        writeln!(f, "device    {device}")?;
        writeln!(f, "file      {}, {way} the page cache", file.path().display())?;
        writeln!(
            f,
            "phases    device {:.4} s, header {:.4} s, allocating on the device {:.4} s, \
             reading and copying {:.4} s",
            phases.device.as_secs_f64(),
            phases.header.as_secs_f64(),
            loaded.allocation.as_secs_f64(),
            (loaded.first - loaded.allocation).as_secs_f64(),
        )?;
        writeln!(
            f,
            "loaded    {tensors} tensors, {bytes} bytes in {:.4} s: {:.2} GB/s with allocating",
            loaded.first.as_secs_f64(),
            gb_per_s(bytes, loaded.first),
        )?;
        if let Some(again) = self.again() {
            let (seconds, speed) = (again.as_secs_f64(), gb_per_s(bytes, again));
            writeln!(
                f,
                "again     {} times, in {seconds:.4} s: {speed:.2} GB/s",
                loaded.again.len()
            )?;
        }
        match loaded.ceiling {
            Some(time) => writeln!(
                f,
                "ceiling   {:.4} s, {:.2} GB/s: the link, from page-locked memory; a load takes \
                 {:.2} times as long",
                time.as_secs_f64(),
                gb_per_s(bytes, time),
                self.again().unwrap_or(loaded.first).as_secs_f64() / time.as_secs_f64(),
            )?,
            None if bytes == 0 => {}
            None => writeln!(
                f,
                "ceiling   none: an emulated device has no link, and says nothing about a GPU's \
                 speed"
            )?,
        }
        if cfg!(debug_assertions) {
            writeln!(f, "build     without optimisations; `cargo run --release` shows the speed")?;
        }
        writeln!(
            f,
            "verified  {} checksums equal, {} tensors downloaded bit-exact in {:.4} s",
            verified.sums.len(),
            self.downloaded(),
            verified.elapsed.as_secs_f64(),
        )
    }

    /// The median of all loads but the first.
    fn again(&self) -> Option<Duration> {
        let mut times = self.loaded.again.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    fn downloaded(&self) -> usize {
        self.verified.downloaded.iter().filter(|&&downloaded| downloaded).count()
    }

    /// Writes the totals to `path` as JSON.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        let text = format!("{:#}\n", self.json());
        std::fs::write(path, text).map_err(|error| {
            Error::file(path, format!("cannot write: {error}"), "give --json another path")
        })
    }

    /// The totals.
    pub fn json(&self) -> Value {
        let (bytes, loaded) = (self.file.bytes(), self.loaded);
        let again = self.again();
        json!({
            "device": self.device,
            "file": self.file.path().to_string_lossy(),
            "direct": loaded.reader.is_direct(),
            "mapped": loaded.reader.is_mapped(),
            "tensors": self.file.tensors().len(),
            "bytes": bytes,
            "device_seconds": self.phases.device.as_secs_f64(),
            "header_seconds": self.phases.header.as_secs_f64(),
            "allocation_seconds": loaded.allocation.as_secs_f64(),
            "first_load_seconds": loaded.first.as_secs_f64(),
            "first_load_gb_per_s": gb_per_s(bytes, loaded.first),
            "loads": 1 + loaded.again.len(),
            "load_seconds": again.map(|time| time.as_secs_f64()),
            "load_gb_per_s": again.map(|time| gb_per_s(bytes, time)),
            "ceiling_seconds": loaded.ceiling.map(|time| time.as_secs_f64()),
            "verify_seconds": self.verified.elapsed.as_secs_f64(),
            "checksums_equal": self.verified.sums.len(),
            "downloaded_bit_exact": self.downloaded(),
        })
    }
}

/// Writes `text`. A closed pipe, as by `head`, is not an error.
pub fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::File(format!(
            "standard output: cannot write: {error}; redirect it elsewhere"
        ))),
        _ => Ok(()),
    }
}

/// A bar on standard error.
pub fn progress_bar() -> ProgressBar {
    const TEMPLATE: &str = "{msg:9} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}";
    let style = ProgressStyle::with_template(TEMPLATE).expect("a template that was tried");
    ProgressBar::new(0).with_style(style)
}

/// Restarts the bar for a new phase of the work.
pub fn begin(bar: &ProgressBar, phase: &'static str, bytes: usize) {
    bar.set_length(bytes as u64);
    bar.set_message(phase);
    bar.reset();
}
