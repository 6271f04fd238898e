//! Opening devices, and the errors if there is none.

use crate::common::{Target, target};
use pinlane::{Device, ErrorKind};

#[test]
fn opening_a_gpu_that_is_not_there_says_what_is_missing() {
    let beyond = Device::available().len() as i32;
    let error = Device::open(beyond).expect_err("there is no such device");
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    let message = error.to_string();
    let expected = if beyond > 0 {
        "there is no device"
    } else if cfg!(pinlane_cuda) {
        "driver"
    } else if matches!(option_env!("PINLANE_CUDA"), Some("off" | "0")) {
        "PINLANE_CUDA was `off` when it was compiled"
    } else if cfg!(not(feature = "cuda")) {
        "the crate's feature `cuda` was off"
    } else {
        "CUDA does not exist for the architecture"
    };
    assert!(message.contains(expected), "{message}");
    assert!(Device::open(-1).is_err());
}

#[test]
fn any_device_is_a_gpu_where_there_is_one() {
    let device = Device::open_or_emulated().expect("one of them opens");
    let why = device.instead_of_gpu().map(|error| error.kind());
    assert_eq!(why, (target() != Target::Cuda).then_some(ErrorKind::NoDevice));
    assert_eq!(target() == Target::Cuda, !device.name().contains("Emulated"));
    let memory = device.memory_info().expect("it is a working device");
    assert!(0 < memory.free && memory.free <= memory.total);
}

#[test]
fn two_handles_of_one_device_are_equal_and_two_machines_are_not() {
    let emulated = || Device::emulated().expect("the emulated device always opens");
    let one = emulated();
    assert_eq!(one, one.clone());
    assert_ne!(one, emulated());
}
