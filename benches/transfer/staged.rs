//! Copies from and to pageable memory, compared with the link's speed.

use std::hint::black_box;
use std::thread;

use pinlane::Result;

use super::ceiling::Ceiling;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::timing::{Samples, samples_of, seconds, seconds_of};
use super::{Bench, GIB, KIB, MIB, SIZES, TENSOR, rate};

const METHOD: &str = "one pageable slice, from the call until the data is there, host's clock; \
    median, in turns with the reference";

/// The speed of the host alone. No copy from or to pageable memory is faster than that.
const HOST: &str = "staged.host_copy";
const HOST_METHOD: &str = "8 threads that copy 1 GiB of pageable memory to 16 MiB of it, 256 KiB \
    at a time, by memcpy, without a device; median";
const THREADS: usize = 8;
const UNIT: usize = 256 * KIB;
const ROOM: usize = 16 * MIB;

fn host_copy(bench: &Bench, report: &mut Report) -> Result<()> {
    let (bytes, samples) = if bench.quick { (ROOM, 3) } else { (GIB, 9) };
    let source = vec![1u8; bytes];
    let mut rooms = vec![vec![1u8; ROOM / THREADS]; THREADS];
    let copy = |rooms: &mut Vec<Vec<u8>>| {
        thread::scope(|scope| {
            for (room, part) in rooms.iter_mut().zip(source.chunks(bytes / THREADS)) {
                scope.spawn(move || {
                    for (number, unit) in part.chunks_exact(UNIT).enumerate() {
                        let at = number * UNIT % room.len();
                        black_box(&mut room[at..at + UNIT]).copy_from_slice(unit);
                    }
                });
            }
        });
        Ok(())
    };
    let [runs] = samples_of(&mut rooms, samples, [&copy])?;
    report.add(Figure::rate(HOST, bytes, &runs).by(HOST_METHOD, samples));
    let a_gb = runs.core_seconds() / (bytes as f64 / 1e9);
    report.add(
        Figure::lower(format!("{HOST}.core_seconds_per_gb"), a_gb, "s/GB")
            .by("what these threads take of the host's cores, by getrusage; mean", samples),
    );
    Ok(())
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if report.wants(HOST) {
        host_copy(bench, report)?;
    }
    for (name, bytes) in SIZES {
        let names = ["h2d", "d2h"].map(|way| format!("staged.{way}.{name}"));
        if bench.has_time_for(bytes) && names.iter().any(|name| report.wants(name)) {
            let (runs, ceilings, reference) = single(bench, bytes)?;
            for ((name, runs), ceiling) in names.into_iter().zip(runs).zip(ceilings) {
                report.add(
                    Figure::rate(name, bytes, &runs)
                        .beside(reference, rate(bytes, ceiling))
                        .by(METHOD, runs.count()),
                );
            }
        }
    }
    let names = ["staged.h2d.4mb", "staged.d2h.4mb"];
    if names.iter().any(|name| report.wants(name)) {
        let (runs, ceilings, reference) = single(bench, TENSOR)?;
        for ((name, runs), ceiling) in names.into_iter().zip(runs).zip(ceilings) {
            report.add(
                Figure::micros(name, &runs)
                    .beside(reference, ceiling * 1e6)
                    .by(METHOD, runs.count()),
            );
        }
    }
    Ok(())
}

/// The runs of a slice up and down, the seconds of the same by the ceiling, and the ceiling's name.
fn single(bench: &Bench, bytes: usize) -> Result<([Samples; 2], [f64; 2], &'static str)> {
    let stream = bench.device.stream()?;
    let mut subject = (vec![1u8; bytes], bench.device_memory(bytes)?);
    let ceiling = Ceiling::new(bench, bytes)?;
    let [up, up_ceiling] = seconds_of(
        &mut subject,
        bench.samples(bytes),
        [&|(host, gpu)| seconds(|| stream.upload_slice(host, gpu)?.wait()), &|_| {
            ceiling.copy(Way::H2D, bytes)
        }],
    )?;
    let [down, down_ceiling] = seconds_of(
        &mut subject,
        bench.samples(bytes),
        [&|(host, gpu)| seconds(|| stream.download_slice(&*gpu, host)), &|_| {
            ceiling.copy(Way::D2H, bytes)
        }],
    )?;
    Ok(([up, down], [up_ceiling.median(), down_ceiling.median()], ceiling.name()))
}
