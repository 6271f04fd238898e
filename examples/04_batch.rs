//! A thousand tensors by one call, and back by another one that reports each as it arrives.
//!
//! ```text
//! 1000 tensors, 2002000 bytes
//! 1000 arrived as they left
//! the last one again, reversed: true
//! ```

use pinlane::{Device, PinnedPool, Result};

fn main() -> Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).build()?;
    let stream = device.stream()?;

    // Pageable memory, of any sizes. The batch picks the fastest way for them.
    let weights: Vec<Vec<f32>> = (0..1000).map(|i| vec![i as f32; i + 1]).collect();
    let mut gpu = weights.iter().map(|w| device.alloc(w.len())).collect::<Result<Vec<_>>>()?;
    stream.upload_batch(weights.iter().zip(&mut gpu))?; // `weights` may be changed now
    let bytes: usize = weights.iter().map(|w| size_of_val(&w[..])).sum();
    println!("{} tensors, {bytes} bytes", weights.len());

    let mut back: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
    let mut right = 0;
    stream.download_batch_each(gpu.iter().zip(&mut back), |number, bytes| {
        // The others are still in flight.
        right += usize::from(bytes == bytemuck::cast_slice::<f32, u8>(&weights[number]));
    })?;
    println!("{right} arrived as they left");

    // Page-locked memory is copied directly, and the calls return at once.
    let mut last = pool.alloc::<f32>(1000)?;
    (0..1000).rev().zip(last.write()?).for_each(|(i, to)| *to = i as f32);
    stream.upload_batch([(&last, &mut gpu[999])])?;
    stream.download_batch([(&gpu[999], &mut last)])?;
    println!("the last one again, reversed: {}", last.read()?[..2] == [999.0, 998.0]);
    Ok(())
}
