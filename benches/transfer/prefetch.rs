//! A pipeline of batches of pageable memory whose consumer does nothing else, compared with the
//! link's speed. And the cost of one ready batch for the consumer.

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinlane::driver::{Driver, RawEvent, RawStream};
use pinlane::{
    PinnedPool, Result, Stream,
    prefetch::{Batches, HostBatch, Prefetch, Slices},
};

use super::ceiling::Ceiling;
use super::common::bare::Bare;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::timing::{medians, medians_of, seconds};
use super::{Bench, MIB, rate};

const BATCH: usize = 16 * MIB;
/// How many batches differ, so that no cache holds the data.
const RING: usize = 64;
const DEPTH: usize = 3;
/// The pause between the last batch ahead and the call that is timed.
const PAUSE: Duration = Duration::from_micros(20);

/// The names of a batch's slices.
const NAMES: [&str; 16] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];

const SHAPES: [(&str, usize); 2] =
    [("prefetch.h2d.16mib", 1), ("prefetch.h2d.16mib.many", NAMES.len())];
const NEXT: &str = "prefetch.next";

const METHOD: &str = "256 batches of 16 MiB, one pageable slice each or 16 of 1 MiB (.many), of \
    which 64 differ and come in turns, 3 ahead by 2 workers, from the start of the pipeline until \
    the last is there, host's clock; median, in turns with the reference: as many copies of 16 MiB \
    in a row";
const NEXT_METHOD: &str = "next() when all batches ahead have been enqueued, 1 MiB each, host's \
    clock; median, in turns with the reference, whose event has happened";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if SHAPES.iter().any(|(name, _)| report.wants(name)) {
        throughput(bench, report)?;
    }
    if report.wants(NEXT) {
        next(bench, report)?;
    }
    Ok(())
}

fn throughput(bench: &Bench, report: &mut Report) -> Result<()> {
    let (samples, ring, batches) = if bench.quick { (3, 4, 8) } else { (9, RING, 4 * RING) };
    let mut loader = Loader::new(bench, ring, BATCH)?;
    let ceiling = Ceiling::new(bench, ring * BATCH)?;
    for (name, slices) in SHAPES {
        if !report.wants(name) {
            continue;
        }
        let [ours, bare] = medians_of(
            &mut loader,
            samples,
            [&|loader| loader.drain(slices, batches), &|_| {
                ceiling.copies(Way::H2D, batches, BATCH)
            }],
        )?;
        report.add(
            Figure::higher(name, rate(batches * BATCH, ours), "GB/s")
                .beside(
                    bench.bare.name("as many bare cudaMemcpyAsync, pinned"),
                    rate(batches * BATCH, bare),
                )
                .by(METHOD, samples),
        );
    }
    Ok(())
}

fn next(bench: &Bench, report: &mut Report) -> Result<()> {
    let samples = if bench.quick { 11 } else { 301 };
    let loader = Loader::new(bench, RING, MIB)?;
    let mut batches = loader.start(1, usize::MAX)?;
    let wait = Wait::new(&bench.bare);
    let [ours, bare] =
        medians(samples, [&mut || until_next(&mut batches), &mut || wait.seconds()])?;
    report.add(
        Figure::lower(NEXT, ours * 1e6, "us")
            .beside(bench.bare.name("one cudaStreamWaitEvent"), bare * 1e6)
            .by(NEXT_METHOD, samples),
    );
    Ok(())
}

/// Seconds that the next batch takes when the pipeline is full.
fn until_next(batches: &mut Batches) -> Result<f64> {
    let progress = batches.progress();
    while progress.uploaded() < progress.yielded() + DEPTH as u64 {
        spin_loop();
    }
    // The worker counts a batch before it delivers it.
    let uploaded = Instant::now();
    while uploaded.elapsed() < PAUSE {
        spin_loop();
    }
    let start = Instant::now();
    let batch = batches.next();
    let time = start.elapsed().as_secs_f64();
    batch.expect("the producer does not end")?;
    Ok(time)
}

/// Where batches come from and where they go.
struct Loader {
    pool: PinnedPool,
    stream: Stream,
    ring: Vec<Arc<[u8]>>,
}

impl Loader {
    fn new(bench: &Bench, ring: usize, bytes: usize) -> Result<Self> {
        Ok(Loader {
            pool: bench.pool()?,
            stream: bench.device.stream()?,
            ring: (0..ring).map(|_| vec![1; bytes].into()).collect(),
        })
    }

    /// A pipeline of `count` batches of `slices` slices each.
    fn start(&self, slices: usize, count: usize) -> Result<Batches> {
        let ring = self.ring.clone().into_iter().cycle().take(count);
        let batches = ring.map(move |bytes| Batch { bytes, slices });
        Prefetch::new(batches, &self.pool, &self.stream).depth(DEPTH).workers(2).start()
    }

    /// Seconds from the start of a pipeline until the last of its batches is on the device.
    fn drain(&mut self, slices: usize, count: usize) -> Result<f64> {
        seconds(|| {
            self.start(slices, count)?.try_for_each(|batch| batch.map(drop))?;
            self.stream.synchronize()
        })
    }
}

struct Batch {
    bytes: Arc<[u8]>,
    slices: usize,
}

impl HostBatch for Batch {
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        let parts = self.bytes.chunks(self.bytes.len() / self.slices);
        for (name, part) in NAMES.iter().zip(parts) {
            slices.slice(name, part);
        }
    }
}

/// The least that the consumer's stream needs: a wait for an event.
struct Wait {
    driver: Arc<dyn Driver>,
    stream: RawStream,
    event: RawEvent,
}

impl Wait {
    fn new(bare: &Bare) -> Self {
        let (driver, stream) = (bare.driver(), bare.stream());
        let device = stream.device_ordinal();
        let event = driver.event_create(device, false).expect("the device has events");
        Wait { stream: RawStream { device, handle: stream.as_raw().addr() }, event, driver }
    }

    /// Seconds that the call takes.
    fn seconds(&self) -> Result<f64> {
        // SAFETY: the event is live until `self` is dropped, and so is the stream, which belongs to
        // the benchmark.
        unsafe {
            self.driver.event_record(self.event, self.stream).expect("the event is recorded");
            self.driver.event_synchronize(self.event).expect("the event happens");
            let start = Instant::now();
            self.driver.stream_wait_event(self.stream, self.event).expect("the stream waits");
            Ok(start.elapsed().as_secs_f64())
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // SAFETY: the event was created by this driver, and is no longer used.
        let _ = unsafe { self.driver.event_destroy(self.event) };
    }
}
