//! A pool's snapshot as text: for people, as JSON, and in Prometheus' format.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pinlane::emulated::Execution;
use pinlane::pool::Stats;

use crate::support::{BLOCK, Rig};

/// The snapshot of a pool with live, cached and in-flight memory, two classes, hits, misses, a wait
/// and a trim.
fn busy_pool() -> Stats {
    let rig = Rig::new(Execution::Lazy, 0, 2);
    let (host, mut gpu) = (rig.host(1), rig.gpu());
    rig.stream.upload(&host, &mut gpu).unwrap();
    drop(host);
    drop(rig.pool.alloc::<u8>(2 * BLOCK).expect("waits for the copy, and gives the block back"));
    drop(rig.pool.alloc::<u8>(2 * BLOCK).unwrap());
    let stats = rig.pool.stats();
    assert_eq!(stats.waits.count, 1, "{stats}");
    assert!(stats.trims > 0 && stats.hits > 0 && stats.waits.total > Duration::ZERO, "{stats}");
    rig.pool.trim().unwrap();
    let live = rig.host(1);
    rig.stream.upload(&live, &mut gpu).unwrap();
    drop(live);
    let live = rig.host(2);
    let stats = rig.pool.stats();
    drop(live);
    assert!(stats.live_bytes > 0 && stats.in_flight_bytes > 0, "{stats}");
    stats
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap()
}

/// All exported numbers, by JSON key.
fn expected(stats: &Stats) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([
        ("max_bytes", stats.max_bytes as u64),
        ("committed_bytes", stats.committed_bytes as u64),
        ("peak_bytes", stats.peak_bytes as u64),
        ("live_bytes", stats.live_bytes as u64),
        ("cached_bytes", stats.cached_bytes as u64),
        ("thread_bytes", stats.thread_bytes as u64),
        ("in_flight_bytes", stats.in_flight_bytes as u64),
        ("quarantined_bytes", stats.quarantined_bytes as u64),
        ("hits", stats.hits),
        ("thread_hits", stats.thread_hits),
        ("misses", stats.misses),
        ("growths", stats.growths.count),
        ("growth_ns", nanos(stats.growths.total)),
        ("longest_growth_ns", nanos(stats.growths.longest)),
        ("waits", stats.waits.count),
        ("wait_ns", nanos(stats.waits.total)),
        ("longest_wait_ns", nanos(stats.waits.longest)),
        ("trims", stats.trims),
        ("not_registered", stats.fallbacks.not_registered),
        ("in_parts", stats.fallbacks.in_parts),
        ("small_pages", stats.fallbacks.small_pages),
        ("other_node", stats.fallbacks.other_node),
        ("threads", stats.threads as u64),
        ("waiting", stats.waiting as u64),
    ])
}

fn expected_of_classes(stats: &Stats) -> Vec<BTreeMap<&'static str, u64>> {
    let of_class = |class: &pinlane::pool::ClassStats| {
        BTreeMap::from([
            ("block_bytes", class.block_bytes as u64),
            ("blocks", class.blocks as u64),
            ("live", class.live as u64),
            ("cached", class.cached as u64),
            ("in_flight", class.in_flight as u64),
            ("quarantined", class.quarantined as u64),
            ("growths", class.growths),
        ])
    };
    stats.classes.iter().map(of_class).collect()
}

fn numbers(object: &serde_json::Value) -> BTreeMap<&str, u64> {
    let members = object.as_object().unwrap().iter();
    members.filter_map(|(key, value)| Some((key.as_str(), value.as_u64()?))).collect()
}

#[test]
fn json_holds_every_number_of_the_snapshot() {
    for stats in [busy_pool(), Stats::default()] {
        let json: serde_json::Value = serde_json::from_str(&stats.to_json()).unwrap();
        assert_eq!(numbers(&json), expected(&stats));
        let classes = json["classes"].as_array().unwrap();
        assert_eq!(classes.iter().map(numbers).collect::<Vec<_>>(), expected_of_classes(&stats));
        assert_eq!(json.as_object().unwrap().len(), expected(&stats).len() + 1);
    }
}

/// A metric in Prometheus: its type, and its samples by labels.
#[derive(Debug, Default, PartialEq)]
struct Family {
    kind: String,
    samples: BTreeMap<Labels, String>,
}

type Labels = BTreeMap<String, String>;

/// Parses the text format 0.0.4 and rejects what it does not allow: a family is described once,
/// before its samples, and its samples are together.
fn parse(text: &str) -> BTreeMap<String, Family> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line ends");
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            let described = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).unwrap();
            let (typed, kind) = described.split_once(' ').unwrap();
            assert_eq!(typed, name);
            assert!(["gauge", "counter"].contains(&kind), "{described}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            let family = Family { kind: kind.into(), ..Family::default() };
            assert!(families.insert(name.into(), family).is_none(), "{name} twice");
            current = name.into();
        } else {
            let (name, rest) = line.split_once('{').unwrap();
            assert_eq!(name, current, "outside its family");
            let (labels, value) = labels(rest);
            value.parse::<f64>().unwrap();
            let old = families.get_mut(name).unwrap().samples.insert(labels, value.into());
            assert!(old.is_none(), "{line} twice");
        }
    }
    families
}

