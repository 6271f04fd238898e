//! Many small copies at once. References: the speed of the link, and a loop of the runtime's calls.

use pinlane::Result;
use pinlane::driver::{CopyKind, Item, RawStream};

use super::Bench;
use super::blocks::{Blocks, Kind, Place};
use super::ceiling::Ceiling;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::pageable::Pageable;
use super::common::timing::{medians, seconds, seconds_of};

const SHAPES: [(&str, usize, usize); 3] =
    [("1000x4000", 1000, 4000), ("10000x256", 10_000, 256), ("100x256", 100, 256)];

const KINDS: [(&str, Kind); 4] = [
    ("h2d", Kind::Pageable(Way::H2D)),
    ("d2h", Kind::Pageable(Way::D2H)),
    ("pinned", Kind::Pinned(Way::H2D)),
    ("pinned_d2h", Kind::Pinned(Way::D2H)),
];

const OURS: &str = "one batch whose list was made before; each item has a host block of its own, \
    and on the device a view of one buffer with gaps, without gaps (.adjacent), or a buffer of its \
    own (.apart); from the call until the data is there, host's clock; median, in turns with the \
    reference: the same bytes in one copy";
const LISTED: &str =
    "that batch with the making of its list: of views of the one buffer, or of whole buffers";
const ARRAYS: &str = "the same blocks, each host block a part of one range, by upload_parts or \
    download_parts and arrays of offsets made for the call; in turns with the batch";
const AGAIN: &str = "that list once more";
const LOOP: &str = "the items of that batch by a loop of cudaMemcpyAsync and one \
    cudaStreamSynchronize, host's clock; median, in turns with the batch";

const KERNEL: &str = "only the kernel that reads the page-locked blocks, its list made before, no \
    use recorded; until the stream is idle, host's clock; median";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let samples = if bench.quick { 3 } else { 31 };
    let places = [("", Place::Gaps), (".adjacent", Place::Adjacent), (".apart", Place::Apart)];
    let shapes = SHAPES.into_iter().flat_map(|shape| places.map(|place| (shape, place)));
    for ((shape, count, bytes), (suffix, place)) in shapes {
        let names = KINDS.map(|(kind, _)| format!("batch.{kind}.{shape}{suffix}"));
        let loops = KINDS.map(|(kind, _)| format!("batch.driver.{kind}.{shape}{suffix}"));
        // The parts of separate buffers have no arrays.
        let in_one = place != Place::Apart;
        let floor = format!("batch.kernel.{shape}{suffix}");
        if !names.iter().chain(&loops).chain([&floor]).any(|name| report.wants(name)) {
            continue;
        }
        let mut blocks = Blocks::new(bench, count, bytes, place)?;
        if report.wants(&floor) {
            kernel(bench, &blocks, report, &floor)?;
        }
        let pageable = Pageable::new(&bench.bare, &bench.device)?;
        let ceiling = Ceiling::new(bench, count * bytes)?;
        for ((name, by_loop), (_, kind)) in names.into_iter().zip(loops).zip(KINDS) {
            let [ours, listed, arrays, again, theirs, bare] = seconds_of(
                &mut blocks,
                samples,
                [
                    &|blocks| Ok(blocks.batch(kind, count, None)?.expect("the rule's is possible")),
                    &|blocks| blocks.listed(kind),
                    &|blocks| if in_one { blocks.arrays(kind) } else { Ok(0.0) },
                    &|blocks| blocks.again(kind),
                    &|blocks| match kind {
                        Kind::Pageable(way) => pageable_loop(blocks, &pageable, way),
                        Kind::Pinned(way) => pinned_loop(blocks, bench, way),
                    },
                    &|_| ceiling.copy(kind.way(), count * bytes),
                ],
            )?;
            let arrays = in_one.then(|| (format!("{name}.arrays"), arrays, ARRAYS));
            let figures = [
                (format!("{name}.again"), again, AGAIN),
                (format!("{name}.listed"), listed, LISTED),
                (name, ours, OURS),
                (by_loop, theirs, LOOP),
            ];
            for (name, runs, method) in figures.into_iter().chain(arrays) {
                report.add(
                    Figure::micros(name, &runs)
                        .beside(ceiling.name(), bare.median() * 1e6)
                        .by(method, runs.count()),
                );
            }
        }
    }
    Ok(())
}

/// The shortest possible time of a batch from page-locked memory: the kernel alone, with a prepared
/// list, without recording uses.
fn kernel(bench: &Bench, blocks: &Blocks, report: &mut Report, name: &str) -> Result<()> {
    let samples = if bench.quick { 3 } else { 31 };
    let mut items = bench.pool()?.alloc_zeroed::<Item>(blocks.host.len())?;
    for (block, item) in items.write()?.iter_mut().enumerate() {
        let ((gpu, host), bytes) = (blocks.addresses(block), blocks.host[block].len());
        *item = Item { src: host.addr() as u64, dst: gpu, bytes: bytes as u64 };
    }
    let (driver, stream) = (bench.bare.driver(), bench.bare.stream());
    let raw = RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() };
    let list = items.as_ptr().addr() as u64;
    let bytes = blocks.host.iter().map(Vec::len).sum();
    let [time] = medians(
        samples,
        [&mut || {
            seconds(|| {
                // SAFETY: the stream is live. The items are complete. They and the sources are in
                // page-locked memory that the device can address. The destinations are views of
                // live device memory that do not overlap. All are idle: the other measurements are
                // complete, and this is waited for below.
                unsafe { driver.move_items(raw, CopyKind::H2D, list, items.len(), bytes) }
                    .expect("the kernel starts");
                bench.bare.synchronize()
            })
        }],
    )?;
    report.add(Figure::lower(name, time * 1e6, "us").by(KERNEL, samples));
    Ok(())
}

fn pageable_loop(blocks: &mut Blocks, pageable: &Pageable, way: Way) -> Result<f64> {
    seconds(|| {
        for block in 0..blocks.host.len() {
            let (gpu, _) = blocks.addresses(block);
            let host = &mut blocks.host[block];
            // SAFETY: the two blocks are live and of equal length, and all are borrowed
            // exclusively. They are idle: the other measurements are complete, and these copies are
            // waited for below.
            unsafe { pageable.copy(way, host.as_mut_ptr(), gpu, host.len()) };
        }
        pageable.synchronize()
    })
}

fn pinned_loop(blocks: &mut Blocks, bench: &Bench, way: Way) -> Result<f64> {
    seconds(|| {
        for block in 0..blocks.host.len() {
            let (bytes, (gpu, host)) = (blocks.host[block].len(), blocks.addresses(block));
            // SAFETY: as in `pageable_loop`.
            unsafe {
                match way {
                    Way::H2D => bench.bare.upload(gpu, host, bytes),
                    Way::D2H => bench.bare.download(host.cast_mut(), gpu, bytes),
                }
            }
        }
        bench.bare.synchronize()
    })
}
