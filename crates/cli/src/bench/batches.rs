//! Many small copies: by one call, and by a call each.

use pinlane::batch::{Download, Upload};
use pinlane::{DeviceBuf, DeviceSliceMut, PinnedBuf, Result};

use super::bare::{self, Way};
use super::copies;
use super::rig::{Extent, MIB, Rig};
use crate::error;
use crate::figures::{Ceiling, Chart, Series, Unit, XAxis, YAxis};
use crate::measure::gb_per_s;

/// The bytes between two blocks on the host, so that no two blocks can be copied as one.
const GAP: usize = 64;

fn count(rig: &Rig) -> usize {
    if rig.extent == Extent::Quick { 50 } else { 1000 }
}

fn sizes(rig: &Rig) -> Vec<usize> {
    let steps = if rig.extent == Extent::Quick { 2 } else { 5 };
    (0..steps).map(|step| 256 << (2 * step)).collect()
}

/// Three series by the size of a block: a batch up, a batch down, and a call for each block.
fn chart(
    rig: &Rig,
    id: &'static str,
    title: String,
    measure: impl Fn(usize) -> Result<[f64; 3]>,
) -> error::Result<Chart> {
    let names = ["one batch, up", "one batch, down", "a copy each, up"];
    let mut series = names.map(|name| Series { name, points: Vec::new() });
    for bytes in sizes(rig) {
        for (series, seconds) in series.iter_mut().zip(measure(bytes)?) {
            series.points.push((bytes as f64, gb_per_s(count(rig) * bytes, seconds)));
        }
    }
    let bytes = copies::largest(rig).min(64 * MIB);
    let value = gb_per_s(bytes, bare::seconds(rig, &[Way::Up], bytes)?);
    Ok(Chart {
        id,
        title,
        x: XAxis { label: "size of a block", unit: Unit::Bytes },
        y: YAxis { label: "bandwidth", unit: "GB/s", higher_is_better: true, logarithmic: true },
        ceiling: Some(Ceiling { name: "bare large copies in a row", value }),
        series: series.into(),
    })
}

/// Buffers of pageable memory, and buffers on the device.
pub fn small(rig: &Rig) -> error::Result<Chart> {
    let title = format!("{} small buffers of pageable memory", count(rig));
    chart(rig, "small", title, |bytes| {
        let (count, stream) = (count(rig), &rig.stream);
        let mut host = vec![vec![1u8; bytes]; count];
        let mut gpu: Vec<DeviceBuf<u8>> =
            (0..count).map(|_| rig.device.alloc(bytes)).collect::<Result<_>>()?;
        let all = count * bytes;
        Ok([
            rig.seconds(all, || stream.upload_batch(host.iter().zip(&mut gpu))?.wait())?,
            rig.seconds(all, || stream.download_batch(gpu.iter().zip(&mut host))?.wait())?,
            rig.seconds(all, || {
                let mut pairs = host.iter().zip(&mut gpu);
                pairs.try_for_each(|(host, gpu)| stream.upload_slice(host, gpu).map(drop))?;
                stream.synchronize()
            })?,
        ])
    })
}

/// Blocks of one page-locked buffer, with gaps, and blocks that are neighbours on the device.
pub fn scattered(rig: &Rig) -> error::Result<Chart> {
    let title = format!("{} blocks of one page-locked buffer, with gaps", count(rig));
    chart(rig, "scattered", title, |bytes| {
        let (count, stream) = (count(rig), &rig.stream);
        let mut host = rig.pool.alloc_zeroed::<u8>(count * (bytes + GAP))?;
        let mut gpu = rig.device_memory(count * bytes)?;
        let all = count * bytes;
        Ok([
            rig.seconds(all, || stream.upload_batch(uploads(&host, &mut gpu, bytes)?)?.wait())?,
            rig.seconds(all, || stream.download_batch(downloads(&gpu, &mut host, bytes)?)?.wait())?,
            rig.seconds(all, || {
                for (block, to) in blocks(&mut gpu, bytes)?.into_iter().enumerate() {
                    stream.upload(host.slice(place(block, bytes))?, to)?;
                }
                stream.synchronize()
            })?,
        ])
    })
}

/// Where a block is on the host.
fn place(block: usize, bytes: usize) -> std::ops::Range<usize> {
    let start = block * (bytes + GAP);
    start..start + bytes
}

/// The blocks on the device.
fn blocks(gpu: &mut DeviceBuf<u8>, bytes: usize) -> Result<Vec<DeviceSliceMut<'_, u8>>> {
    let count = gpu.len() / bytes;
    let mut blocks = Vec::with_capacity(count);
    let mut rest = gpu.as_slice_mut();
    for _ in 0..count {
        let (block, after) = rest.split_at_mut(bytes)?;
        blocks.push(block);
        rest = after;
    }
    Ok(blocks)
}

fn uploads<'a>(
    host: &'a PinnedBuf<u8>,
    gpu: &'a mut DeviceBuf<u8>,
    bytes: usize,
) -> Result<Vec<Upload<'a>>> {
    let pair = |(block, to)| Ok(Upload::new(host.slice(place(block, bytes))?, to));
    blocks(gpu, bytes)?.into_iter().enumerate().map(pair).collect()
}

fn downloads<'a>(
    gpu: &'a DeviceBuf<u8>,
    host: &'a mut PinnedBuf<u8>,
    bytes: usize,
) -> Result<Vec<Download<'a>>> {
    let mut list = Vec::with_capacity(gpu.len() / bytes);
    let mut rest = host.as_slice_mut();
    for block in 0..gpu.len() / bytes {
        let (to, after) = rest.split_at_mut(bytes)?;
        list.push(Download::new(gpu.slice(block * bytes..(block + 1) * bytes)?, to));
        rest = after.split_at_mut(GAP)?.1;
    }
    Ok(list)
}
