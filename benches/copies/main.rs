//! What a tracked copy costs over the bare `cudaMemcpyAsync`.
//!
//! `cargo bench --bench copies -- [--json FILE] [--commit NAME] [--date DATE] [--only PREFIX] [--quick]`
//!
//! Every figure stands beside its reference from the same run, taken in turns with it, so that both meet
//! the same machine. Without a GPU the emulated device is measured, which says something about this
//! crate's own cost and nothing about copies.

#[path = "../common/mod.rs"]
mod common;

use common::bare::{self, Bare};
use common::figures::{Figure, Options, Report};
use common::timing::{medians, seconds};
use pinlane::{Device, PinnedPool, Result, Stream};

const SMALL: usize = 4096;

struct Bench {
    device: Device,
    pool: PinnedPool,
    stream: Stream,
    bare: Bare,
}

fn main() {
    if let Err(error) = run() {
        eprintln!("benchmark: {error}");
        std::process::exit(1);
    }
}

fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_args()?;
    let (device, bare) = bare::open()?;
    let pool = PinnedPool::builder(&device).max_bytes(4 << 30).build()?;
    let stream = device.stream()?;
    let mut report = Report::new(device.name(), &options);
    let bench = Bench { device, pool, stream, bare };
    if report.wants("copy.tracked") {
        bench.submit(&mut report)?;
    }
    for (name, bytes) in
        [("16mib", 16 << 20), ("64mib", 64 << 20), ("256mib", 256 << 20), ("1gib", 1 << 30)]
    {
        let wanted =
            report.wants(&format!("copy.h2d.{name}")) || report.wants(&format!("copy.d2h.{name}"));
        if wanted && !(options.quick && bytes > 64 << 20) {
            bench.bandwidth(&mut report, name, bytes)?;
        }
    }
    report.print();
    report.write(&options)
}

impl Bench {
    /// How long the call takes on the host.
    fn submit(&self, report: &mut Report) -> Result<()> {
        const CALLS: usize = 400;
        const SAMPLES: usize = 61;
        let host = self.pool.alloc_zeroed::<u8>(SMALL)?;
        let mut gpu = self.device.alloc::<u8>(SMALL)?;
        let address = gpu.as_device_ptr();
        let [tracked, bare] = medians(
            SAMPLES,
            [
                &mut || {
                    let time = seconds(|| {
                        (0..CALLS).try_for_each(|_| self.stream.upload(&host, &mut gpu).map(drop))
                    });
                    self.stream.synchronize()?;
                    time
                },
                &mut || {
                    let time = seconds(|| {
                        for _ in 0..CALLS {
                            // SAFETY: the tracked uploads are complete, and these are waited for below.
                            unsafe { self.bare.upload(address, host.as_ptr(), SMALL) };
                        }
                        Ok(())
                    });
                    self.bare.synchronize()?;
                    time
                },
            ],
        )?;
        let micros = |time: f64| time / CALLS as f64 * 1e6;
        report.add(Figure {
            name: "copy.tracked_submit".into(),
            value: micros(tracked),
            unit: "us",
            better: "lower",
            reference: Some((self.bare.name("bare cudaMemcpyAsync"), micros(bare))),
            samples: SAMPLES,
            method: "Stream::upload of 4 KiB, the call alone, the stream drained after 400; median \
                     of 61, in turns with the reference",
        });
        report.add(Figure {
            name: "copy.tracked_over_raw".into(),
            value: tracked / bare,
            unit: "ratio",
            better: "lower",
            reference: Some((self.bare.name("bare cudaMemcpyAsync"), 1.0)),
            samples: SAMPLES,
            method: "copy.tracked_submit over its reference",
        });
        Ok(())
    }

    /// One copy and the wait for it, each way.
    fn bandwidth(&self, report: &mut Report, name: &str, bytes: usize) -> Result<()> {
        let samples = if bytes > 64 << 20 { 9 } else { 31 };
        let mut host = self.pool.alloc_zeroed::<u8>(bytes)?;
        let mut gpu = self.device.alloc::<u8>(bytes)?;
        let (on_host, on_device) = (host.as_ptr().cast_mut(), gpu.as_device_ptr());

        let up = medians(
            samples,
            [&mut || seconds(|| self.stream.upload(&host, &mut gpu)?.wait()), &mut || {
                seconds(|| {
                    // SAFETY: the tracked upload is complete, and this one is waited for.
                    unsafe { self.bare.upload(on_device, on_host, bytes) };
                    self.bare.synchronize()
                })
            }],
        )?;
        let down = medians(
            samples,
            [&mut || seconds(|| self.stream.download(&gpu, &mut host)?.wait()), &mut || {
                seconds(|| {
                    // SAFETY: the tracked download is complete, and this one is waited for.
                    unsafe { self.bare.download(on_host, on_device, bytes) };
                    self.bare.synchronize()
                })
            }],
        )?;
        let rate = |time: f64| bytes as f64 / time / 1e9;
        for (way, [ours, reference]) in [("h2d", up), ("d2h", down)] {
            report.add(Figure {
                name: format!("copy.{way}.{name}"),
                value: rate(ours),
                unit: "GB/s",
                better: "higher",
                reference: Some((self.bare.name("bare cudaMemcpyAsync"), rate(reference))),
                samples,
                method: "one copy and the wait for it; median, in turns with the reference",
            });
        }
        Ok(())
    }
}