/// Parses the part of a sample after the brace: its labels, and the value.
fn labels(mut rest: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    loop {
        let (label, quoted) = rest.split_once("=\"").unwrap();
        let (mut value, mut chars) = (String::new(), quoted.chars());
        loop {
            match chars.next().unwrap() {
                '"' => break,
                '\\' => value.push(match chars.next().unwrap() {
                    'n' => '\n',
                    escaped @ ('"' | '\\') => escaped,
                    other => panic!("\\{other} is no escape"),
                }),
                plain => value.push(plain),
            }
        }
        assert!(labels.insert(label.into(), value).is_none(), "{label} twice");
        match chars.as_str().split_at(1) {
            (",", more) => rest = more,
            ("}", value) => return (labels, value.strip_prefix(' ').unwrap()),
            other => panic!("{other:?} after a label"),
        }
    }
}

/// The expected line in Prometheus' format for a JSON key. Numbers of the snapshot that only grow
/// are counters.
fn in_prometheus(prefix: &str, key: &str, number: u64) -> (String, String) {
    const COUNTERS: [&str; 12] = [
        "hits",
        "thread_hits",
        "misses",
        "growths",
        "growth_ns",
        "waits",
        "wait_ns",
        "trims",
        "not_registered",
        "in_parts",
        "small_pages",
        "other_node",
    ];
    let mark = if COUNTERS.contains(&key) { "_total" } else { "" };
    match key.strip_suffix("_ns") {
        Some(time) => {
            let seconds = format!("{}.{:09}", number / 1_000_000_000, number % 1_000_000_000);
            (format!("{prefix}{time}_seconds{mark}"), seconds)
        }
        None => (format!("{prefix}{key}{mark}"), number.to_string()),
    }
}

#[test]
fn prometheus_gets_every_number_of_the_snapshot_once() {
    for (stats, pool) in [(busy_pool(), "loader"), (Stats::default(), "a \"b\" \\ \n c")] {
        let families = parse(&stats.to_prometheus(pool));
        let mut names = BTreeSet::new();
        let mut check = |prefix, key, number, labels: &Labels| {
            let (name, value) = in_prometheus(prefix, key, number);
            let family = families.get(&name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(family.samples.get(labels), Some(&value), "{name}");
            names.insert(name);
        };
        let mut labels = Labels::from([("pool".into(), pool.into())]);
        for (key, number) in expected(&stats) {
            check("pinlane_pool_", key, number, &labels);
        }
        for mut class in expected_of_classes(&stats) {
            let block_bytes = class.remove("block_bytes").unwrap();
            labels.insert("block_bytes".into(), block_bytes.to_string());
            for (key, number) in class {
                check("pinlane_pool_class_", key, number, &labels);
            }
        }
        assert_eq!(families.keys().cloned().collect::<BTreeSet<_>>(), names, "and no others");
        let samples: usize = families.values().map(|family| family.samples.len()).sum();
        assert_eq!(samples, expected(&stats).len() + 6 * stats.classes.len());
    }
}

#[test]
fn prometheus_gets_several_pools_in_one_response() {
    let (busy, idle) = (busy_pool(), Stats::default());
    let families = parse(&Stats::all_to_prometheus(&[("busy", &busy), ("idle", &idle)]));
    let alone = parse(&busy.to_prometheus("busy"));
    for (name, family) in parse(&idle.to_prometheus("idle")).iter().chain(&alone) {
        for (labels, value) in &family.samples {
            assert_eq!(families[name].samples.get(labels), Some(value), "{name}");
        }
    }
    let samples: usize = families.values().map(|family| family.samples.len()).sum();
    assert_eq!(samples, 2 * expected(&idle).len() + 6 * busy.classes.len());
}

#[test]
fn prometheus_names_carry_their_units() {
    let families = parse(&busy_pool().to_prometheus("pool"));
    for (name, kind) in [
        ("pinlane_pool_live_bytes", "gauge"),
        ("pinlane_pool_hits_total", "counter"),
        ("pinlane_pool_wait_seconds_total", "counter"),
        ("pinlane_pool_longest_growth_seconds", "gauge"),
        ("pinlane_pool_class_live", "gauge"),
        ("pinlane_pool_class_growths_total", "counter"),
    ] {
        assert_eq!(families[name].kind, kind, "{name}");
    }
}

#[test]
fn a_snapshot_reads_well() {
    let mut stats = Stats::default();
    stats.max_bytes = 64 << 20;
    stats.committed_bytes = (4 << 20) + (64 << 10);
    stats.peak_bytes = 5 << 20;
    stats.live_bytes = 4 << 20;
    stats.cached_bytes = 60 << 10;
    stats.hits = 3;
    stats.waiting = 2;
    assert_eq!(
        stats.to_string(),
        "4.1 MiB of 64 MiB page-locked (peak 5 MiB): 4 MiB live, 60 KiB cached, \
         0 bytes in flight, 0 bytes quarantined; 3 hits, 0 misses, 0 growths, 0 waits, 0 trims; \
         2 requests wait"
    );
}
