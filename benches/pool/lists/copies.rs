//! Lists of copies: entries, pairs, rows, streams, batches of a pipeline.

use pinlane::batch::{Indices, Pairs, Upload};
use pinlane::prefetch::Prefetch;
use pinlane::{PinnedPool, Result};

use super::{Rig, Row, seconds};

pub const ROWS: &[Row] = &[
    ("operations", operations, "fills on a stalled stream, then run"),
    ("streams.readers", readers, "streams that all read one buffer"),
    ("batch", batch, "entries of 64 bytes of one upload_batch"),
    ("pairs", pairs, "pairs of buffers of 64 bytes: made, uploaded, downloaded"),
    ("rows.distinct", rows_distinct, "numbers of rows that are chosen to collide"),
    ("prefetch.outstanding", outstanding, "batches that the consumer has all, then drops"),
    ("prefetch.recycler", recycler, "batches too large for all the memory that others have left"),
];

fn operations(rig: &Rig, count: usize) -> Result<f64> {
    let mut gpu = rig.device.alloc::<u8>(64)?;
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    seconds(|| {
        (0..count).try_for_each(|n| stream.fill(&mut gpu, n as u8).map(drop))?;
        rig.release(&streams);
        stream.synchronize()
    })
}

fn readers(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let source = pool.alloc_zeroed::<u8>(64)?;
    let streams = rig.stalled(count)?;
    let target = || rig.device.alloc::<u8>(64);
    let mut targets = (0..count).map(|_| target()).collect::<Result<Vec<_>>>()?;
    let took = seconds(|| {
        for (stream, target) in streams.iter().zip(&mut targets) {
            stream.upload(&source, target)?;
        }
        Ok(())
    });
    rig.release(&streams);
    took
}

fn batch(rig: &Rig, count: usize) -> Result<f64> {
    let source = vec![1u8; 64 * count];
    let mut gpu = rig.device.alloc::<u8>(64 * count)?;
    seconds(|| {
        let mut rest = gpu.slice_mut(..)?;
        let mut copies = Vec::with_capacity(count);
        for part in source.chunks(64) {
            let (first, others) = rest.split_at_mut(64)?;
            copies.push(Upload::new(part, first));
            rest = others;
        }
        rig.stream.upload_batch(copies)?.wait()
    })
}

fn pairs(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(count)?;
    let host = || pool.alloc_zeroed::<u8>(64);
    let mut hosts = (0..count).map(|_| host()).collect::<Result<Vec<_>>>()?;
    let gpu = || rig.device.alloc::<u8>(64);
    let mut gpus = (0..count).map(|_| gpu()).collect::<Result<Vec<_>>>()?;
    seconds(|| {
        let mut pairs: Pairs<'_, u8> = hosts.iter_mut().zip(&mut gpus).collect();
        rig.stream.upload_pairs(&mut pairs)?;
        rig.stream.download_pairs(&mut pairs)?.wait()
    })
}

fn rows_distinct(rig: &Rig, count: usize) -> Result<f64> {
    // As many numbers as there are places, which all collide at a few hundred of them.
    let rows = (count * 670) as u64;
    let bits = (2 * count).next_power_of_two().trailing_zeros();
    let place = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits);
    let window = (1u64 << bits) / 600;
    let mut chosen: Vec<u64> = (0..rows).filter(|&n| place(n) < window).take(count).collect();
    chosen.reverse();
    let gpu = rig.device.alloc::<u8>(chosen.len())?;
    let mut table = vec![0u8; rows as usize];
    seconds(|| rig.stream.download_rows(&gpu, Indices::from(&chosen), &mut table)?.wait())
}

fn outstanding(rig: &Rig, count: usize) -> Result<f64> {
    const MOST_DEPTH: usize = 1 << 16;
    let pool = rig.pool(8)?;
    let batches = (0..count).map(|n| vec![n as u8; 64]);
    let pipeline = Prefetch::new(batches, &pool, &rig.stream).depth(count.min(MOST_DEPTH));
    seconds(|| pipeline.start()?.collect::<Result<Vec<_>>>().map(drop))
}

fn recycler(rig: &Rig, count: usize) -> Result<f64> {
    let pool = PinnedPool::builder(&rig.device).build()?;
    let batches = (0..2 * count).map(move |n| vec![1u8; if n < count { 64 } else { 512 }]);
    let mut batches = Prefetch::new(batches, &pool, &rig.stream).depth(1).start()?;
    drop(batches.by_ref().take(count).collect::<Result<Vec<_>>>()?);
    seconds(|| batches.collect::<Result<Vec<_>>>().map(drop))
}
