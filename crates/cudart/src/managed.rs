//! Managed memory. It is the host's here, so that there is nothing to move; where programs last
//! wanted it is written down for those who ask.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{Emulator, Side};

use crate::abi::Out;
use crate::environment;
use crate::prefetched::Prefetched;

/// `cudaMemLocationTypeDevice`
const ON_DEVICE: u64 = 1;
/// `cudaCpuDeviceId`, `cudaInvalidDeviceId`
const CPU: c_int = -1;
const NOWHERE: c_int = -2;
/// `cudaMemRangeAttributeLastPrefetchLocation`, and the last attribute that there is.
const LAST_PREFETCH: c_int = 4;
const LAST_ATTRIBUTE: c_int = 8;

static PREFETCHED: Mutex<Prefetched> = Mutex::new(Prefetched::new());

fn prefetched() -> MutexGuard<'static, Prefetched> {
    PREFETCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The range lies in managed memory.
fn check(gpu: &Emulator, ptr: *const c_void, bytes: usize) -> DriverResult<()> {
    let held = gpu.held(ptr);
    let offset = ptr.addr() - held.base.addr();
    let inside = held.side == Side::Managed && bytes <= held.bytes - offset;
    if inside { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
}

fn prefetch(gpu: &Emulator, ptr: *const c_void, bytes: usize, device: c_int) -> DriverResult<()> {
    check(gpu, ptr, bytes)?;
    prefetched().note(ptr.addr()..ptr.addr() + bytes, device);
    Ok(())
}

/// Memory is new here: nobody has prefetched it, whatever was at its addresses before.
pub fn begins(ptr: *const c_void, bytes: usize) {
    prefetched().forget(ptr.addr()..ptr.addr() + bytes);
}

/// A `cudaMemLocation`, which comes as one number: its type, and its id above that.
fn device_of(location: u64) -> c_int {
    if location & 0xffff_ffff == ON_DEVICE { (location >> 32) as c_int } else { CPU }
}

cuda! {
    /// CUDA 12 names a device where CUDA 13 names a location.
    fn cudaMemPrefetchAsync / cudaMemPrefetchAsync_ptsz(
        ptr: *const c_void, bytes: usize, location: u64,
    ) |gpu, _per_thread| {
        let is_number = environment::major() == 12;
        let device = if is_number { location as c_int } else { device_of(location) };
        prefetch(gpu, ptr, bytes, device)
    }

    fn [
        cudaMemPrefetchAsync_v2 / cudaMemPrefetchAsync_v2_ptsz,
        cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz
    ](
        ptr: *const c_void, bytes: usize, location: u64,
    ) |gpu, _per_thread| {
        prefetch(gpu, ptr, bytes, device_of(location))
    }

    fn [cudaMemAdvise, cudaMemAdvise_v2, cuMemAdvise, cuMemAdvise_v2](
        ptr: *const c_void, bytes: usize, _advice: c_int,
    ) |gpu| {
        check(gpu, ptr, bytes)
    }

    // Only the last prefetch is known: nothing is anywhere else.
    fn [cudaMemRangeGetAttribute, cuMemRangeGetAttribute](
        out: Out<c_int>, bytes_out: usize, attribute: c_int, ptr: *const c_void, bytes: usize,
    ) |gpu| {
        if bytes_out != size_of::<c_int>() || !(1..=LAST_ATTRIBUTE).contains(&attribute) {
            return Err(CudaCode::INVALID_VALUE);
        }
        check(gpu, ptr, bytes)?;
        if attribute != LAST_PREFETCH {
            return out.put(if attribute == 1 { 0 } else { NOWHERE });
        }
        let device = prefetched().device_of(ptr.addr()..ptr.addr() + bytes);
        out.put(device.unwrap_or(NOWHERE))
    }
}
