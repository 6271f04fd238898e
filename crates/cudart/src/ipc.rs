//! Device memory of other processes of this machine. A handle says which process has it, and where
//! in that process's file of device memory (`emulated::SharedMemory`).
//!
//! Events of other processes are stubs: what an event waits for is known only to the machine of the
//! process that has recorded it, and runs when that process makes calls.

use std::ffi::{c_int, c_uint, c_void};
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{Emulator, SharedMemory};

use crate::abi::Out;

/// `cudaIpcMemLazyEnablePeerAccess`, without which nothing is opened.
const LAZILY: c_uint = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"pinlane1");
/// A handle of the process's own (`cudaErrorDeviceUninitialized`).
const OF_THIS_PROCESS: CudaCode = CudaCode(201);

/// `cudaIpcMemHandle_t`
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct MemHandle {
    magic: u64,
    process: u64,
    /// When that process began: numbers of processes come back.
    began: u64,
    device: u64,
    file: u64,
    offset: u64,
    bytes: u64,
    reserved: u64,
}

/// Memory that this process has opened.
struct Opened {
    handle: MemHandle,
    ptr: usize,
    times: usize,
}

fn opened() -> MutexGuard<'static, Vec<Opened>> {
    static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a process began, in ticks; `None` if there is none.
fn began(process: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may have spaces. The time is the 20th word behind it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn handle_of(gpu: &Emulator, ptr: *const c_void) -> DriverResult<MemHandle> {
    let SharedMemory { device, file, offset, bytes } = gpu.share(ptr)?;
    let process = u64::from(std::process::id());
    Ok(MemHandle {
        magic: MAGIC,
        process,
        began: began(process).ok_or(CudaCode::NOT_SUPPORTED)?,
        device: device as u64,
        file: file as u64,
        offset,
        bytes: bytes as u64,
        reserved: 0,
    })
}

fn open(gpu: &Emulator, handle: MemHandle) -> DriverResult<*mut c_void> {
    let invalid = CudaCode::INVALID_VALUE;
    if handle.magic != MAGIC || began(handle.process) != Some(handle.began) {
        return Err(invalid);
    }
    if handle.process == u64::from(std::process::id()) {
        return Err(OF_THIS_PROCESS);
    }
    let device = c_int::try_from(handle.device).map_err(|_| invalid)?;
    gpu.check_device(device)?;
    let path = format!("/proc/{}/fd/{}", handle.process, handle.file);
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).map_err(|error| {
        eprintln!("pinlane-cudart: device memory of another process cannot be opened: {error}");
        invalid
    })?;
    let bytes = usize::try_from(handle.bytes).map_err(|_| invalid)?;
    let memory = SharedMemory { device, file: file.as_raw_fd(), offset: handle.offset, bytes };
    // SAFETY: the handle says so, and the process that has made it is alive; CUDA demands of its
    // callers that a handle is one that a call has given.
    unsafe { gpu.adopt(memory) }
}

cuda! {
    fn [cudaIpcGetMemHandle, cuIpcGetMemHandle](out: Out<MemHandle>, ptr: *const c_void) |gpu| {
        out.check()?;
        out.put(handle_of(gpu, ptr)?)
    }

    fn [cudaIpcOpenMemHandle, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2](
        out: Out<*mut c_void>, handle: MemHandle, flags: c_uint,
    ) |gpu| {
        out.check()?;
        if flags != LAZILY {
            return Err(CudaCode::INVALID_VALUE);
        }
        let mut opened = opened();
        if let Some(known) = opened.iter_mut().find(|known| known.handle == handle) {
            known.times += 1;
            return out.put(std::ptr::without_provenance_mut(known.ptr));
        }
        let ptr = open(gpu, handle)?;
        opened.push(Opened { handle, ptr: ptr.addr(), times: 1 });
        out.put(ptr)
    }

    fn [cudaIpcCloseMemHandle, cuIpcCloseMemHandle](ptr: *mut c_void) |gpu| {
        let mut opened = opened();
        let at = opened.iter().position(|known| known.ptr == ptr.addr());
        let at = at.ok_or(CudaCode::INVALID_VALUE)?;
        opened[at].times -= 1;
        if opened[at].times == 0 {
            opened.swap_remove(at);
            drop(opened);
            gpu.give_up(ptr)?;
        }
        Ok(())
    }
}
