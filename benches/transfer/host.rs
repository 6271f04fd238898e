//! The costs of copies of pageable memory: seconds of the host's cores, the delay of a short copy
//! when other threads use all of them, and the GPU's energy.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pinlane::{DeviceBuf, Result, Stream};

use super::common::cuda::Way;
use super::common::energy::Energy;
use super::common::figures::{Figure, Report};
use super::common::pageable::{Call, Pageable};
use super::common::timing::{Samples, samples_of};
use super::{Bench, GIB, KIB, MIB};

const CORES: &str = "host.core_seconds_per_gb";
const JOULES: &str = "host.joules_per_gb";
const SHORT: usize = 4 * KIB;
/// How long copies are repeated while the energy is counted, which the driver does about ten times
/// a second.
const COUNTED: Duration = Duration::from_millis(1500);

const CORES_METHOD: &str = "seconds of all threads of the process, by getrusage, for a GB of a \
    pageable slice, from the call until the data is there; mean, in turns with the reference";
const JOULES_METHOD: &str = "what the GPU takes, by NVML's counter, for a GB of a pageable slice \
    of 1 GiB, copied over and over for 1.5 s; with what it takes when it is idle; mean of 2, in \
    turns with the reference";
const LATE: &str = "the time in which 99.9% of uploads of a pageable slice of 4 KiB are done, from \
    the call until the data is there, host's clock, while as many threads compute as there are \
    cores (.idle: none), in turns with the reference";
const MEDIAN: &str = "the median of those uploads";

struct Pair {
    stream: Stream,
    runtime: Pageable,
    host: Vec<u8>,
    gpu: DeviceBuf<u8>,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    for (suffix, bytes) in [("", GIB), (".64mib", 64 * MIB)] {
        let names = ["h2d", "d2h"].map(|way| format!("{CORES}.{way}{suffix}"));
        if bench.has_time_for(bytes) && names.iter().any(|name| report.wants(name)) {
            let mut pair = Pair::new(bench, bytes)?;
            for (name, way) in names.into_iter().zip([Way::H2D, Way::D2H]) {
                cores(bench, report, &mut pair, name, way)?;
            }
        }
    }
    if report.wants(JOULES) {
        match Energy::of(0) {
            Some(energy) if !bench.quick => joules(bench, report, &energy)?,
            _ => report.skip(JOULES, "no counter of energy (nvmlDeviceGetTotalEnergyConsumption)"),
        }
    }
    if report.wants("host.p") {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        let mut pair = Pair::new(bench, SHORT)?;
        for (suffix, threads) in [("", cores), (".idle", 0)] {
            let [ours, theirs] = beside(threads, || pair.samples(bench, Way::H2D, 3001))?;
            let reference = pair.runtime.name(Call::Async);
            let late = |runs: &Samples| runs.quantile(0.999) * 1e6;
            report.add(
                Figure::lower(format!("host.p999.4kb{suffix}"), late(&ours), "us")
                    .beside(reference, late(&theirs))
                    .by(LATE, ours.count()),
            );
            report.add(
                Figure::micros(format!("host.p50.4kb{suffix}"), &ours)
                    .beside(reference, theirs.median() * 1e6)
                    .by(MEDIAN, ours.count()),
            );
        }
    }
    Ok(())
}

fn cores(
    bench: &Bench,
    report: &mut Report,
    pair: &mut Pair,
    name: String,
    way: Way,
) -> Result<()> {
    let [ours, theirs] = pair.samples(bench, way, 15)?;
    let a_gb = |runs: &Samples| runs.core_seconds() / (pair.host.len() as f64 / 1e9);
    report.add(
        Figure::lower(name, a_gb(&ours), "s/GB")
            .beside(pair.runtime.name(Call::Async), a_gb(&theirs))
            .by(CORES_METHOD, ours.count()),
    );
    Ok(())
}

fn joules(bench: &Bench, report: &mut Report, energy: &Energy) -> Result<()> {
    let mut pair = Pair::new(bench, GIB)?;
    for (name, way) in [("h2d", Way::H2D), ("d2h", Way::D2H)] {
        let mut sums = [0.0; 2];
        for _ in 0..2 {
            sums[0] += joules_a_gb(energy, &mut pair, &|pair| pair.ours(way))?;
            sums[1] += joules_a_gb(energy, &mut pair, &|pair| pair.theirs(way))?;
        }
        let [ours, theirs] = sums.map(|sum| sum / 2.0);
        report.add(
            Figure::lower(format!("{JOULES}.{name}"), ours, "J/GB")
                .beside(pair.runtime.name(Call::Async), theirs)
                .by(JOULES_METHOD, 2),
        );
    }
    Ok(())
}

fn joules_a_gb(
    energy: &Energy,
    pair: &mut Pair,
    copy: &dyn Fn(&mut Pair) -> Result<()>,
) -> Result<f64> {
    copy(pair)?;
    let joules = || energy.joules().unwrap_or(f64::NAN);
    let (start, before, mut bytes) = (Instant::now(), joules(), 0);
    while start.elapsed() < COUNTED {
        copy(pair)?;
        bytes += pair.host.len();
    }
    Ok((joules() - before) / (bytes as f64 / 1e9))
}

impl Pair {
    fn new(bench: &Bench, bytes: usize) -> Result<Self> {
        Ok(Pair {
            stream: bench.device.stream()?,
            runtime: Pageable::new(&bench.bare, &bench.device)?,
            host: vec![1; bytes],
            gpu: bench.device_memory(bytes)?,
        })
    }

    /// Our copies, and those of the runtime.
    fn samples(&mut self, bench: &Bench, way: Way, count: usize) -> Result<[Samples; 2]> {
        let count = if bench.quick { 3 } else { count };
        samples_of(self, count, [&|pair| pair.ours(way), &|pair| pair.theirs(way)])
    }

    fn ours(&mut self, way: Way) -> Result<()> {
        match way {
            Way::H2D => self.stream.upload_slice(&self.host, &mut self.gpu)?.wait(),
            Way::D2H => self.stream.download_slice(&self.gpu, &mut self.host),
        }
    }

    fn theirs(&mut self, way: Way) -> Result<()> {
        let Pair { runtime, host, gpu, .. } = self;
        let (bytes, gpu) = (host.len(), gpu.as_device_ptr());
        // SAFETY: both have this length, are borrowed exclusively, and are idle: each copy is
        // waited for.
        unsafe { runtime.copy_and_wait(Call::Async, way, host.as_mut_ptr(), gpu, bytes) }
    }
}

/// Measures while `threads` threads compute.
fn beside<T>(threads: usize, measure: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut x = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    x = black_box(x).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (x >> 7);
                }
            });
        }
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}
