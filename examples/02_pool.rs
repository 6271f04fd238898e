//! A pool of page-locked memory: it stays within its budget, and a block that is dropped in the
//! middle of a copy is reused only when the device is done with it.
//!
//! ```text
//! 1000 blocks were uploaded, never more than 8 MiB page-locked: true
//! the last upload arrived: true
//! 9 MiB are refused: true
//! page-locked after trim: 0 bytes
//! ```

use pinlane::{Device, ErrorKind, PinnedPool, Result};

const BLOCK: usize = 1 << 20; // bytes

fn main() -> Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).max_bytes(8 * BLOCK).build()?;
    let stream = device.stream()?;

    let mut gpu = device.alloc::<u8>(BLOCK)?;
    for number in 0..1000 {
        let mut block = pool.alloc::<u8>(BLOCK)?; // nanoseconds, if one is free
        block.write()?[number] = 7;
        stream.upload(&block, &mut gpu)?; // returns at once
    } // the block goes back, though the device may still read it
    let stats = pool.stats(); // memory by state, and how often a block was free
    let within = stats.hits + stats.misses == 1000 && stats.peak_bytes <= 8 * BLOCK;
    println!("1000 blocks were uploaded, never more than 8 MiB page-locked: {within}");

    let mut back = pool.alloc::<u8>(BLOCK)?;
    stream.download(&gpu, &mut back)?;
    println!("the last upload arrived: {}", back.read()?[999] == 7);

    let error = pool.alloc::<u8>(9 * BLOCK).expect_err("more than the budget");
    // As a text, the error names the sizes and says what to do.
    println!("9 MiB are refused: {}", error.kind() == ErrorKind::BudgetExhausted);

    drop(back);
    pool.trim()?; // gives unused memory back to the system
    println!("page-locked after trim: {} bytes", pool.stats().committed_bytes);
    Ok(())
}
