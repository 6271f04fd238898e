//! The results of a benchmark: charts of series of points. The table, CSV, JSON and plots show
//! them.

use serde_json::{Value, json};

use crate::output::in_units;

/// The unit of a horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Threads,
    /// A time over another one.
    Ratio,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "B",
            Unit::Threads => "threads",
            Unit::Ratio => "ratio",
        }
    }

    /// A value on the axis, for people.
    pub fn text(self, x: f64) -> String {
        match self {
            Unit::Bytes => in_units(x as u64),
            Unit::Threads | Unit::Ratio => format!("{x}"),
        }
    }
}

/// The horizontal axis. It is logarithmic.
#[derive(Clone, Debug)]
pub struct XAxis {
    pub label: &'static str,
    pub unit: Unit,
}

#[derive(Clone, Debug)]
pub struct YAxis {
    pub label: &'static str,
    pub unit: &'static str,
    pub higher_is_better: bool,
    /// Whether the values span powers of ten.
    pub logarithmic: bool,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The value at `x`, if it was measured there.
    pub fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|point| point.0 == x).map(|point| point.1)
    }
}

/// The upper limit in this run.
#[derive(Clone, Debug)]
pub struct Ceiling {
    pub name: &'static str,
    pub value: f64,
}

#[derive(Clone, Debug)]
pub struct Chart {
    /// The name on the command line and in files.
    pub id: &'static str,
    pub title: String,
    pub x: XAxis,
    pub y: YAxis,
    pub ceiling: Option<Ceiling>,
    pub series: Vec<Series>,
}

impl Chart {
    /// All values of x, in order.
    pub fn places(&self) -> Vec<f64> {
        let mut places: Vec<f64> =
            self.series.iter().flat_map(|series| series.points.iter().map(|p| p.0)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    pub fn json(&self) -> Value {
        let series = |series: &Series| json!({ "name": series.name, "points": series.points });
        json!({
            "id": self.id,
            "title": self.title,
            "x": { "label": self.x.label, "unit": self.x.unit.name() },
            "y": {
                "label": self.y.label,
                "unit": self.y.unit,
                "better": if self.y.higher_is_better { "higher" } else { "lower" },
            },
            "ceiling": self.ceiling.as_ref().map(|ceiling| {
                json!({ "name": ceiling.name, "value": ceiling.value })
            }),
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
        })
    }
}

/// A value with about three significant digits.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Seconds, in a unit that suits them.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{} s", number(s)),
        s if s >= 1e-3 => format!("{} ms", number(s * 1e3)),
        s => format!("{} us", number(s * 1e6)),
    }
}
