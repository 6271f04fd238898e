//! Two devices, and whether they reach each other's memory.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Fault};
use pinlane::{CudaCode, Device, batch::DeviceCopy};

#[test]
fn two_devices_are_introduced_once() {
    let emulator = Emulator::builder().devices(2).build();
    let [a, b] = [0, 1].map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap());
    let stream = a.stream().unwrap();
    let (mut near, mut far) = (a.alloc::<u8>(64).unwrap(), b.alloc::<u8>(64).unwrap());
    stream.fill(&mut near, 7).unwrap();
    for _ in 0..3 {
        stream.copy(&near, &mut far).unwrap();
        stream.copy_batch(&mut [DeviceCopy::new(&near, &mut far)]).unwrap();
    }
    let calls = [Call::PeerEnable, Call::PoolAccess].map(|call| emulator.calls(call));
    assert_eq!(calls, [2, 2], "each way");
    let mut out = [0; 64];
    b.stream().unwrap().download_slice(&far, &mut out).unwrap();
    assert_eq!(out, [7; 64]);
    assert_eq!(emulator.findings(), []);
}

#[test]
fn devices_that_cannot_be_introduced_copy_all_the_same() {
    for call in [Call::PeerQuery, Call::PeerEnable, Call::PoolAccess] {
        let emulator = Emulator::builder().devices(2).build();
        let [a, b] = [0, 1].map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap());
        emulator.inject(Fault::forever(call, CudaCode::NOT_SUPPORTED));
        let stream = a.stream().unwrap();
        let (mut near, mut far) = (a.alloc::<u8>(64).unwrap(), b.alloc::<u8>(64).unwrap());
        stream.fill(&mut near, 9).unwrap();
        stream.copy(&near, &mut far).unwrap();
        let mut out = [0; 64];
        b.stream().unwrap().download_slice(&far, &mut out).unwrap();
        assert_eq!(out, [9; 64]);
    }
}
