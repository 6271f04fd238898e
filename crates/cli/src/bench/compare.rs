//! An earlier run, from what `bench --json` printed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::figures::Chart;

/// Smaller changes count as noise.
const NOISE: f64 = 0.1;

pub struct Earlier {
    path: PathBuf,
    run: Value,
}

impl Earlier {
    pub fn read(path: &Path) -> Result<Earlier> {
        let fail = |found: String| {
            Error(format!(
                "{}: {found}; give a file that `pinlane bench --json` printed",
                path.display()
            ))
        };
        let text = std::fs::read(path).map_err(|error| fail(format!("cannot read: {error}")))?;
        let run: Value =
            serde_json::from_slice(&text).map_err(|error| fail(format!("not JSON: {error}")))?;
        if run["command"] != "bench" || !run["charts"].is_array() {
            return Err(fail("not a run of `pinlane bench`".into()));
        }
        Ok(Earlier { path: path.into(), run })
    }

    pub fn name(&self) -> String {
        format!("{} ({})", self.path.display(), self.device())
    }

    fn device(&self) -> &str {
        self.run["machine"]["device"].as_str().unwrap_or("a device without a name")
    }

    /// The value of a point then.
    pub fn value(&self, chart: &str, series: &str, x: f64) -> Option<f64> {
        let chart = self.run["charts"].as_array()?.iter().find(|c| c["id"] == chart)?;
        let series = chart["series"].as_array()?.iter().find(|s| s["name"] == series)?;
        let point = series["points"].as_array()?.iter().find(|point| point[0] == x)?;
        point[1].as_f64().filter(|&value| value > 0.0)
    }

    /// How many points both runs have, and how many of them are better and worse by more than the
    /// noise.
    fn counts(&self, charts: &[Chart]) -> (usize, usize, usize) {
        let (mut all, mut better, mut worse) = (0, 0, 0);
        for chart in charts {
            for series in &chart.series {
                for &(x, value) in &series.points {
                    let Some(before) = self.value(chart.id, series.name, x) else { continue };
                    let gain =
                        if chart.y.higher_is_better { value / before } else { before / value };
                    all += 1;
                    better += usize::from(gain > 1.0 + NOISE);
                    worse += usize::from(gain < 1.0 / (1.0 + NOISE));
                }
            }
        }
        (all, better, worse)
    }

    /// The counts of the comparison, for people.
    pub fn summary(&self, charts: &[Chart]) -> String {
        let (all, better, worse) = self.counts(charts);
        let percent = 100.0 * NOISE;
        format!(
            "{all} points in both runs: {better} better and {worse} worse by more than {percent}%\n"
        )
    }

    /// The same for programs.
    pub fn json(&self, charts: &[Chart]) -> Value {
        let (points, better, worse) = self.counts(charts);
        json!({
            "file": self.path.to_string_lossy(),
            "device": self.device(),
            "points": points,
            "better": better,
            "worse": worse,
            "noise": NOISE,
        })
    }
}
