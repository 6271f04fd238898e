//! What the user sees: the progress bar, the table, and the totals as text and as JSON.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pinlane::PoolStats;
use serde_json::{Value, json};

use super::error::{Error, Result};
use super::load::Loaded;
use super::tensor_file::{TensorFile, printable};
use super::verify::Verified;

/// The outcome of a run; `Display` is the text for the user.
pub struct Report<'a> {
    pub file: &'a TensorFile,
    pub device: &'a str,
    pub loaded: &'a Loaded,
    pub verified: &'a Verified,
    pub streams: usize,
    pub block: usize,
    pub pool: PoolStats,
}

/// 10^9 bytes a second.
fn gb_per_s(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e9 / time.as_secs_f64()
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEAD: [&str; 7] = ["tensor", "dtype", "shape", "bytes", "ms", "GB/s", "verified"];
        let rows: Vec<[String; 7]> = (0..self.file.tensors().len()).map(|i| self.row(i)).collect();
        let widths: [usize; 7] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(HEAD[column].len())
        });
        let mut line = |cells: [&str; 7]| {
            let [tensor, dtype, shape, bytes, ms, speed, verified] = cells;
            let [w0, w1, w2, w3, w4, w5, _] = widths;
            writeln!(
                f,
                "{tensor:w0$}  {dtype:w1$}  {shape:w2$}  {bytes:>w3$}  {ms:>w4$}  {speed:>w5$}  {verified}"
            )
        };
        line(HEAD)?;
        for row in &rows {
            line(row.each_ref().map(String::as_str))?;
        }
        self.totals(f)
    }
}

impl Report<'_> {
    fn row(&self, index: usize) -> [String; 7] {
        let tensor = &self.file.tensors()[index];
        let time = self.loaded.times[index];
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".into());
        let verified = if self.verified.downloaded[index] { "checksum, bytes" } else { "checksum" };
        [
            printable(&tensor.name),
            format!("{:?}", tensor.dtype),
            format!("{:?}", tensor.shape),
            tensor.bytes.to_string(),
            or_dash(time.map(|time| format!("{:.3}", time.as_secs_f64() * 1e3))),
            or_dash(time.map(|time| format!("{:.3}", gb_per_s(tensor.bytes, time)))),
            verified.into(),
        ]
    }

    fn totals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { file, device, loaded, verified, streams, block, pool } = self;
        let (tensors, bytes) = (file.tensors().len(), file.bytes());
        writeln!(f)?;
        writeln!(f, "device    {device}")?;
        writeln!(f, "file      {}", file.path().display())?;
        writeln!(
            f,
            "loaded    {tensors} tensors, {bytes} bytes in {:.4} s: {:.2} GB/s end to end, on {streams} \
             streams in blocks of {block} bytes",
            loaded.elapsed.as_secs_f64(),
            gb_per_s(bytes, loaded.elapsed),
        )?;
        writeln!(
            f,
            "verified  {} checksums equal, {} tensors downloaded bit-exact in {:.4} s",
            verified.sums.len(),
            self.downloaded(),
            verified.elapsed.as_secs_f64(),
        )?;
        writeln!(f, "pool      {pool}")
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

    fn json(&self) -> Value {
        let (bytes, elapsed, pool) = (self.file.bytes(), self.loaded.elapsed, &self.pool);
        json!({
            "device": self.device,
            "file": self.file.path().to_string_lossy(),
            "tensors": self.file.tensors().len(),
            "bytes": bytes,
            "load_seconds": elapsed.as_secs_f64(),
            "load_gb_per_s": gb_per_s(bytes, elapsed),
            "verify_seconds": self.verified.elapsed.as_secs_f64(),
            "checksums_equal": self.verified.sums.len(),
            "downloaded_bit_exact": self.downloaded(),
            "streams": self.streams,
            "block_bytes": self.block,
            "pool": {
                "max_bytes": pool.max_bytes,
                "committed_bytes": pool.committed_bytes,
                "peak_bytes": pool.peak_bytes,
                "live_bytes": pool.live_bytes,
                "cached_bytes": pool.cached_bytes,
                "in_flight_bytes": pool.in_flight_bytes,
                "quarantined_bytes": pool.quarantined_bytes,
                "hits": pool.hits,
                "growths": pool.growths.count,
                "waits": pool.waits.count,
                "trims": pool.trims,
            },
        })
    }
}

/// Writes `text`; that a reader like `head` has seen enough is no error.
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

/// Starts the bar again, for a new phase of the work.
pub fn begin(bar: &ProgressBar, phase: &'static str, bytes: usize) {
    bar.set_length(bytes as u64);
    bar.set_message(phase);
    bar.reset();
}
