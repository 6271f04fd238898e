//! The first allocations of a process, in a process of its own: on a GPU they are made differently
//! from later ones (`src/driver/cuda/early.rs`).

#![cfg(feature = "emulated")]

mod common;

use std::time::Duration;

use common::Target;
use pinlane::emulated::Emulator;
use pinlane::{Device, DeviceBuf, Result, Stream};

/// Whether the first and the last 64 bytes have this value.
fn holds(stream: &Stream, buffer: &DeviceBuf<u8>, value: u8) -> Result<bool> {
    let ends = [0..64, buffer.len() - 64..buffer.len()];
    for end in ends {
        let mut host = [0u8; 64];
        stream.download_slice(buffer.slice(end)?, &mut host)?;
        if host != [value; 64] {
            return Ok(false);
        }
    }
    Ok(true)
}

#[test]
fn memory_that_is_dropped_in_use_is_there_for_the_next_allocation() -> Result<()> {
    let device = match common::target() {
        Target::Cuda => common::device(),
        Target::Emulated => {
            Device::of_emulator(&Emulator::builder().memory_bytes(64 << 20).build(), 0)?
        }
    };
    let [stream, other] = [device.stream()?, device.stream()?];
    // Several small buffers that stay and are used on both streams.
    let mut small: Vec<DeviceBuf<u8>> =
        (1..=20).map(|n| device.alloc(n * 100)).collect::<Result<_>>()?;
    for (n, buffer) in small.iter_mut().enumerate() {
        stream.fill(&mut *buffer, n as u8)?;
    }
    // More than half of the free memory, so that two of them do not fit.
    let most = device.memory_info()?.free / 10 * 6;
    for round in 0..4 {
        let mut buffer = device.alloc::<u8>(most)?;
        let user = if round % 2 == 0 { &stream } else { &other };
        user.busy(Duration::from_millis(50))?;
        user.fill(&mut buffer, round)?;
        if round > 1 {
            assert!(holds(user, &buffer, round)?, "round {round}");
        }
        drop(buffer); // in the middle of its use in the first two rounds
    }
    // Half of the small buffers, which two streams use, are replaced by new ones.
    for (n, buffer) in small.iter_mut().enumerate() {
        other.fill(buffer.slice_mut(..50)?, n as u8)?;
    }
    small.truncate(10);
    for n in 10..20usize {
        small.push(device.alloc((n + 1) * 100)?);
        stream.fill(small.last_mut().expect("just pushed"), n as u8)?;
    }
    for (n, buffer) in small.iter().enumerate() {
        assert!(holds(&stream, buffer, n as u8)?, "buffer {n}");
    }
    assert!(device.alloc::<u8>(device.memory_info()?.total).is_err(), "there is no such room");
    assert_eq!(device.quarantined_bytes(), 0);
    Ok(())
}
