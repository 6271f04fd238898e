//! Copies of ordinary memory, on the emulated device, against a plain model: what `memcpy` would do.

#![cfg(feature = "emulated")]

use pinlane::driver::emulated::{Emulator, Execution};
use pinlane::{Device, Result, Staging};

/// Slots so small that every boundary is near.
const SLOT: usize = 4096;

fn device(emulator: &Emulator) -> Device {
    let device = Device::of_emulator(emulator, 0).expect("an emulated device");
    let staging = Staging::new().slot_bytes(SLOT).ring_bytes(3 * SLOT).first_bytes(1024);
    device.set_staging(staging.unit_bytes(1024).direct_bytes(100)).expect("nothing copied yet");
    device
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Up and down again, between every alignment.
fn roundtrip(device: &Device, length: usize, at_host: usize, at_device: usize) -> Result<()> {
    let stream = device.stream()?;
    let source = bytes(at_host + length, 1 + length as u64);
    let mut gpu = device.alloc::<u8>(at_device + length + 64)?;
    stream.fill(&mut gpu, 0xee)?;
    stream.upload_slice(&source[at_host..], gpu.slice_mut(at_device..at_device + length)?)?;
    let mut whole = vec![0; gpu.len()];
    stream.download_slice(&gpu, &mut whole)?;
    assert_eq!(&whole[at_device..at_device + length], &source[at_host..], "{length} bytes");
    let outside = whole[..at_device].iter().chain(&whole[at_device + length..]);
    assert!(outside.copied().all(|byte| byte == 0xee), "{length} bytes: wrote outside");

    let mut target = vec![0x11; at_host + length + 64];
    let part = gpu.slice(at_device..at_device + length)?;
    stream.download_slice(part, &mut target[at_host..at_host + length])?;
    assert_eq!(&target[at_host..at_host + length], &source[at_host..]);
    let outside = target[..at_host].iter().chain(&target[at_host + length..]);
    assert!(outside.copied().all(|byte| byte == 0x11), "{length} bytes: wrote outside");
    Ok(())
}

#[test]
fn every_alignment_and_length_up_to_three_slots() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let emulator = Emulator::builder().execution(execution).seed(7).build();
        let device = device(&emulator);
        for alignment in 0..64 {
            for length in [0, 1, 99, 100, 101, 1023, 1024, 1025, 4095, 4096, 4097, 3 * SLOT + 1] {
                roundtrip(&device, length, alignment, (alignment * 29) % 64).expect("no faults");
            }
        }
        for length in (0..=3 * SLOT + 1).step_by(61) {
            roundtrip(&device, length, length % 64, length % 63).expect("no faults");
        }
        assert_eq!(emulator.findings(), []);
    }
}
