//! The shortest program: data goes to the device and back.
//!
//! ```text
//! Emulated device 0: the sum is 524288
//! ```

use pinlane::{Device, PinnedPool};

fn main() -> pinlane::Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
    let stream = device.stream()?;

    let mut host = pool.alloc::<f32>(1 << 20)?; // page-locked: nanoseconds from the pool
    host.write()?.fill(0.5); // waits while the device uses the block
    let mut gpu = device.alloc::<f32>(1 << 20)?;
    stream.upload(&host, &mut gpu)?; // returns at once
    stream.download(&gpu, &mut host)?; // returns at once
    let sum: f32 = host.read()?.iter().sum(); // waits for that copy, not for the stream
    println!("{}: the sum is {sum}", device.name());
    Ok(()) // dropping anything, even in the middle of a copy, is fine
}
