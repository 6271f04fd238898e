//! A snapshot of a pool for other programs: as JSON, and for Prometheus.
//!
//! The tables [`POOL`] and [`CLASS`] list what is exported; both formats print them. Numbers are
//! exact: bytes and counts are integers, and times whole nanoseconds.

use std::fmt::Write;
use std::time::Duration;

use super::books::stats::{ClassStats, Stats};

/// One number of a snapshot: its JSON key (which ends in `_ns` for a time), whether it goes up and
/// down or only grows, what it is, and its value.
type Metric<S> = (&'static str, &'static str, &'static str, fn(&S) -> u64);

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[rustfmt::skip]
const POOL: [Metric<Stats>; 24] = [
    ("max_bytes", GAUGE, "The budget.", |s| s.max_bytes as u64),
    ("committed_bytes", GAUGE, "Page-locked now.", |s| s.committed_bytes as u64),
    ("peak_bytes", GAUGE, "The most that was page-locked.", |s| s.peak_bytes as u64),
    ("live_bytes", GAUGE, "In buffers that exist.", |s| s.live_bytes as u64),
    ("cached_bytes", GAUGE, "Free, and ready to be used again.", |s| s.cached_bytes as u64),
    ("thread_bytes", GAUGE, "Free, and kept by threads.", |s| s.thread_bytes as u64),
    ("in_flight_bytes", GAUGE, "Dropped, perhaps still in use.", |s| s.in_flight_bytes as u64),
    ("quarantined_bytes", GAUGE, "Lost: perhaps in use for ever.", |s| s.quarantined_bytes as u64),
    ("hits", COUNTER, "Allocations from free blocks.", |s| s.hits),
    ("thread_hits", COUNTER, "Allocations from the thread's own.", |s| s.thread_hits),
    ("misses", COUNTER, "Allocations without a free block.", |s| s.misses),
    ("growths", COUNTER, "Times that memory was page-locked.", |s| s.growths.count),
    ("growth_ns", COUNTER, "Time spent page-locking.", |s| nanos(s.growths.total)),
    ("longest_growth_ns", GAUGE, "The longest growth.", |s| nanos(s.growths.longest)),
    ("waits", COUNTER, "Allocations that waited for room.", |s| s.waits.count),
    ("wait_ns", COUNTER, "Time spent waiting for room.", |s| nanos(s.waits.total)),
    ("longest_wait_ns", GAUGE, "The longest wait.", |s| nanos(s.waits.longest)),
    ("trims", COUNTER, "Times that memory was given back.", |s| s.trims),
    ("not_registered", COUNTER, "Growths by cudaHostAlloc.", |s| s.fallbacks.not_registered),
    ("in_parts", COUNTER, "Growths by several registrations.", |s| s.fallbacks.in_parts),
    ("small_pages", COUNTER, "Growths without huge pages.", |s| s.fallbacks.small_pages),
    ("other_node", COUNTER, "Growths off the device's NUMA node.", |s| s.fallbacks.other_node),
    ("threads", GAUGE, "Threads that keep blocks.", |s| s.threads as u64),
    ("waiting", GAUGE, "Requests in the queue.", |s| s.waiting as u64),
];

/// Each with the size of the block beside it.
#[rustfmt::skip]
const CLASS: [Metric<ClassStats>; 6] = [
    ("blocks", GAUGE, "Blocks of one size.", |s| s.blocks as u64),
    ("live", GAUGE, "Blocks in buffers that exist.", |s| s.live as u64),
    ("cached", GAUGE, "Free blocks.", |s| s.cached as u64),
    ("in_flight", GAUGE, "Blocks dropped, perhaps still in use.", |s| s.in_flight as u64),
    ("quarantined", GAUGE, "Lost blocks.", |s| s.quarantined as u64),
    ("growths", COUNTER, "Times that memory was page-locked for one size.", |s| s.growths),
];

impl Stats {
    /// The snapshot as one JSON object. All values but `classes` are integers.
    ///
    /// The keys are the names of the fields, including those of
    /// [`GrowthFallbacks`](crate::pool::GrowthFallbacks). Times are in nanoseconds: `growths` is
    /// the number of growths, `growth_ns` their time in all, and `longest_growth_ns` the longest;
    /// likewise `waits`, `wait_ns` and `longest_wait_ns`. `classes` is an array of objects with the
    /// fields of [`ClassStats`].
    #[must_use]
    pub fn to_json(&self) -> String {
        let class = |class: &ClassStats| {
            format!("{{\"block_bytes\":{},{}}}", class.block_bytes, members(&CLASS, class))
        };
        let classes: Vec<String> = self.classes.iter().map(class).collect();
        format!("{{{},\"classes\":[{}]}}", members(&POOL, self), classes.join(","))
    }

    /// The snapshot in Prometheus' text format, version 0.0.4, for an endpoint that is scraped. The
    /// label `pool` distinguishes the pools of a process. A response may describe a metric only
    /// once: [`all_to_prometheus`](Self::all_to_prometheus) has several pools in one.
    ///
    /// A metric is called `pinlane_pool_` and its key of [`to_json`](Self::to_json); times are in
    /// `_seconds`, and counters end in `_total`: `pinlane_pool_live_bytes`,
    /// `pinlane_pool_wait_seconds_total`. Metrics of one size of block begin with
    /// `pinlane_pool_class_` and have a second label, `block_bytes`.
    #[must_use]
    pub fn to_prometheus(&self, pool: &str) -> String {
        Self::all_to_prometheus(&[(pool, self)])
    }

    /// The snapshots of several pools as one response, in the format of
    /// [`to_prometheus`](Self::to_prometheus). Each has its own name, the value of its label
    /// `pool`.
    #[must_use]
    pub fn all_to_prometheus(pools: &[(&str, &Stats)]) -> String {
        let label = |name: &str| format!("pool=\"{}\"", escape(name));
        let pools: Vec<_> = pools.iter().map(|&(name, stats)| (label(name), stats)).collect();
        let mut text = String::new();
        for metric in &POOL {
            family(&mut text, "pinlane_pool_", metric, pools.iter().cloned());
        }
        let classes = pools.iter().flat_map(|(pool, stats)| {
            let label = move |of: &ClassStats| format!("{pool},block_bytes=\"{}\"", of.block_bytes);
            stats.classes.iter().map(move |class| (label(class), class))
        });
        for metric in &CLASS {
            family(&mut text, "pinlane_pool_class_", metric, classes.clone());
        }
        text
    }
}

/// The members of a JSON object.
fn members<S>(metrics: &[Metric<S>], stats: &S) -> String {
    let member = |(key, _, _, value): &Metric<S>| format!("\"{key}\":{}", value(stats));
    metrics.iter().map(member).collect::<Vec<_>>().join(",")
}

/// One metric for Prometheus: one description, and a line for each set of labels. Writes nothing if
/// there are no labels.
fn family<'a, S: 'a>(
    text: &mut String,
    prefix: &str,
    &(key, kind, help, value): &Metric<S>,
    samples: impl Iterator<Item = (String, &'a S)>,
) {
    let mark = if kind == COUNTER { "_total" } else { "" };
    let name = match key.strip_suffix("_ns") {
        Some(time) => format!("{prefix}{time}_seconds{mark}"),
        None => format!("{prefix}{key}{mark}"),
    };
    for (index, (labels, stats)) in samples.enumerate() {
        if index == 0 {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        let number = value(stats);
        let _ = match key.ends_with("_ns") {
            true => {
                let (seconds, nanos) = (number / 1_000_000_000, number % 1_000_000_000);
                writeln!(text, "{name}{{{labels}}} {seconds}.{nanos:09}")
            }
            false => writeln!(text, "{name}{{{labels}}} {number}"),
        };
    }
}

/// Escapes a label's value for Prometheus' text format.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
