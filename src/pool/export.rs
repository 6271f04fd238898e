//! A snapshot of a pool for other programs: as JSON, and for Prometheus.
//!
//! Two tables say what is exported, [`POOL`] and [`CLASS`]; the formats are two ways to print them.
//! Numbers are exact: bytes and counts are integers, times whole nanoseconds.

use std::fmt::Write;
use std::time::Duration;

use super::stats::{ClassStats, PoolStats};

/// One number of a snapshot.
struct Metric<S> {
    /// Without the unit of a time and the mark of a counter, which the formats add.
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&S) -> Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows.
    Counter,
}

enum Value {
    Number(u64),
    Time(Duration),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Value::Number(number as u64)
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Self {
        Value::Time(time)
    }
}

const fn gauge<S>(name: &'static str, help: &'static str, value: fn(&S) -> Value) -> Metric<S> {
    Metric { name, kind: Kind::Gauge, help, value }
}

const fn counter<S>(name: &'static str, help: &'static str, value: fn(&S) -> Value) -> Metric<S> {
    Metric { name, kind: Kind::Counter, help, value }
}

#[rustfmt::skip]
const POOL: [Metric<PoolStats>; 24] = [
    gauge("max_bytes", "The budget.", |s| s.max_bytes.into()),
    gauge("committed_bytes", "Page-locked now.", |s| s.committed_bytes.into()),
    gauge("peak_bytes", "The most that was page-locked.", |s| s.peak_bytes.into()),
    gauge("live_bytes", "In buffers that exist.", |s| s.live_bytes.into()),
    gauge("cached_bytes", "Free, and ready to be used again.", |s| s.cached_bytes.into()),
    gauge("thread_bytes", "Free, and kept by threads.", |s| s.thread_bytes.into()),
    gauge("in_flight_bytes", "Dropped, perhaps still in use.", |s| s.in_flight_bytes.into()),
    gauge("quarantined_bytes", "Lost: perhaps in use for ever.", |s| s.quarantined_bytes.into()),
    counter("hits", "Allocations from free blocks.", |s| s.hits.into()),
    counter("thread_hits", "Allocations from the thread's own.", |s| s.thread_hits.into()),
    counter("misses", "Allocations without a free block.", |s| s.misses.into()),
    counter("growths", "Times that memory was page-locked.", |s| s.growths.count.into()),
    counter("growth", "Time spent page-locking.", |s| s.growths.total.into()),
    gauge("longest_growth", "The longest growth.", |s| s.growths.longest.into()),
    counter("waits", "Allocations that waited for room.", |s| s.waits.count.into()),
    counter("wait", "Time spent waiting for room.", |s| s.waits.total.into()),
    gauge("longest_wait", "The longest wait.", |s| s.waits.longest.into()),
    counter("trims", "Times that memory was given back.", |s| s.trims.into()),
    counter("not_registered", "Growths by cudaHostAlloc instead.", |s| s.fallbacks.not_registered.into()),
    counter("in_parts", "Growths by several registrations.", |s| s.fallbacks.in_parts.into()),
    counter("small_pages", "Growths without huge pages.", |s| s.fallbacks.small_pages.into()),
    counter("other_node", "Growths off the device's NUMA node.", |s| s.fallbacks.other_node.into()),
    gauge("threads", "Threads that keep blocks.", |s| s.threads.into()),
    gauge("waiting", "Requests in the queue.", |s| s.waiting.into()),
];

/// Each with the size of the block beside it.
#[rustfmt::skip]
const CLASS: [Metric<ClassStats>; 6] = [
    gauge("blocks", "Blocks of one size.", |s| s.blocks.into()),
    gauge("live", "Blocks in buffers that exist.", |s| s.live.into()),
    gauge("cached", "Free blocks.", |s| s.cached.into()),
    gauge("in_flight", "Blocks dropped, perhaps still in use.", |s| s.in_flight.into()),
    gauge("quarantined", "Lost blocks.", |s| s.quarantined.into()),
    counter("growths", "Times that memory was page-locked for one size.", |s| s.growths.into()),
];

impl PoolStats {
    /// The snapshot as one JSON object. All values are integers, but for `classes`.
    ///
    /// The keys are the names of the fields, those of [`GrowthFallbacks`](crate::GrowthFallbacks)
    /// included. Times are in nanoseconds: `growths`, `growth_ns` and `longest_growth_ns` are how
    /// many there were, all together, and the longest; `waits`, `wait_ns` and `longest_wait_ns`
    /// likewise. `classes` is an array of objects with the fields of [`ClassStats`].
    #[must_use]
    pub fn to_json(&self) -> String {
        let classes: Vec<String> = self
            .classes
            .iter()
            .map(|class| {
                format!("{{\"block_bytes\":{},{}}}", class.block_bytes, members(&CLASS, class))
            })
            .collect();
        format!("{{{},\"classes\":[{}]}}", members(&POOL, self), classes.join(","))
    }

    /// The snapshot in Prometheus' text format, version 0.0.4, for an endpoint that is scraped.
    /// `pool` tells the pools of a process apart, in a label. An answer may describe a metric once
    /// only, so give each pool an endpoint of its own.
    ///
    /// The metrics are `pinlane_pool_` and the keys of [`to_json`](Self::to_json), with times in
    /// `_seconds` and `_total` behind what only grows: `pinlane_pool_live_bytes`,
    /// `pinlane_pool_wait_seconds_total`. Those of a size of block are `pinlane_pool_class_` with a
    /// second label, `block_bytes`.
    #[must_use]
    pub fn to_prometheus(&self, pool: &str) -> String {
        let pool = format!("pool=\"{}\"", escape(pool));
        let mut text = String::new();
        for metric in &POOL {
            family(&mut text, "pinlane_pool_", metric, [(pool.clone(), self)].into_iter());
        }
        for metric in &CLASS {
            let classes = self
                .classes
                .iter()
                .map(|class| (format!("{pool},block_bytes=\"{}\"", class.block_bytes), class));
            family(&mut text, "pinlane_pool_class_", metric, classes);
        }
        text
    }
}

/// The members of a JSON object.
fn members<S>(metrics: &[Metric<S>], stats: &S) -> String {
    let member = |metric: &Metric<S>| match (metric.value)(stats) {
        Value::Number(number) => format!("\"{}\":{number}", metric.name),
        Value::Time(time) => format!("\"{}_ns\":{}", metric.name, time.as_nanos()),
    };
    metrics.iter().map(member).collect::<Vec<_>>().join(",")
}

/// One metric for Prometheus: what it is, once, and a line for each set of labels. Nothing if there
/// are none.
fn family<'a, S: 'a>(
    text: &mut String,
    prefix: &str,
    metric: &Metric<S>,
    samples: impl Iterator<Item = (String, &'a S)>,
) {
    let (kind, mark) = match metric.kind {
        Kind::Gauge => ("gauge", ""),
        Kind::Counter => ("counter", "_total"),
    };
    for (index, (labels, stats)) in samples.enumerate() {
        let (unit, number) = match (metric.value)(stats) {
            Value::Number(number) => ("", number.to_string()),
            Value::Time(time) => {
                ("_seconds", format!("{}.{:09}", time.as_secs(), time.subsec_nanos()))
            }
        };
        let (name, help) = (metric.name, metric.help);
        let name = format!("{prefix}{name}{unit}{mark}");
        if index == 0 {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        let _ = writeln!(text, "{name}{{{labels}}} {number}");
    }
}

/// A label's value, as Prometheus' text format wants it.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
