//! `warm_up` makes what the first large copy needs.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Fault};
use pinlane::staging::Staging;
use pinlane::{CudaCode, Device, ErrorKind};

use crate::common::support::eventually;

/// The first large copy finds its slots, and page-locks nothing.
#[test]
fn a_device_can_be_warmed_up_before_its_first_copy() {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    device
        .set_staging(Staging::new().slot_bytes(4096).ring_bytes(6 * 4096).first_bytes(1024))
        .unwrap();
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(1 << 20).unwrap();
    device.warm_up();
    device.warm_up(); // once more does no harm
    eventually("the ring is page-locked", || emulator.usage().host_bytes >= 6 * 4096);
    let page_locked = || [Call::HostAlloc, Call::HostRegister].map(|call| emulator.calls(call));
    let before = page_locked();
    stream.upload_slice(&vec![7u8; 1 << 20], &mut gpu).unwrap().wait().unwrap();
    assert_eq!(page_locked(), before);
    let mut back = vec![0; 1 << 20];
    stream.download_slice(&gpu, &mut back).unwrap();
    assert!(back.iter().all(|&byte| byte == 7));
    assert_eq!(emulator.findings(), []);
}

/// If the warm-up fails, the first copy fails with the same reason.
#[test]
fn a_warm_up_that_fails_leaves_the_reason_to_the_first_copy() {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(1 << 20).unwrap();
    for call in [Call::HostAlloc, Call::HostRegister] {
        emulator.inject(Fault::forever(call, CudaCode::MEMORY_ALLOCATION));
    }
    device.warm_up();
    eventually("it was tried", || emulator.calls(Call::HostRegister) > 0);
    let error = stream.upload_slice(&vec![7u8; 1 << 20], &mut gpu).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfHostMemory);
    emulator.clear_faults();
    stream.upload_slice(&vec![7u8; 1 << 20], &mut gpu).unwrap().wait().unwrap();
}

/// One call page-locks the first slot, so that a copy can begin, and one all others.
#[test]
fn the_ring_is_page_locked_in_two_pieces() {
    let bytes = 32 << 20; // the ring, by default
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(bytes).unwrap();
    device.warm_up();
    eventually("the ring is page-locked", || emulator.usage().host_bytes >= bytes);
    stream.upload_slice(&vec![7u8; bytes], &mut gpu).unwrap().wait().unwrap();
    let page_locked = [Call::HostRegister, Call::HostAlloc].map(|call| emulator.calls(call));
    assert_eq!((page_locked, emulator.usage().host_bytes), ([2, 0], bytes));
}

/// A warm-up does not make what copies have made already: the ring does not exceed its limit.
#[test]
fn a_warm_up_behind_a_copy_page_locks_the_rest_of_the_ring() {
    let bytes = 32 << 20;
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(bytes).unwrap();
    let (first, data) = (1 << 20, vec![7u8; bytes]);
    stream.upload_slice(&data[..first], gpu.slice_mut(..first).unwrap()).unwrap().wait().unwrap();
    assert!(emulator.usage().host_bytes < bytes);
    device.warm_up();
    eventually("the ring is page-locked", || emulator.usage().host_bytes >= bytes);
    stream.upload_slice(&data, &mut gpu).unwrap().wait().unwrap();
    assert_eq!(emulator.usage().host_bytes, bytes);
}

/// If the system does not page-lock that much in one call, slots are made one by one, as far as it
/// allows.
#[test]
fn a_ring_that_is_refused_in_one_piece_is_made_slot_by_slot() {
    let bytes = 32 << 20;
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(bytes).unwrap();
    emulator.limit_page_locked(9 << 20);
    device.warm_up();
    stream.upload_slice(&vec![7u8; bytes], &mut gpu).unwrap().wait().unwrap();
    // They are made while the device copies from the first one.
    eventually("two slots of 4 MiB", || emulator.usage().host_bytes == 8 << 20);
    let mut back = vec![0; bytes];
    stream.download_slice(&gpu, &mut back).unwrap();
    assert!(back.iter().all(|&byte| byte == 7));
    assert_eq!(emulator.findings(), []);
}
