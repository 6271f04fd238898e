//! Ordinary memory is uploaded behind the host function that fills it.
//!
//! A constructor of cudax::async_buffer let a host function fill a temporary, and enqueued the
//! upload behind it. The bytes arrived that were there before.
//! Report: https://github.com/NVIDIA/cccl/issues/3814
//! Wrong: the order of the stream does not hold for reading memory that is not page-locked.
//! Finds: Race: CopyH2D on stream A after host write on stream A
//! Needs: host accesses

use std::ffi::c_void;
use std::time::Duration;

use pinlane::driver::DriverResult;
use pinlane::emulated::Emulator;

use crate::gpu::{BYTES, Gpu};

struct Filling {
    machine: Emulator,
    to: *mut u8,
}

extern "C" fn fill(data: *mut c_void) {
    // SAFETY: it is made below, and the program waits for the stream before it goes.
    let Filling { machine, to } = unsafe { &*data.cast::<Filling>() };
    machine.host_writes(*to, BYTES);
    // SAFETY: the same; the buffer is as long as that.
    unsafe { to.write_bytes(1, BYTES) };
}

/// What the stream is busy with, so that the call of the copy comes before the host function does.
extern "C" fn work(_: *mut c_void) {
    std::thread::sleep(Duration::from_millis(20));
}

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (buffer, host, stream) = (gpu.malloc()?, gpu.pinned()?, gpu.stream()?);
    let mut ordinary = vec![0u8; BYTES];
    let temporary = if fixed { gpu.pinned()? } else { ordinary.as_mut_ptr() };
    let filling = Filling { machine: gpu.emulator().clone(), to: temporary };

    gpu.launch_host(stream, work, std::ptr::null_mut())?;
    gpu.launch_host(stream, fill, (&raw const filling).cast_mut().cast())?;
    gpu.copy(stream, buffer, temporary)?;
    gpu.copy(stream, host, buffer)?;
    gpu.synchronize(stream)?;
    Ok(gpu.holds(host, 1))
}
