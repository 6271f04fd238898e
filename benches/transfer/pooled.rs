//! Slices in memory of a pool, which the device copies directly: compared with the link's speed and
//! with pageable memory; and the time to find the owner of a slice's memory.

use std::hint::black_box;

use pinlane::batch::Uploads;
use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::ceiling::Ceiling;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::timing::{medians_of, seconds};
use super::{Bench, KIB, MIB, SIZES, TENSOR, rate};

const METHOD: &str = "one slice of a buffer of a pool, by upload_slice or download_slice, from the \
    call until the data is there, host's clock; median, in turns with the reference";

const LOOKUP: &str = "pooled.lookup";
const LOOKUP_METHOD: &str = "a pageable slice of 64 bytes becomes an entry of a list of 10,000, in \
    a process with 200 slabs; median, in turns with views of a buffer, whose memory is known";
const ENTRIES: usize = 10_000;
const ENTRY: usize = 64;

struct Subject {
    stream: Stream,
    pageable: Vec<u8>,
    pooled: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
}

impl Subject {
    fn new(bench: &Bench, bytes: usize) -> Result<Self> {
        Ok(Subject {
            stream: bench.device.stream()?,
            pageable: vec![1; bytes],
            pooled: bench.pool()?.alloc_zeroed(bytes)?,
            gpu: bench.device_memory(bytes)?,
        })
    }

    fn copy(&mut self, way: Way, from_pool: bool) -> Result<f64> {
        let Subject { stream, pageable, pooled, gpu } = self;
        let slice = if from_pool { pooled.write()? } else { &mut pageable[..] };
        seconds(|| match way {
            Way::H2D => stream.upload_slice(slice, gpu)?.wait(),
            Way::D2H => stream.download_slice(&*gpu, slice),
        })
    }
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let short = [("4mb", TENSOR), ("1mib", MIB), ("128kib", 128 * KIB)];
    for (size, bytes) in SIZES.into_iter().chain(short) {
        for (way_name, way) in [("h2d", Way::H2D), ("d2h", Way::D2H)] {
            let name = format!("pooled.{way_name}.{size}");
            if bench.has_time_for(bytes) && report.wants(&name) {
                one(bench, report, name, way, bytes)?;
            }
        }
    }
    if report.wants(LOOKUP) {
        lookup(bench, report)?;
    }
    Ok(())
}

/// A slice of a pool's memory, compared with the ceiling and with a pageable one.
fn one(bench: &Bench, report: &mut Report, name: String, way: Way, bytes: usize) -> Result<()> {
    let mut subject = Subject::new(bench, bytes)?;
    let ceiling = Ceiling::new(bench, bytes)?;
    let samples = bench.samples(bytes);
    let [pooled, bare, staged] = medians_of(
        &mut subject,
        samples,
        [&|subject| subject.copy(way, true), &|_| ceiling.copy(way, bytes), &|subject| {
            subject.copy(way, false)
        }],
    )?;
    let figure = |name, reference, time| {
        Figure::higher(name, rate(bytes, pooled), "GB/s")
            .beside(reference, rate(bytes, time))
            .by(METHOD, samples)
    };
    let pageable = "the same slice in pageable memory";
    report.add(figure(format!("{name}.beside_pageable"), pageable, staged));
    report.add(figure(name, ceiling.name(), bare));
    Ok(())
}

/// The time to find out that a slice is pageable.
fn lookup(bench: &Bench, report: &mut Report) -> Result<()> {
    let samples = if bench.quick { 3 } else { 101 };
    let pool = bench.pool()?;
    // Some slabs, so that there is something to search.
    let _others: Vec<_> = (0..200).map(|_| pool.alloc::<u8>(2 * MIB)).collect::<Result<_>>()?;
    let mut subject = Subject::new(bench, ENTRIES * ENTRY)?;
    let [pageable, view] = medians_of(
        &mut subject,
        samples,
        [
            &|Subject { pageable, gpu, .. }| {
                let mut devices = parts(gpu)?.into_iter();
                let slices = pageable.chunks_exact(ENTRY);
                let mut list = Uploads::new();
                let time = seconds(|| {
                    list.extend(slices.zip(devices.by_ref()));
                    Ok(())
                });
                drop(black_box(list));
                time
            },
            &|Subject { pooled, gpu, .. }| {
                let mut devices = parts(gpu)?.into_iter();
                let views = (0..ENTRIES).map(|n| pooled.slice(n * ENTRY..(n + 1) * ENTRY));
                let views: Vec<_> = views.collect::<Result<_>>()?;
                let mut list = Uploads::new();
                let time = seconds(|| {
                    list.extend(views.into_iter().zip(devices.by_ref()));
                    Ok(())
                });
                drop(black_box(list));
                time
            },
        ],
    )?;
    let nanos = |time: f64| time / ENTRIES as f64 * 1e9;
    report.add(
        Figure::lower(LOOKUP, nanos(pageable), "ns")
            .beside("a view of a buffer", nanos(view))
            .by(LOOKUP_METHOD, samples),
    );
    Ok(())
}

/// The whole buffer in pieces of one entry each.
fn parts(gpu: &mut DeviceBuf<u8>) -> Result<Vec<pinlane::DeviceSliceMut<'_, u8>>> {
    let mut rest = gpu.as_slice_mut();
    let mut parts = Vec::with_capacity(ENTRIES);
    for _ in 0..ENTRIES {
        let (part, behind) = rest.split_at_mut(ENTRY)?;
        parts.push(part);
        rest = behind;
    }
    Ok(parts)
}
