//! The state of an optimizer lives on the device, and the CPU makes the step: everything is
//! downloaded, changed, and uploaded again. Reference: the same by bare copies, one after the
//! other.

use std::slice;
use std::sync::Mutex;
use std::thread;

use pinlane::batch::Pairs;
use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::common::bare::Bare;
use super::common::figures::{Figure, Report};
use super::common::timing::samples_of;
use super::{Bench, KIB, MIB};

const NAME: &str = "workload.optimizer";
/// The groups of tensors; one call copies a group.
const GROUPS: usize = 8;
/// The tensors of a group: how many, and how many bytes each has.
const TENSORS: [(usize, usize); 2] = [(8, 16 * MIB), (64, 16 * KIB)];
const SMALL: [(usize, usize); 2] = [(4, 32 * KIB), (8, KIB)];
/// How many numbers a thread takes at a time.
const UNIT: usize = 1 << 18;

const STEP: &str = "1.08 GB of state, floats, in 8 groups of 8 tensors of 16 MiB and 64 of 16 KiB, \
    goes down, every number is changed by all cores, and goes up; a group is changed while others \
    are copied; from the first call until the state is on the device, host's clock; median, in \
    turns with the reference";
const COPIES: &str = "the same without the change; both ways together";
const CPU: &str = "the change alone";

struct Optimizer<'a> {
    down: Stream,
    up: Stream,
    groups: Vec<Pairs<'a, f32>>,
    bare: [Bare; 2],
    threads: usize,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants(NAME) {
        return Ok(());
    }
    let tensors = if bench.small { SMALL } else { TENSORS };
    let lengths = tensors.map(|(count, bytes)| vec![bytes / size_of::<f32>(); count]).concat();
    let bytes = GROUPS * size_of::<f32>() * lengths.iter().sum::<usize>();
    let pool = bench.pool(bytes)?;
    let all = || (0..GROUPS).flat_map(|_| &lengths);
    let host = all().map(|&length| pool.alloc_zeroed(length));
    let mut host: Vec<PinnedBuf<f32>> = host.collect::<Result<_>>()?;
    let gpu = all().map(|&length| bench.device.alloc(length));
    let mut gpu: Vec<DeviceBuf<f32>> = gpu.collect::<Result<_>>()?;
    let groups = host.chunks_mut(lengths.len()).zip(gpu.chunks_mut(lengths.len()));
    let mut optimizer = Optimizer {
        down: bench.device.stream()?,
        up: bench.device.stream()?,
        groups: groups.map(|(host, gpu)| host.iter_mut().zip(gpu).collect()).collect(),
        bare: [bench.bare.another(&bench.device)?, bench.bare.another(&bench.device)?],
        threads: thread::available_parallelism().map_or(1, |cores| cores.get()),
    };
    optimizer.check()?;
    let [step, copies, cpu, bare] = samples_of(
        &mut optimizer,
        bench.samples(15),
        [&|it| it.run(true), &|it| it.run(false), &Optimizer::change, &Optimizer::bare],
    )?;
    let reference = "the change alone, after bare copies down, before bare copies up";
    report.add(
        Figure::millis(format!("{NAME}.step"), &step)
            .beside(reference, (cpu.median() + bare.median()) * 1e3)
            .by(STEP, step.count()),
    );
    let (name, reference) = (format!("{NAME}.copies"), "a loop of bare copies each way");
    report.add(
        Figure::rate(&*name, 2 * bytes, &copies)
            .beside(reference, 2.0 * bytes as f64 / bare.median() / 1e9)
            .by(COPIES, copies.count()),
    );
    report.add(Figure::cores(&name, 2 * bytes, &copies, (reference, &bare)));
    report.add(Figure::millis(format!("{NAME}.cpu"), &cpu).by(CPU, cpu.count()));
    Ok(())
}

impl Optimizer<'_> {
    /// Downloads, changes if wanted, and uploads. The buffers order the streams.
    fn run(&mut self, changes: bool) -> Result<()> {
        for group in &mut self.groups {
            self.down.download_pairs(group)?;
        }
        for group in &mut self.groups {
            if changes {
                change(group, self.threads)?;
            }
            self.up.upload_pairs(group)?;
        }
        self.up.synchronize()
    }

    fn change(&mut self) -> Result<()> {
        self.groups.iter_mut().try_for_each(|group| change(group, self.threads))
    }

    fn bare(&mut self) -> Result<()> {
        for (bare, downwards) in self.bare.iter().zip([true, false]) {
            for group in &mut self.groups {
                for pair in 0..group.len() {
                    let gpu = group.device(pair).as_device_ptr();
                    let mut host = group.host_mut(pair);
                    let (host, bytes) = (host.as_mut_ptr(), size_of::<f32>() * host.len());
                    // SAFETY: both have this length, and are borrowed exclusively. They are idle:
                    // every run is waited for, as these copies are below.
                    unsafe {
                        if downwards {
                            bare.download(host.cast(), gpu, bytes);
                        } else {
                            bare.upload(gpu, host.cast(), bytes);
                        }
                    }
                }
            }
            bare.synchronize()?;
        }
        Ok(())
    }

    /// Puts numbers on the device, makes a step, and checks every number there.
    fn check(&mut self) -> Result<()> {
        for group in &mut self.groups {
            for (tensor, numbers) in parts(group)?.into_iter().enumerate() {
                let values = numbers.iter_mut().enumerate();
                values.for_each(|(place, value)| *value = first_value(tensor, place));
            }
            self.up.upload_pairs(group)?.wait()?;
            parts(group)?.into_iter().for_each(|numbers| numbers.fill(0.0));
        }
        self.run(true)?;
        for (number, group) in self.groups.iter().enumerate() {
            for tensor in 0..group.len() {
                let mut back = vec![0.0; group.device(tensor).len()];
                self.down.download_slice(group.device(tensor), &mut back)?;
                let good = back
                    .iter()
                    .enumerate()
                    .all(|(place, &value)| value == changed(first_value(tensor, place)));
                assert!(good, "{NAME}: tensor {tensor} of group {number} is not what it should be");
            }
        }
        Ok(())
    }
}

fn first_value(tensor: usize, place: usize) -> f32 {
    ((tensor + place) % 1000) as f32
}

fn changed(value: f32) -> f32 {
    value + 0.1 * (1.0 - value)
}

/// Changes all numbers of a group, when they have arrived.
fn change(group: &mut Pairs<'_, f32>, threads: usize) -> Result<()> {
    let units = parts(group)?.into_iter().flat_map(|part| part.chunks_mut(UNIT));
    let units = Mutex::new(units);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(unit) = units.lock().expect("no panic").next() else { break };
                    unit.iter_mut().for_each(|value| *value = changed(*value));
                }
            });
        }
    });
    Ok(())
}

/// The host side of all pairs.
fn parts<'p>(group: &'p mut Pairs<'_, f32>) -> Result<Vec<&'p mut [f32]>> {
    let count = group.len();
    let part = |pair| {
        let part = group.host_mut(pair).into_write()?;
        // SAFETY: every pair is a separate buffer, and all are borrowed exclusively for 'p.
        Ok(unsafe { slice::from_raw_parts_mut(part.as_mut_ptr(), part.len()) })
    };
    (0..count).map(part).collect()
}
