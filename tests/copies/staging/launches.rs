//! In how many portions many short slices are moved: each is a launch of the kernel, which takes
//! microseconds to begin and to end.

use pinlane::Result;
use pinlane::driver::Call::MoveItems;
use pinlane::emulated::Emulator;
use pinlane::staging::Staging;

use super::support::{bytes, device_of, views};

#[test]
fn many_short_slices_take_few_launches() -> Result<()> {
    let emulator = Emulator::new();
    let device = device_of(&emulator, 0, Staging::new());
    let stream = device.stream()?;
    // Each has an odd address, so that no two follow each other in a slot.
    const GAP: usize = 17;
    for (slices, length, [up, down]) in [
        (100, 256, [1, 1]),
        (1000, 256, [1, 1]),
        (10_000, 64, [2, 2]),
        (10_000, 256, [3, 2]),
        (1000, 4000, [4, 2]),
    ] {
        let mut gpu = device.alloc::<u8>(slices * (length + GAP))?;
        let places: Vec<_> = (0..slices).map(|n| n * (length + GAP)).collect();
        let mut host = bytes(slices * length, 1);
        let before = emulator.calls(MoveItems);
        let to = views(&mut gpu, places.iter().map(|&at| at..at + length));
        stream.upload_batch(host.chunks(length).zip(to))?.wait()?;
        let between = emulator.calls(MoveItems);
        let from = places.iter().map(|&at| gpu.slice(at..at + length).expect("in the buffer"));
        host.fill(0);
        stream.download_batch(from.zip(host.chunks_mut(length)))?.wait()?;
        let made = [between - before, emulator.calls(MoveItems) - between];
        assert_eq!(made, [up, down], "{slices} slices of {length} bytes");
        assert_eq!(host, bytes(slices * length, 1));
    }
    assert_eq!(emulator.findings(), []);
    Ok(())
}
