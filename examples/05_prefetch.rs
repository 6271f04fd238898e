//! Batches ahead of their use: other threads decode them and copy them to the device, while yours
//! works on those that have arrived.
//!
//! ```text
//! 32 of 32 batches are right
//! 8401408 bytes were copied ahead
//! ```

use std::error::Error;

use pinlane::prefetch::{FillBlock, HostBatch, Prefetch, Slices};
use pinlane::{Device, PinnedPool};

const PIXELS: usize = 1 << 16;

/// What a data loader yields: labels in pageable memory, and images that a thread of pinlane
/// decodes directly into page-locked memory.
struct Samples {
    number: u32,
    labels: Vec<u32>,
}

impl HostBatch for Samples {
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        slices.slice("labels", &self.labels);
        slices.reserve::<u32>("images", PIXELS);
    }

    fn fill(&mut self, block: &mut FillBlock<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let images = block.slice_mut::<u32>("images")?;
        (self.number..).zip(images).for_each(|(value, pixel)| *pixel = value);
        Ok(())
    }
}

fn main() -> pinlane::Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).build()?;
    let stream = device.stream()?;

    let loader = (0..32).map(|number| Samples { number, labels: vec![number; 100] });
    let mut batches = Prefetch::new(loader, &pool, &stream).depth(4).workers(2).start()?;
    let (mut images, mut labels) = (pool.alloc::<u32>(PIXELS)?, pool.alloc::<u32>(100)?);
    let mut right = 0;
    for batch in &mut batches {
        let batch = batch?; // an error of the loader, or of a copy
        // Your kernels here, on `stream`. This example checks the data instead.
        stream.download(batch.slice::<u32>("images")?, &mut images)?;
        stream.download(batch.slice::<u32>("labels")?, &mut labels)?;
        let number = batch.index() as u32;
        let last = images.read()?[PIXELS - 1];
        right += u32::from(labels.read()?[99] == number && last == number + PIXELS as u32 - 1);
    }
    println!("{right} of 32 batches are right");
    println!("{} bytes were copied ahead", batches.progress().bytes());
    Ok(())
}
