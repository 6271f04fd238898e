//! Device memory of other processes of this machine. A handle describes it.
//!
//! Events are not shared: what an event waits for is known only to the machine of the process that
//! has recorded it, and runs when that process makes calls.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::AtomicBool;

use pinlane_driver::CudaCode;
use pinlane_emulator::SharedMemory;

use crate::abi::{Handle, Out};
use crate::stubs;

/// `cudaIpcMemLazyEnablePeerAccess`, without which nothing is opened.
const LAZILY: c_uint = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"pinlane1");

/// `cudaIpcMemHandle_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct MemHandle {
    magic: u64,
    memory: SharedMemory,
    reserved: [u64; 2],
}

const _: () = assert!(size_of::<MemHandle>() == 64);

cuda! {
    fn [cudaIpcGetMemHandle, cuIpcGetMemHandle](out: Out<MemHandle>, ptr: *const c_void) |gpu| {
        out.check()?;
        out.put(MemHandle { magic: MAGIC, memory: gpu.share(ptr)?, reserved: [0; 2] })
    }

    fn [cudaIpcOpenMemHandle, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2](
        out: Out<*mut c_void>, handle: MemHandle, flags: c_uint,
    ) |gpu| {
        out.check()?;
        if flags != LAZILY || handle.magic != MAGIC {
            return Err(CudaCode::INVALID_VALUE);
        }
        // SAFETY: CUDA demands of its callers that a handle is one that a call has given.
        out.put(unsafe { gpu.adopt(handle.memory) }?)
    }

    fn [cudaIpcGetEventHandle, cuIpcGetEventHandle](_out: *mut c_void, event: Handle) |gpu| {
        if !gpu.event_is_for_others(gpu.event(event)?) {
            return Err(CudaCode::INVALID_RESOURCE_HANDLE);
        }
        static SAID: AtomicBool = AtomicBool::new(false);
        stubs::remark_once(&SAID, "cudaIpcGetEventHandle");
        Err(CudaCode::NOT_SUPPORTED)
    }

    fn [cudaIpcCloseMemHandle, cuIpcCloseMemHandle](ptr: *mut c_void) |gpu| {
        gpu.give_up(ptr)
    }
}
