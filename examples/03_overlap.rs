//! Uploads, kernels and downloads at the same time, each on its own stream.
//!
//! ```text
//!   up       | chunk 0 | chunk 1 | chunk 2 | ...
//!   kernels            | chunk 0 | chunk 1 | chunk 2 | ...
//!   down                         | chunk 0 | chunk 1 | ...
//! ```
//!
//! Nothing here waits for a stream. A kernel runs after the upload because both name the chunk's
//! buffer, and a buffer is overwritten only when its last chunk has left it.
//!
//! ```text
//! first:         32 of 32 chunks are right, ... ms
//! one stream:    32 of 32 chunks are right, ... ms
//! three streams: 32 of 32 chunks are right, ... ms
//! ```

use std::time::Instant;

use pinlane::{Device, PinnedPool, Result};

const CHUNK: usize = 1 << 18; // elements
const CHUNKS: usize = 32;
const HALF: usize = CHUNK / 2;

fn main() -> Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).build()?;
    let mut source = pool.alloc::<u32>(CHUNKS * CHUNK)?;
    source.write()?.fill(7);
    let mut target = pool.alloc_zeroed::<u32>(CHUNKS * CHUNK)?;
    // One buffer for each stage, and a spare one.
    let mut ring = (0..4).map(|_| device.alloc(CHUNK)).collect::<Result<Vec<_>>>()?;

    let [a, b, c] = [device.stream()?, device.stream()?, device.stream()?];
    let (one, three) = ([&a, &a, &a], [&a, &b, &c]);
    for (name, streams) in [("first:", one), ("one stream:", one), ("three streams:", three)] {
        let [up, kernels, down] = streams;
        target.write()?.fill(0);
        let start = Instant::now();
        for index in 0..CHUNKS {
            let (range, gpu) = (index * CHUNK..(index + 1) * CHUNK, &mut ring[index % 4]);
            up.upload(source.slice(range.clone())?, &mut *gpu)?;
            kernels.fill(gpu.slice_mut(..HALF)?, index as u32)?; // your kernel here
            down.download(&*gpu, target.slice_mut(range)?)?;
        } // all calls return at once
        down.synchronize()?;
        let ms = start.elapsed().as_secs_f64() * 1e3;

        let chunks = target.read()?.chunks(CHUNK).enumerate();
        let is_right = |(index, chunk): &(usize, &[u32])| {
            chunk[..HALF] == [*index as u32; HALF] && chunk[HALF..] == [7; HALF]
        };
        let right = chunks.filter(is_right).count();
        println!("{name:<14} {right} of {CHUNKS} chunks are right, {ms:.3} ms");
    }
    Ok(())
}
