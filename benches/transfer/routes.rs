//! Whether the rules of the routes are right: a batch without a route of its own beside the same
//! batch by every route that is possible, over a grid of counts and sizes.

use pinlane::{Result, batch::Route};

use super::blocks::{Blocks, Kind, Place};
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::timing::median;
use super::{Bench, KIB, MIB};

const GRID: &str = "batch.route";

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

const METHOD: &str = "a batch by the route of the rules, from the call until the data is there, \
    host's clock; median, in turns with the same batch by every route that is possible; the \
    reference is the fastest of these";

const FORCED: &str = "the same batch by this route, in the same turns";

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
                let (ours, routes) = cell(&mut blocks, kind, count, samples)?;
                let (route, best) = fastest(&routes);
                report.add(
                    Figure::lower(&*name, ours * 1e6, "us")
                        .beside(reference(route), best * 1e6)
                        .by(METHOD, samples),
                );
                for (route, time) in routes {
                    let name = format!("{name}.{}", route.to_string().replace(' ', "_"));
                    report.add(Figure::lower(name, time * 1e6, "us").by(FORCED, samples));
                }
            }
        }
    }
    if let Some(ratio) = report.largest_ratio(GRID) {
        report.add(
            Figure::lower(format!("{GRID}.worst"), ratio, "ratio")
                .beside("the fastest route", 1.0)
                .by("the largest ratio of the grid", samples),
        );
    }
    Ok(())
}

/// The seconds of the batch by the rules, and by each route that is possible.
fn cell(
    blocks: &mut Blocks,
    kind: Kind,
    count: usize,
    samples: usize,
) -> Result<(f64, Vec<(Route, f64)>)> {
    let mut lanes = vec![(None, Vec::new())];
    for route in [Route::Copies, Route::BatchCall, Route::Kernel] {
        if blocks.batch(kind, count, Some(route))?.is_some() {
            lanes.push((Some(route), Vec::new()));
        }
    }
    let burst = (samples / 4).clamp(1, 8);
    // In turns, a few in a row, of which the first is thrown away.
    while lanes[0].1.len() < samples {
        for (route, times) in &mut lanes {
            blocks.batch(kind, count, *route)?;
            for _ in 0..burst {
                times.extend(blocks.batch(kind, count, *route)?);
            }
        }
    }
    let mut lanes = lanes.into_iter().map(|(route, times)| (route, median(times)));
    let (_, ours) = lanes.next().expect("the first");
    Ok((ours, lanes.filter_map(|(route, time)| Some((route?, time))).collect()))
}

fn fastest(routes: &[(Route, f64)]) -> (Route, f64) {
    *routes.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("copies are always possible")
}

fn reference(route: Route) -> &'static str {
    match route {
        Route::Copies => "the fastest route, by copies",
        Route::BatchCall => "the fastest route, by the batch call",
        Route::Kernel => "the fastest route, by the kernel",
        _ => "the fastest route, by another",
    }
}
