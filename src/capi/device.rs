//! Devices: GPUs and emulated machines.

use std::ffi::c_char;

use super::{Out, boundary, freeing, handle, handle_type, invalid, pinlane_status, pointer};
use crate::device::Device;

/// A device: a GPU, or an emulated one. Any thread may use it. Objects made from it stay valid
/// after it is freed.
pub enum pinlane_device {}

handle_type!(pinlane_device: Device, "device", table 1, shared: true);

/// Opens GPU number `ordinal`, counted from 0, and writes it to `device`. The caller frees it with
/// `pinlane_device_free`. Blocks while CUDA initialises, which can take a second.
///
/// Statuses: `NO_DEVICE` (the message says what is missing), `FORKED_PROCESS`, `INVALID_VALUE` if
/// `device` is NULL.
///
/// # Safety
///
/// - `device` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_open(
    ordinal: i32,
    device: *mut *mut pinlane_device,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `device`.
    unsafe { Out::new("device", device) }.create("pinlane_device_open", || Device::open(ordinal))
}

/// Opens GPU 0 if there is one, otherwise an emulated device, and writes it to `device`. The caller
/// frees it with `pinlane_device_free`. `pinlane_device_name` shows which it is.
///
/// Statuses: as for `pinlane_device_open`, except `NO_DEVICE`.
///
/// # Safety
///
/// - `device` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_open_or_emulated(
    device: *mut *mut pinlane_device,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `device`.
    unsafe { Out::new("device", device) }
        .create("pinlane_device_open_or_emulated", Device::open_or_emulated)
}

/// Writes the number of GPUs to `count`: 0 if there is no driver, or no CUDA in this build.
///
/// Statuses: `INVALID_VALUE` if `count` is NULL.
///
/// # Safety
///
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_count(count: *mut i32) -> pinlane_status {
    // SAFETY: the caller's precondition on `count`.
    unsafe { Out::new("count", count) }
        .give("pinlane_device_count", || Ok(Device::available().len() as i32))
}

/// Writes the device's name, as the vendor prints it, to `buffer`: at most `capacity` bytes with
/// the terminating NUL. A longer name is cut off.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `buffer` is NULL or `capacity` is 0.
///
/// # Safety
///
/// - `buffer` is NULL or points to `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_name(
    device: *const pinlane_device,
    buffer: *mut c_char,
    capacity: usize,
) -> pinlane_status {
    boundary("pinlane_device_name", || {
        let device = handle::get(device)?;
        if buffer.is_null() || capacity == 0 {
            let what = "buffer is NULL, or its capacity is 0";
            return Err(invalid(what, "pass a buffer with room for the name"));
        }
        // SAFETY: the caller's precondition on `buffer`.
        unsafe { pointer::text(device.name(), buffer, capacity) }.map(drop)
    })
}

/// Writes the device's number to `ordinal`.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `ordinal` is NULL.
///
/// # Safety
///
/// - `ordinal` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_ordinal(
    device: *const pinlane_device,
    ordinal: *mut i32,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ordinal`.
    unsafe { Out::new("ordinal", ordinal) }
        .give("pinlane_device_ordinal", || Ok(handle::get(device)?.ordinal()))
}

/// Writes 1 to `same` if both handles are of one device, else 0.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `same` is NULL.
///
/// # Safety
///
/// - `same` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_is_same(
    device: *const pinlane_device,
    other: *const pinlane_device,
    same: *mut i32,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `same`.
    unsafe { Out::new("same", same) }.give("pinlane_device_is_same", || {
        let device = handle::get(device)?;
        Ok((*device == *handle::get(other)?).into())
    })
}

/// Writes the device's free and total memory, in bytes.
///
/// Statuses: `INVALID_HANDLE`, `DEVICE_LOST`, `FORKED_PROCESS`; `INVALID_VALUE` if an output is
/// NULL.
///
/// # Safety
///
/// - `free_bytes` and `total_bytes` are each NULL or point to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_memory_info(
    device: *const pinlane_device,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
) -> pinlane_status {
    boundary("pinlane_device_memory_info", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `free_bytes`.
        let free = unsafe { Out::new("free_bytes", free_bytes) }.check()?;
        // SAFETY: the caller's precondition on `total_bytes`.
        let total = unsafe { Out::new("total_bytes", total_bytes) }.check()?;
        let info = device.memory_info()?;
        free.set(info.free);
        total.set(info.total);
        Ok(())
    })
}

/// Writes the number of the device's streams that pinlane created and that still exist to `count`:
/// streams with a handle, streams that a live buffer may still wait for, and a few internal
/// streams.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL.
///
/// # Safety
///
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_live_streams(
    device: *const pinlane_device,
    count: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `count`.
    unsafe { Out::new("count", count) }
        .give("pinlane_device_live_streams", || Ok(handle::get(device)?.live_streams()))
}

/// Writes to `bytes` how much memory is never freed because the device failed: when its buffer was
/// freed, nothing proved that the device was done with it. Counts device memory, memory of
/// `pinlane_buffer_register`, and memory of deleted tensors. A pool counts its own memory, in
/// `pinlane_pool_stats`.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
///
/// # Safety
///
/// - `bytes` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_quarantined_bytes(
    device: *const pinlane_device,
    bytes: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `bytes`.
    unsafe { Out::new("bytes", bytes) }
        .give("pinlane_device_quarantined_bytes", || Ok(handle::get(device)?.quarantined_bytes()))
}

/// Writes another handle of the same device to `clone`. The caller frees it with
/// `pinlane_device_free`. Does not block.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `clone` is NULL.
///
/// # Safety
///
/// - `clone` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_clone(
    device: *const pinlane_device,
    clone: *mut *mut pinlane_device,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `clone`.
    unsafe { Out::new("clone", clone) }
        .create("pinlane_device_clone", || Ok(Device::clone(&*handle::get(device)?)))
}

/// Frees the handle; NULL is a no-op. Streams, pools and buffers of the device stay valid.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_free(device: *mut pinlane_device) -> pinlane_status {
    freeing("pinlane_device_free", || handle::free(device))
}
