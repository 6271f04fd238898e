//! How many small operations a second the emulated device makes, with and without its search for
//! races. This is the cost of random programs.

use pinlane::driver::{HostFlags, StreamFlags};
use pinlane::emulated::Emulator;
use pinlane::{Device, PinnedPool, Result};

use super::common::figures::{Figure, Report};
use super::common::timing::{medians, operations, seconds};
use super::{Bench, MIB};

const BYTES: usize = 64;
const REFERENCE: &str = "without the search for races";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (samples, shortest) = if bench.quick { (3, 0.002) } else { (9, 0.1) };
    let machines = [true, false].map(|races| Emulator::builder().races(races).build());
    if report.wants("emulated.ops") {
        let [checked, plain] = &machines;
        let (mut checked, mut plain) = (through_crate(checked)?, through_crate(plain)?);
        let count = operations(shortest, &mut checked)?;
        let [time, reference] = medians(samples, [&mut || checked(count), &mut || plain(count)])?;
        let rate = |time| 3.0 * count as f64 / time / 1e6;
        report.add(
            Figure::higher("emulated.ops", rate(time), "M/s").beside(REFERENCE, rate(reference)).by(
                "upload, fill and download of 64 bytes on an emulated device in eager mode, one \
                 thread, enqueued and executed; median",
                samples,
            ),
        );
    }
    if report.wants("emulated.calls") {
        let [checked, plain] = &machines;
        let (mut checked, mut plain) = (at_the_seam(checked), at_the_seam(plain));
        let count = operations(shortest, &mut checked)?;
        let [time, reference] = medians(samples, [&mut || checked(count), &mut || plain(count)])?;
        let rate = |time| 7.0 * count as f64 / time / 1e6;
        report.add(
            Figure::higher("emulated.calls", rate(time), "M/s")
                .beside(REFERENCE, rate(reference))
                .by(
                    "the driver's own calls: upload and fill on one stream, download on another, \
                     of 64 bytes each, and an event and a wait there and back; otherwise as \
                     emulated.ops",
                    samples,
                ),
        );
    }
    Ok(())
}

/// Rounds of three operations of this crate, one after the other on one stream.
fn through_crate(machine: &Emulator) -> Result<impl FnMut(usize) -> Result<f64>> {
    let device = Device::of_emulator(machine, 0)?;
    let pool = PinnedPool::builder(&device).max_bytes(MIB).build()?;
    let stream = device.stream()?;
    let (source, mut target) = (pool.alloc_zeroed::<u8>(BYTES)?, pool.alloc_zeroed::<u8>(BYTES)?);
    let mut gpu = device.alloc::<u8>(BYTES)?;
    Ok(move |count| {
        seconds(|| {
            for _ in 0..count {
                stream.upload(&source, &mut gpu)?;
                stream.fill(&mut gpu, 1)?;
                stream.download(&gpu, &mut target)?;
            }
            stream.synchronize()
        })
    })
}

/// Rounds of seven driver calls, on two streams that wait for each other.
fn at_the_seam(machine: &Emulator) -> impl FnMut(usize) -> Result<f64> {
    const DONE: &str = "the emulated device has the memory";
    let driver = machine.driver();
    let flags = StreamFlags::default();
    let [first, second] = [(); 2].map(|()| driver.stream_create(0, flags).expect(DONE));
    let [there, back] = [(); 2].map(|()| driver.event_create(0, false).expect(DONE));
    let [source, target] =
        [(); 2].map(|()| driver.host_alloc(0, BYTES, HostFlags::default()).expect(DONE));
    // SAFETY: live stream, used for nothing else.
    let gpu = unsafe { driver.device_alloc(first, BYTES) }.expect(DONE);
    move |count| {
        seconds(|| {
            for _ in 0..count {
                // SAFETY: the streams and events are live; the memory exists until the process ends
                // and is used only by these calls, in the order of the two events.
                unsafe {
                    driver.stream_wait_event(first, back).expect(DONE);
                    driver.copy_h2d(first, gpu, source.as_ptr(), BYTES).expect(DONE);
                    driver.fill(first, gpu, BYTES, &[1]).expect(DONE);
                    driver.event_record(there, first).expect(DONE);
                    driver.stream_wait_event(second, there).expect(DONE);
                    driver.copy_d2h(second, target.as_ptr(), gpu, BYTES).expect(DONE);
                    driver.event_record(back, second).expect(DONE);
                }
            }
            Ok(())
        })
    }
}
