//! A race, found without a GPU: two streams share memory by its address, and a wait is missing. The
//! crate orders work on its own buffers. Code that borrows an address must order its work itself.
//!
//! ```text
//! without the wait
//! pinlane: run 1 failed (eager, seed 1)
//!   Race: read after write, device 0, 0xdea0000000001000..+1024 (seed 1)
//!     second: CopyD2H  stream D #1
//!     first:  Fill     stream C #4
//!     ...
//!     missing:    C#4 -> D#1; an event, recorded on stream C behind C#4, and a wait by ...
//!   replay: PINLANE_REPLAY=1:eager
//! without the wait, by its bytes
//! pinlane: run 2 failed (lazy, seed 1)
//!   the program: ...wrong bytes...
//!   replay: PINLANE_REPLAY=1:C#4
//! with the wait
//! 100 runs went well
//! ```
//!
//! With that text in the environment, `PINLANE_REPLAY=1:C#4`, the program makes only that run.

use pinlane::emulated::{Emulator, Exploration, explore};
use pinlane::{Device, PinnedPool, Result};

/// One stream fills memory, and another downloads it.
fn produce_and_consume(machine: &Emulator, waits: bool) -> Result<()> {
    let device = Device::of_emulator(machine, 0)?;
    let (producer, consumer) = (device.stream()?, device.stream()?);
    let pool = PinnedPool::builder(&device).build()?;
    let (mut memory, mut host) = (device.alloc::<u32>(256)?, pool.alloc::<u32>(256)?);
    producer.fill(&mut memory, 0)?.wait()?;
    // SAFETY: the memory outlives `theirs`. Where `waits` is false, the order is the bug.
    let theirs = unsafe { device.borrow_memory::<u32>(memory.as_device_ptr(), 256)? };
    let filled = producer.fill(&mut memory, 7)?;
    if waits {
        consumer.wait_for(&filled)?;
    }
    consumer.download(&theirs, &mut host)?;
    assert!(host.read()?.iter().all(|&value| value == 7), "wrong bytes");
    Ok(())
}

fn main() {
    // One run finds the missing wait from the calls alone, although its bytes happen to be right.
    tell("without the wait", Exploration::new(), false);
    // Without the search for races: schedules are tried until one gives wrong bytes, and shortened.
    let blind = Exploration::new().machine(Emulator::builder().races(false));
    tell("without the wait, by its bytes", blind, false);
    tell("with the wait", Exploration::new(), true);
}

fn tell(what: &str, runs: Exploration, waits: bool) {
    println!("{what}");
    match explore(runs.quiet(true), |machine| produce_and_consume(machine, waits)) {
        Ok(explored) => println!("{} runs went well", explored.runs),
        Err(failed) => println!("{failed}"),
    }
}
