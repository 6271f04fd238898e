//! Registered memory.

use std::ptr::null_mut;

use super::*;
use crate::capi::status::{
    PINLANE_STATUS_BUSY, PINLANE_STATUS_CUDA, PINLANE_STATUS_INVALID_HANDLE, PINLANE_STATUS_OK,
    PINLANE_STATUS_UNSUPPORTED, pinlane_last_error,
};
use crate::device::Device;
use crate::driver::Call;
use crate::driver::emulated::{Emulator, Execution, Fault, FindingKind};
use crate::error::CudaCode;

/// A lazy machine, one of its devices, and a handle of the device, which leaks.
fn rig() -> (Emulator, Device, *mut pinlane_device) {
    let machine = Emulator::builder().execution(Execution::Lazy).build();
    let device = Device::of_emulator(&machine, 0).expect("no faults");
    let handle = handle::create(device.clone());
    (machine, device, handle)
}

fn lend(device: *const pinlane_device, memory: &mut [u8]) -> *mut pinlane_buffer {
    let mut buffer = null_mut();
    // SAFETY: a variable; the tests free the buffer before they touch or drop the memory.
    let status = unsafe {
        pinlane_buffer_register(device, memory.as_mut_ptr().cast(), memory.len(), &mut buffer)
    };
    assert_eq!(status, PINLANE_STATUS_OK);
    buffer
}

#[test]
fn memory_that_another_call_uses_is_not_given_back() {
    let (machine, _device, handle) = rig();
    let mut memory = vec![1; 100];
    let buffer = lend(handle, &mut memory);
    let other_call = handle::get(buffer).expect("a live handle");
    assert_eq!(pinlane_buffer_free(buffer), PINLANE_STATUS_BUSY);
    drop(other_call);
    assert_eq!(pinlane_buffer_free(buffer), PINLANE_STATUS_OK);
    assert_eq!(pinlane_buffer_free(buffer), PINLANE_STATUS_INVALID_HANDLE);
    assert_eq!((machine.usage().host_blocks, machine.findings()), (0, vec![]));
}

#[test]
fn a_host_function_cannot_give_memory_back() {
    let (machine, device, handle) = rig();
    let stream = device.stream().expect("no faults");
    let mut memory = vec![1; 100];
    let buffer = lend(handle, &mut memory);
    let (sender, receiver) = std::sync::mpsc::channel();
    let address = buffer.addr();
    let in_host_function = move || {
        let buffer = std::ptr::without_provenance_mut(address);
        sender.send(pinlane_buffer_free(buffer)).expect("the test waits");
    };
    stream.launch_host(in_host_function).and_then(|ticket| ticket.wait()).expect("no faults");
    assert_eq!(receiver.recv(), Ok(PINLANE_STATUS_UNSUPPORTED));
    assert_eq!(pinlane_buffer_free(buffer), PINLANE_STATUS_OK);
    assert_eq!((machine.usage().host_blocks, machine.findings()), (0, vec![]));
}

/// Only a free that succeeds gives the memory back. One that fails can be called again.
#[test]
fn memory_that_is_not_unregistered_stays_lent() {
    let (machine, device, handle) = rig();
    let stream = device.stream().expect("no faults");
    let mut gpu = device.alloc::<u8>(100).expect("no faults");
    let mut memory = vec![1; 100];
    let buffer = lend(handle, &mut memory);
    stream.fill(&mut gpu, 9).expect("no faults");
    let mut held = handle::get_mut(buffer).expect("a live handle");
    stream.download(&gpu, held.tracked()).expect("no faults");
    drop(held);
    for calls in [
        // First nothing shows whether the device is done. Then unregistering fails.
        &[Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize, Call::StreamQuery][..],
        &[Call::HostUnregister],
    ] {
        calls.iter().for_each(|&call| machine.inject(Fault::forever(call, CudaCode(999))));
        assert_eq!(pinlane_buffer_free(buffer), PINLANE_STATUS_CUDA);
        assert_eq!(machine.usage().host_blocks, 1);
        machine.clear_faults();
    }
    assert_eq!(pinlane_buffer_free(buffer), PINLANE_STATUS_OK);
    assert_eq!((machine.usage().host_blocks, machine.findings()), (0, vec![]));
    assert_eq!(memory, [9; 100]);
    let again = lend(handle, &mut memory);
    assert_eq!(pinlane_buffer_free(again), PINLANE_STATUS_OK);
}

#[test]
fn a_message_names_the_device_once() {
    let (machine, _device, handle) = rig();
    let mut memory = [1; 100];
    for code in [CudaCode::UNKNOWN, CudaCode::MEMORY_ALLOCATION, CudaCode::INVALID_VALUE] {
        machine.inject(Fault::once(Call::HostRegister, code));
        let mut buffer = null_mut();
        // SAFETY: a variable, and memory of this test.
        let status = unsafe {
            pinlane_buffer_register(handle, memory.as_mut_ptr().cast(), 100, &mut buffer)
        };
        assert_ne!(status, PINLANE_STATUS_OK);
        // SAFETY: a string that is valid until this thread's next call.
        let text =
            unsafe { std::ffi::CStr::from_ptr(pinlane_last_error()) }.to_str().expect("UTF-8");
        assert_eq!(text.matches("on device").count(), 1, "{text}");
        assert!(text.contains("100 bytes"), "{text}");
    }
}

/// A host function that the program launched itself: only the runtime knows of it.
#[test]
fn a_host_function_of_the_callers_own_cannot_give_memory_back() {
    struct Inside {
        buffer: usize,
        status: std::sync::mpsc::Sender<i32>,
    }
    unsafe extern "C" fn free(inside: *mut c_void) {
        // SAFETY: the test leaked it for this call.
        let inside = unsafe { Box::from_raw(inside.cast::<Inside>()) };
        let buffer = std::ptr::without_provenance_mut(inside.buffer);
        inside.status.send(pinlane_buffer_free(buffer)).expect("the test waits");
    }
    let (machine, device, handle) = rig();
    let (stream, other) = (device.stream().expect("fine"), device.stream().expect("fine"));
    let mut gpu = device.alloc::<u8>(100).expect("no faults");
    for used in [false, true] {
        let mut memory = vec![1; 100];
        let buffer = lend(handle, &mut memory);
        if used {
            let mut held = handle::get_mut(buffer).expect("a live handle");
            stream.fill(&mut gpu, 9).expect("no faults");
            stream.download(&gpu, held.tracked()).expect("no faults");
        }
        let (status, receiver) = std::sync::mpsc::channel();
        let inside = Box::into_raw(Box::new(Inside { buffer: buffer.addr(), status }));
        let driver = device.context().driver("test").expect("not in a host function");
        // SAFETY: the stream is live; the function is called once, with the object that was leaked
        // for it.
        unsafe { driver.launch_host(other.timeline.raw(), free, inside.cast()) }.expect("fine");
        other.synchronize().expect("no faults");
        assert_eq!(receiver.recv(), Ok(PINLANE_STATUS_UNSUPPORTED));
        assert_eq!(pinlane_buffer_free(buffer), PINLANE_STATUS_OK);
        assert_eq!(machine.usage().host_blocks, 0);
    }
    let kinds = machine.findings().into_iter().map(|finding| finding.kind);
    assert!(kinds.into_iter().all(|kind| kind == FindingKind::CallInHostFunction));
}
