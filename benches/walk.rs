//! The four operations whose walks `scripts/walk` counts: each runs until it is warm, and then once
//! more inside [`walked`], which valgrind watches.

use pinlane::{Device, PinnedPool, Result};

const LEN: usize = 1 << 16;
const ITEMS: usize = 100;
const WARM: usize = 3;

/// Valgrind counts only calls inside this function.
#[inline(never)]
fn walked<T>(operation: impl FnOnce() -> Result<T>) -> Result<T> {
    operation()
}

fn pool_hit(pool: &PinnedPool) -> Result<()> {
    for _ in 0..WARM {
        drop(pool.alloc::<f32>(LEN)?);
    }
    walked(|| pool.alloc::<f32>(LEN))?;
    Ok(())
}

fn upload_of_a_buffer(device: &Device, pool: &PinnedPool) -> Result<()> {
    let stream = device.stream()?;
    let mut host = pool.alloc::<f32>(LEN)?;
    let mut gpu = device.alloc::<f32>(LEN)?;
    for _ in 0..WARM {
        host.write()?.fill(1.0);
        stream.upload(&host, &mut gpu)?;
    }
    host.write()?.fill(2.0);
    walked(|| stream.upload(&host, &mut gpu))?.wait()
}

fn upload_of_a_slice(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let host = vec![1.0f32; LEN];
    let mut gpu = device.alloc::<f32>(LEN)?;
    for _ in 0..WARM {
        stream.upload_slice(&host, &mut gpu)?.wait()?;
    }
    walked(|| stream.upload_slice(&host, &mut gpu))?.wait()
}

fn upload_of_a_batch(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let host = vec![vec![1.0f32; LEN / ITEMS]; ITEMS];
    let mut gpu = host.iter().map(|h| device.alloc(h.len())).collect::<Result<Vec<_>>>()?;
    for _ in 0..WARM {
        stream.upload_batch(host.iter().zip(&mut gpu))?.wait()?;
    }
    walked(|| stream.upload_batch(host.iter().zip(&mut gpu)))?.wait()
}

fn main() -> Result<()> {
    let device = Device::emulated()?;
    let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
    match std::env::args().nth(1).as_deref() {
        Some("pool-hit") => pool_hit(&pool),
        Some("buffer") => upload_of_a_buffer(&device, &pool),
        Some("slice") => upload_of_a_slice(&device),
        Some("batch") => upload_of_a_batch(&device),
        _ => panic!("usage: walk pool-hit|buffer|slice|batch"),
    }
}
