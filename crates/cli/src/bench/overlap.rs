//! Copies beside kernels: chunks that are uploaded, worked on, and downloaded.
//!
//! ```text
//!   up       | chunk 0 | chunk 1 | chunk 2 | ...
//!   kernels            | chunk 0 | chunk 1 | chunk 2 | ...
//!   down                         | chunk 0 | chunk 1 | ...
//! ```

use std::time::Duration;

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::rig::{Extent, KIB, MIB, Rig};
use crate::error;
use crate::figures::{Chart, Series, Unit, XAxis, YAxis};

/// How many chunks are on the device: one in each stage, and one to spare.
const RING: usize = 4;

struct Pipeline {
    source: PinnedBuf<u8>,
    target: PinnedBuf<u8>,
    ring: Vec<DeviceBuf<u8>>,
    chunk: usize,
}

pub fn pipeline(rig: &Rig) -> error::Result<Chart> {
    let (chunk, chunks) = match rig.extent {
        Extent::Quick => (64 * KIB, 4),
        Extent::Short => (4 * MIB, 16),
        Extent::Full => (4 * MIB, 64),
    };
    let mut pipeline = Pipeline {
        source: rig.pool.alloc_zeroed(chunk * chunks)?,
        target: rig.pool.alloc_zeroed(chunk * chunks)?,
        ring: (0..RING).map(|_| rig.device_memory(chunk)).collect::<Result<_>>()?,
        chunk,
    };
    let [up, kernels, down] = [rig.device.stream()?, rig.device.stream()?, rig.device.stream()?];
    let microseconds = |seconds: f64| seconds * 1e6 / chunks as f64;
    let bytes = chunk * chunks;
    let copies = rig.seconds(bytes, || pipeline.run(&up, None, &down))?;
    let a_copy = Duration::from_secs_f64(copies / chunks as f64);

    let names = ["one stream", "three streams", "the longer stage alone"];
    let mut series = names.map(|name| Series { name, points: Vec::new() });
    for ratio in [0.25, 0.5, 1.0, 2.0, 4.0] {
        let busy = a_copy.mul_f64(ratio);
        let alone = rig.seconds(bytes, || {
            (0..chunks).try_for_each(|_| kernels.busy(busy).map(drop))?;
            kernels.synchronize()
        })?;
        let one = rig.seconds(bytes, || pipeline.run(&up, Some((&up, busy)), &up))?;
        let three = rig.seconds(bytes, || pipeline.run(&up, Some((&kernels, busy)), &down))?;
        for (series, seconds) in series.iter_mut().zip([one, three, copies.max(alone)]) {
            series.points.push((ratio, microseconds(seconds)));
        }
    }
    Ok(Chart {
        id: "overlap",
        title: "Overlap: upload, kernel and download of many chunks".into(),
        x: XAxis { label: "time of the kernel over that of the copies", unit: Unit::Ratio },
        y: YAxis {
            label: "time of a chunk",
            unit: "us",
            higher_is_better: false,
            logarithmic: false,
        },
        ceiling: None,
        series: series.into(),
    })
}

impl Pipeline {
    /// All chunks; the buffers order the streams. `kernels` are a stream and the time that a
    /// chunk's kernel takes.
    fn run(
        &mut self,
        up: &Stream,
        kernels: Option<(&Stream, Duration)>,
        down: &Stream,
    ) -> Result<()> {
        for (index, start) in (0..self.source.len()).step_by(self.chunk).enumerate() {
            let range = start..start + self.chunk;
            let gpu = &mut self.ring[index % RING];
            up.upload(self.source.slice(range.clone())?, &mut *gpu)?;
            if let Some((kernels, busy)) = kernels {
                kernels.fill(gpu.slice_mut(..64)?, index as u8)?; // waits for the upload
                kernels.busy(busy)?;
                kernels.fill(gpu.slice_mut(64..128)?, index as u8)?; // the download waits for it
            }
            down.download(&*gpu, self.target.slice_mut(range)?)?;
        }
        down.synchronize()
    }
}
