//! Uploads, kernels and downloads at the same time. Chunks go through three streams, and the
//! buffers order the streams.
//!
//! ```text
//! cargo run --release --example overlap [CHUNKS]
//!
//!   up       | chunk 0 | chunk 1 | chunk 2 | ...
//!   kernels            | chunk 0 | chunk 1 | chunk 2 | ...
//!   down                         | chunk 0 | chunk 1 | ...
//! ```
//!
//! This file has no events, and no waits between streams. A kernel on one stream runs after the
//! copy on another because both name the buffer of the chunk. And a buffer is overwritten only when
//! its last chunk has left it.

use std::time::Instant;

use pinlane::{Device, DeviceBuf, PinnedBuf, PinnedPool, Result, Stream, checksum};

/// The elements of a chunk.
const CHUNK: usize = 1 << 18;
/// How many chunks are on the device: one in each stage, and one to spare.
const RING: usize = 4;

struct Pipeline {
    source: PinnedBuf<u32>,
    target: PinnedBuf<u32>,
    ring: Vec<DeviceBuf<u32>>,
    sums: DeviceBuf<u64>,
    host_sums: PinnedBuf<u64>,
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let chunks = std::env::args().nth(1).map_or(Ok(64), |count| count.parse())?;
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).build()?;
    let mut pipeline = Pipeline {
        source: pool.alloc(chunks * CHUNK)?,
        target: pool.alloc_zeroed(chunks * CHUNK)?,
        ring: (0..RING).map(|_| device.alloc(CHUNK)).collect::<Result<_>>()?,
        sums: device.alloc(chunks)?,
        host_sums: pool.alloc_zeroed(chunks)?,
    };
    let source = pipeline.source.write()?;
    source.iter_mut().enumerate().for_each(|(index, value)| *value = index as u32);

    let [a, b, c] = [device.stream()?, device.stream()?, device.stream()?];
    println!("{}: {chunks} chunks of {} KiB, each way", device.name(), (CHUNK * 4) >> 10);
    for (name, streams) in [("one stream", [&a, &a, &a]), ("three streams", [&a, &b, &c])] {
        pipeline.run(streams)?; // not timed: allocates the device memory
        pipeline.target.write()?.fill(0);
        let start = Instant::now();
        pipeline.run(streams)?;
        let time = start.elapsed().as_secs_f64();
        pipeline.check()?;
        let rate = (chunks * CHUNK * 4) as f64 / time / 1e9;
        println!("{name:<14} {:8.3} ms  {rate:6.2} GB/s each way, all correct", time * 1e3);
    }
    Ok(())
}

impl Pipeline {
    /// Sends every chunk through the three stages. Only the last line blocks.
    fn run(&mut self, [up, kernels, down]: [&Stream; 3]) -> Result<()> {
        for index in 0..self.sums.len() {
            let range = index * CHUNK..(index + 1) * CHUNK;
            let gpu = &mut self.ring[index % RING];
            up.upload(self.source.slice(range.clone())?, &mut *gpu)?;
            kernels.checksum(&*gpu, self.sums.slice_mut(index..=index)?)?;
            kernels.fill(gpu.slice_mut(CHUNK / 2..)?, index as u32)?;
            down.download(&*gpu, self.target.slice_mut(range)?)?;
        }
        down.download(&self.sums, &mut self.host_sums)?;
        down.synchronize()
    }

    /// Checks that the kernels read what was uploaded. In each chunk that came back, the first half
    /// must be what was uploaded, and the second half what the kernel wrote.
    fn check(&self) -> Result<()> {
        let (source, target) = (self.source.read()?, self.target.read()?);
        let chunks = source.chunks(CHUNK).zip(target.chunks(CHUNK)).zip(self.host_sums.read()?);
        for (index, ((sent, got), &sum)) in chunks.enumerate() {
            assert_eq!(sum, checksum(bytes(sent)), "the kernel read chunk {index}");
            assert_eq!(got[..CHUNK / 2], sent[..CHUNK / 2], "chunk {index} came back");
            assert!(got[CHUNK / 2..].iter().all(|&value| value == index as u32), "chunk {index}");
        }
        Ok(())
    }
}

fn bytes(values: &[u32]) -> &[u8] {
    bytemuck::cast_slice(values)
}
