//! One slice up and down, between every alignment, of every length up to three slots.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::{CudaCode, Device, Result};

use super::support::{
    EXECUTIONS, SLOT, bytes, contents, device, device_of, install_team, shared, tiny, upload,
};

/// Up and down again; nothing beside the range changes.
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
    for execution in EXECUTIONS {
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

#[test]
fn a_team_shares_the_units_of_a_slot() {
    install_team(3);
    for execution in EXECUTIONS {
        let emulator = Emulator::builder().execution(execution).seed(1).build();
        let device = device_of(&emulator, 0, shared());
        for alignment in (0..64).step_by(7) {
            for slots in [2, 3, 7] {
                let length = slots * (64 << 10) + alignment * 97 + 1;
                roundtrip(&device, length, alignment, 63 - alignment).expect("no faults");
            }
        }
        assert_eq!(emulator.findings(), []);
    }
}

/// Its slots are used several times, also by a caller who copies alone.
#[test]
fn a_download_is_longer_than_the_ring() {
    for (execution, options) in EXECUTIONS.into_iter().zip([tiny(), shared()]) {
        let emulator = Emulator::builder().execution(execution).seed(3).build();
        let device = device_of(&emulator, 0, options);
        for bytes in [3 * SLOT + 5, 5 * SLOT, 8 * SLOT - 1, 8 * SLOT, 7 * (64 << 10) + 9] {
            roundtrip(&device, bytes, 1, 2).expect("no faults");
        }
        assert_eq!(emulator.findings(), []);
    }
}

/// Elements of several bytes are copied whole.
#[test]
fn elements_of_any_type() {
    let emulator = Emulator::new();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    let source: Vec<[u64; 3]> = (0..999).map(|n| [n, !n, n << 32]).collect();
    let mut gpu = device.alloc::<[u64; 3]>(999).unwrap();
    stream.upload_slice(&source, &mut gpu).unwrap();
    let mut target = vec![[0; 3]; 999];
    stream.download_slice(&gpu, &mut target).unwrap();
    assert_eq!(target, source);
    let error = stream.upload_slice(&source[1..], &mut gpu).unwrap_err();
    assert_eq!(error.kind(), pinlane::ErrorKind::LengthMismatch);
    let error = stream.download_slice(&gpu, &mut target[1..]).unwrap_err();
    assert_eq!(error.kind(), pinlane::ErrorKind::LengthMismatch);
}

/// As below.
#[test]
fn what_a_failed_upload_has_enqueued_stays_in_use() {
    let emulator = Emulator::builder().execution(Execution::Lazy).seed(6).build();
    let device = device(&emulator);
    let [source, others] = [9, 10].map(|seed| bytes(3 * SLOT, seed));
    let [mut gpu, mut other] = [(); 2].map(|()| upload(&device, &others));
    let streams = [(); 2].map(|()| device.stream().unwrap());
    // The slots exist, and all earlier work is done.
    streams[0].upload_slice(&source, &mut other).unwrap().wait().unwrap();
    for freed in [false, true] {
        emulator.inject(Fault::once(Call::CopyH2D, CudaCode::UNKNOWN).nth(2));
        let error = streams[0].upload_slice(&source, &mut gpu).unwrap_err();
        assert!(error.to_string().contains("cudaErrorUnknown"), "{error}");
        if freed {
            // Freed as soon as the copy allows it.
            gpu = upload(&device, &others);
        } else {
            streams[1].fill(&mut gpu, 7).unwrap();
        }
        // By way of the same slots.
        streams[1].upload_slice(&others, &mut other).unwrap();
        assert_eq!(contents(&device, &other), others);
    }
    drop((gpu, other));
    assert_eq!(emulator.findings(), []);
}

/// A portion is in flight when the next one fails: its slot and its source are in use.
#[test]
fn what_a_failed_download_has_enqueued_stays_in_use() {
    let emulator = Emulator::builder().execution(Execution::Lazy).seed(5).build();
    let device = device(&emulator);
    let source = bytes(3 * SLOT, 9);
    let mut gpu = upload(&device, &source);
    let other = upload(&device, &source);
    let streams = [(); 2].map(|()| device.stream().unwrap());
    let mut target = vec![0; 3 * SLOT];
    // The slots exist, and all earlier work is done.
    streams[0].download_slice(&other, &mut target).unwrap();
    for freed in [false, true] {
        emulator.inject(Fault::once(Call::CopyD2H, CudaCode::UNKNOWN).nth(2));
        let error = streams[0].download_slice(&gpu, &mut target).unwrap_err();
        assert!(error.to_string().contains("cudaErrorUnknown"), "{error}");
        if freed {
            // Freed as soon as the copy allows it.
            gpu = upload(&device, &source);
        } else {
            streams[1].fill(&mut gpu, 7).unwrap();
        }
        // By way of the same slots.
        streams[1].download_slice(&other, &mut target).unwrap();
        assert_eq!(target, source);
    }
    drop((gpu, other));
    assert_eq!(emulator.findings(), []);
}
