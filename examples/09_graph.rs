//! A step that is captured once and launched by one call, as often as needed. The graph keeps its
//! buffers alive, and every launch is ordered with all other work on them.
//!
//! ```text
//! one launch moves 8000 bytes
//! five launches: [0.0, 1.0, 2.0, 3.0, 4.0]
//! two inputs take turns: [10.0, 11.0, 12.0]
//! dropped in the middle of a launch
//! ```

use pinlane::{Device, PinnedPool, Result};

fn main() -> Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).build()?;
    let stream = device.stream()?;

    // ANCHOR: graph
    let mut capture = device.capture()?;
    let input = capture.own(pool.alloc::<f32>(1000)?);
    let gpu = capture.own(device.alloc::<f32>(1000)?);
    let output = capture.own(pool.alloc::<f32>(1000)?);
    capture.upload(input, gpu)?; // recorded, not executed
    capture.download(gpu, output)?;
    let mut step = capture.finish()?;
    // ANCHOR_END: graph
    println!("one launch moves {} bytes", step.bytes());

    let mut results = Vec::new();
    for round in 0..5 {
        // ANCHOR: launch
        step.slice_mut(input)?.into_write()?.fill(round as f32); // waits for the last launch
        step.launch(&stream)?; // returns at once
        results.push(step.get(output)?.read()?[999]); // waits for this launch
        // ANCHOR_END: launch
    }
    println!("five launches: {results:?}");

    // The program fills one input while the device may still read the other.
    let mut spare = pool.alloc::<f32>(1000)?;
    results.clear();
    for round in 10..13 {
        spare.write()?.fill(round as f32);
        spare = step.rebind(input, spare)?;
        step.launch(&stream)?;
        results.push(step.get(output)?.read()?[0]);
    }
    println!("two inputs take turns: {results:?}");

    step.launch(&stream)?;
    drop((step, spare)); // their memory is reused when the device is done with it
    println!("dropped in the middle of a launch");
    stream.synchronize()
}
