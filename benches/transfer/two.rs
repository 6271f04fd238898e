//! Two devices that are fed from ordinary memory at the same time, compared with the speed of the
//! links and the host.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::thread;

use pinlane::driver::DevicePtr;
use pinlane::{Device, DeviceBuf, Result, Stream};

use super::common::bare::Bare;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::team::Gate;
use super::common::timing::{medians, seconds};
use super::{Bench, GIB, KIB, MIB, rate};

const COPIES: usize = 4;
const UNIT: usize = 256 * KIB;
/// Of each thread, at the far end of a host copy.
const ROOM: usize = 2 * MIB;

const METHOD: &str = "a thread and a stream for each device, 4 slices of ordinary memory one after \
    another, 1 GiB each (16 MiB in a short run), from the first call until the last data is there, \
    host's clock; the bytes of both devices together; median, in turns with the reference";
const HOST_METHOD: &str = "as many threads as there are cores, each copies its part of 1 GiB of \
    ordinary memory to 2 MiB, 256 KiB at a time, by memcpy, without a device; median";

/// One device's side.
struct Lane {
    bare: Bare,
    stream: Stream,
    gpu: DeviceBuf<u8>,
    source: Vec<u8>,
    target: Vec<u8>,
    pinned: NonNull<u8>,
}

// SAFETY: the lane owns the pinned block, which is not tied to a thread; the rest is `Send`.
unsafe impl Send for Lane {}

impl Lane {
    fn new(bench: &Bench, device: &Device, bytes: usize) -> Result<Self> {
        let (bare, stream) = (bench.bare.another(device)?, device.stream()?);
        let mut gpu = device.alloc::<u8>(bytes)?;
        stream.fill(&mut gpu, 0)?.wait()?;
        let pinned = bare.host_alloc(bytes);
        // SAFETY: the block has this many bytes, and no other user.
        unsafe { pinned.as_ptr().write_bytes(1, bytes) };
        let (source, target) = (vec![1u8; bytes], vec![1u8; bytes]);
        Ok(Lane { bare, stream, gpu, source, target, pinned })
    }

    fn ours(&mut self, way: Way) -> Result<()> {
        let Lane { stream, gpu, source, target, .. } = self;
        for _ in 0..COPIES {
            match way {
                Way::H2D => stream.upload_slice(source, &mut *gpu)?.wait()?,
                Way::D2H => stream.download_slice(&*gpu, target)?,
            }
        }
        Ok(())
    }

    fn bare(&mut self, way: Way) -> Result<()> {
        let (to, bytes): (DevicePtr, _) = (self.gpu.as_device_ptr(), self.gpu.len());
        for _ in 0..COPIES {
            // SAFETY: both blocks are live and of this length, and used only here. The copies are
            // waited for below.
            unsafe {
                match way {
                    Way::H2D => self.bare.upload(to, self.pinned.as_ptr(), bytes),
                    Way::D2H => self.bare.download(self.pinned.as_ptr(), to, bytes),
                }
            }
        }
        self.bare.synchronize()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // SAFETY: the block came from this runtime; every copy was waited for.
        unsafe { self.bare.host_free(self.pinned) };
    }
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let names = ["h2d", "d2h"].map(|way| format!("staged.two.{way}"));
    if !names.iter().any(|name| report.wants(name)) {
        return Ok(());
    }
    let Some(second) = bench.bare.second_device() else {
        report.skip("staged.two", "this machine has one GPU");
        return Ok(());
    };
    let (bytes, samples) = if bench.quick { (16 * MIB, 3) } else { (GIB, 7) };
    let lanes = [bench.device.clone(), second?].map(|device| Lane::new(bench, &device, bytes));
    let [first, second] = lanes;
    let lanes = [Mutex::new(first?), Mutex::new(second?)];
    for (name, way) in names.into_iter().zip([Way::H2D, Way::D2H]) {
        let [both, bare, alone] = medians(
            samples,
            [
                &mut || together(&lanes, |lane| lane.ours(way)),
                &mut || together(&lanes, |lane| lane.bare(way)),
                &mut || together(&lanes[..1], |lane| lane.ours(way)),
            ],
        )?;
        let total = COPIES * bytes;
        let reference = bench.bare.name("bare cudaMemcpyAsync of both devices, pinned");
        let [both, bare] = [both, bare].map(|time| rate(2 * total, time));
        report.add(Figure::higher(&name, both, "GB/s").beside(reference, bare).by(METHOD, samples));
        report.add(
            Figure::higher(format!("{name}.one"), rate(total, alone), "GB/s")
                .by("the same, one device alone", samples),
        );
    }
    let cores = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let source = vec![1u8; bytes];
    let mut rooms = vec![vec![1u8; ROOM]; cores];
    let [time] = medians(samples, [&mut || host_copy(&source, &mut rooms)])?;
    let figure = Figure::higher("staged.two.host_copy", rate(bytes, time), "GB/s");
    report.add(figure.by(HOST_METHOD, samples));
    Ok(())
}

/// Starts all lanes together, and returns the seconds until all are done.
fn together(lanes: &[Mutex<Lane>], work: impl Fn(&mut Lane) -> Result<()> + Sync) -> Result<f64> {
    let gate = Gate::new(lanes.len() + 1);
    thread::scope(|scope| {
        let threads = lanes.iter().map(|lane| {
            let (gate, work) = (&gate, &work);
            scope.spawn(move || {
                let mut lane = lane.lock().expect("no panic");
                gate.pass();
                work(&mut lane)
            })
        });
        let threads: Vec<_> = threads.collect();
        gate.pass();
        seconds(|| threads.into_iter().try_for_each(|it| it.join().expect("no panic")))
    })
}

fn host_copy(source: &[u8], rooms: &mut [Vec<u8>]) -> Result<f64> {
    let part = source.len().div_ceil(rooms.len());
    seconds(|| {
        thread::scope(|scope| {
            for (room, part) in rooms.iter_mut().zip(source.chunks(part)) {
                scope.spawn(move || {
                    for (number, unit) in part.chunks(UNIT).enumerate() {
                        let at = number * UNIT % ROOM;
                        black_box(&mut room[at..at + unit.len()]).copy_from_slice(unit);
                    }
                });
            }
        });
        Ok(())
    })
}
