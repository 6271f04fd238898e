//! One stream that many threads share: each makes small copies of its own memory, and waits for
//! them.

use std::sync::{Arc, Mutex};

use pinlane::driver::{Driver, RawEvent, RawStream};
use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::timing::medians;
use super::threads::together;
use super::{Bench, KIB};

const GROUP: &str = "shared";

const BYTES: usize = 4 * KIB;
const THREADS: [usize; 3] = [1, 4, 16];
/// How many copies a thread enqueues before it waits.
const BURSTS: [(&str, usize); 2] = [("", 1), (".burst", 64)];

const METHOD: &str = "threads that start together copy 4 KiB of page-locked memory of their own on \
    one stream, and wait for each copy, or for each 64 (burst); the time from the first start to \
    the last end, divided by the copies of a thread; median, in turns with the reference";
const BARE: &str = "cuMemcpyAsync, cuEventRecord and cuEventSynchronize by each thread";

/// What one thread copies.
struct Ends {
    host: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
    stream: Stream,
    driver: Arc<dyn Driver>,
    raw: RawStream,
    event: RawEvent,
}

impl Ends {
    fn tracked(&mut self, way: Way, burst: usize) -> Result<()> {
        let mut last = None;
        for _ in 0..burst {
            last = Some(match way {
                Way::H2D => self.stream.upload(&self.host, &mut self.gpu)?,
                Way::D2H => self.stream.download(&self.gpu, &mut self.host)?,
            });
        }
        last.map_or(Ok(()), |ticket| ticket.wait())
    }

    fn bare(&mut self, way: Way, burst: usize) -> Result<()> {
        let (host, gpu) = (self.host.as_ptr().cast_mut(), self.gpu.as_device_ptr());
        // SAFETY: both blocks are live, of equal length, and this thread's; the copies are complete
        // when the wait ends. The event is this thread's.
        let done = unsafe {
            (0..burst)
                .try_for_each(|_| match way {
                    Way::H2D => self.driver.copy_h2d(self.raw, gpu, host, BYTES),
                    Way::D2H => self.driver.copy_d2h(self.raw, host, gpu, BYTES),
                })
                .and_then(|()| self.driver.event_record(self.event, self.raw))
                .and_then(|()| self.driver.event_synchronize(self.event))
        };
        done.expect("a copy");
        Ok(())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // SAFETY: the event is this thread's, and nothing waits for it.
        unsafe { self.driver.event_destroy(self.event) }.expect("an event");
    }
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (stream, samples) = (bench.device.stream()?, if bench.quick { 1 } else { 9 });
    for threads in THREADS {
        for (way_name, way) in [("h2d", Way::H2D), ("d2h", Way::D2H)] {
            for (suffix, burst) in BURSTS {
                let name = format!("{GROUP}.{way_name}.4kb.t{threads}{suffix}");
                if !report.wants(&name) {
                    continue;
                }
                let driver = bench.bare.driver();
                let ends = (0..threads).map(|_| {
                    let event = driver.event_create(bench.device.ordinal(), false);
                    Ok(Mutex::new(Ends {
                        host: bench.pool()?.alloc_zeroed(BYTES)?,
                        gpu: bench.device_memory(BYTES)?,
                        stream: stream.clone(),
                        driver: Arc::clone(&driver),
                        raw: bench.bare.raw(),
                        event: event.expect("an event"),
                    }))
                });
                let ends = ends.collect::<Result<Vec<_>>>()?;
                let times = if bench.quick { 2 } else { (2000 / burst).max(20) };
                let each = |seconds: f64| seconds / burst as f64;
                let [ours, bare] = medians(
                    samples,
                    [
                        &mut || Ok(each(together(&ends, times, |it| it.tracked(way, burst))?)),
                        &mut || Ok(each(together(&ends, times, |it| it.bare(way, burst))?)),
                    ],
                )?;
                report.add(
                    Figure::lower(name, ours * 1e6, "us")
                        .beside(BARE, bare * 1e6)
                        .by(METHOD, samples),
                );
            }
        }
    }
    Ok(())
}
