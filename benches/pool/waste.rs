//! The waste of rounding on a mix of real sizes.

use std::collections::BTreeMap;

use pinlane::PinnedPool;

use super::common::figures::{Figure, Report};

/// `source,name,bytes`; `benches/data/README.md` says where they come from.
const SIZES: &str = include_str!("../data/sizes.csv");

/// Bytes of requests, of the pool's blocks for them, and of powers of two for them.
#[derive(Default)]
struct Sums {
    rows: usize,
    asked: f64,
    blocks: f64,
    powers: f64,
}

pub fn run(report: &mut Report) {
    let mut sources = BTreeMap::<&str, Sums>::new();
    for row in SIZES.lines().skip(1) {
        let mut fields = row.split(',');
        let (Some(source), Some(bytes)) = (fields.next(), fields.next_back()) else {
            panic!("sizes.csv: {row:?}");
        };
        let bytes: usize = bytes.parse().expect("sizes.csv: a size in bytes");
        let block = PinnedPool::block_bytes(bytes).expect("a block of that size");
        for source in [source, "all"] {
            let sums = sources.entry(source).or_default();
            sums.rows += 1;
            sums.asked += bytes as f64;
            sums.blocks += block as f64;
            sums.powers += bytes.next_power_of_two() as f64;
        }
    }
    for (source, sums) in sources {
        let percent = |reserved: f64| (reserved / sums.asked - 1.0) * 100.0;
        report.add(Figure {
            name: format!("pool.waste.{source}"),
            value: percent(sums.blocks),
            unit: "%",
            better: "lower",
            reference: Some(("rounded up to powers of two", percent(sums.powers))),
            samples: sums.rows,
            spread: None,
            method: "bytes of blocks above the bytes asked for, over the rows of \
            benches/data/sizes.csv",
        });
    }
}
