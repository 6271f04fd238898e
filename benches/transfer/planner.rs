//! Whether the planner is right. Its choice stands beside every way that is possible, over a grid
//! of counts and sizes.

use pinlane::{Result, batch::Route};

use super::blocks::{Blocks, Kind, Place};
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::timing::median;
use super::{Bench, KIB, MIB};

const GRID: &str = "batch.planner";

const SIZES: [usize; 6] = [64, 256, 4000, 16 * KIB, 128 * KIB, MIB];
const COUNTS: [usize; 6] = [1, 10, 100, 1000, 4000, 10_000];
/// The largest batch, in bytes.
const MOST: usize = 128 * MIB;

const KINDS: [(&str, Kind); 4] = [
    ("h2d", Kind::Pageable(Way::H2D)),
    ("d2h", Kind::Pageable(Way::D2H)),
    ("pinned_h2d", Kind::Pinned(Way::H2D)),
    ("pinned_d2h", Kind::Pinned(Way::D2H)),
];

const METHOD: &str = "a batch made by the way that the planner chooses, from the call until the \
    data is there, host's clock; median, in turns with the same batch by every other way that is \
    possible; the reference is the fastest of all ways";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants(GRID) {
        return Ok(());
    }
    let (most, samples) = if bench.quick { (MIB, 1) } else { (MOST, 31) };
    for bytes in SIZES {
        let counts = COUNTS.into_iter().filter(|count| count * bytes <= most);
        let mut blocks = Blocks::new(bench, counts.clone().max().unwrap_or(1), bytes, Place::Gaps)?;
        for count in counts {
            for (kind_name, kind) in KINDS {
                let name = format!("{GRID}.{kind_name}.{count}x{bytes}");
                if !report.wants(&name) {
                    continue;
                }
                let (ours, path, best) = cell(&mut blocks, kind, count, samples)?;
                report.add(
                    Figure::lower(name, ours * 1e6, "us")
                        .beside(reference(path), best * 1e6)
                        .by(METHOD, samples),
                );
            }
        }
    }
    if let Some(ratio) = report.largest_ratio(GRID) {
        report.add(
            Figure::lower(format!("{GRID}.worst"), ratio, "ratio")
                .beside("the fastest way", 1.0)
                .by("the largest ratio of the grid", samples),
        );
    }
    Ok(())
}

/// The seconds of the way that the planner chooses, then the fastest way and its seconds. The
/// planner's way is forced by name too. So it is measured once, and not compared with itself.
fn cell(blocks: &mut Blocks, kind: Kind, count: usize, samples: usize) -> Result<(f64, Route, f64)> {
    let plan = blocks.plan(kind, count)?;
    let choice = plan.ordinary.or(plan.direct).expect("the blocks are not empty");
    let ways: Vec<_> = choice.costs.iter().map(|&(path, _)| path).collect();
    let burst = (samples / 4).clamp(1, 8);
    let mut times = vec![Vec::new(); ways.len()];
    // In turns. A turn is a few in a row, and the first is thrown away.
    while times[0].len() < samples {
        for (&path, times) in ways.iter().zip(&mut times) {
            blocks.batch(kind, count, Some(path))?;
            for _ in 0..burst {
                times.push(blocks.batch(kind, count, Some(path))?);
            }
        }
    }
    let times: Vec<_> = ways.into_iter().zip(times.into_iter().map(median)).collect();
    let &(_, ours) = times.iter().find(|way| way.0 == choice.path).expect("it is one of them");
    let &(path, best) = times.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("one way at least");
    Ok((ours, path, best))
}

fn reference(path: Route) -> &'static str {
    match path {
        Route::Copies => "the fastest way, by copies",
        Route::BatchCall => "the fastest way, by the batch call",
        Route::Packed => "the fastest way, packed",
        Route::Kernel => "the fastest way, by the pull kernel",
        _ => "the fastest way, by another",
    }
}
