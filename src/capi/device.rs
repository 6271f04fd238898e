//! Devices: GPUs and emulated machines.

use std::ffi::c_char;

use super::handle::{self, handle_type};
use super::pointer::{self, Out, check_flags, layout, unknown};
use super::status::{boundary, pinlane_status, refused};
use crate::device::Device;
use crate::error::{ErrorKind, Result};

/// A device: a GPU, or an emulated one. Any thread may use it. What was made from it lives on when
/// it is freed.
pub struct pinlane_device {
    _opaque: [u8; 0],
}

handle_type!(pinlane_device: Device, "device", table 1, shared: true);

/// Emulated operations run as soon as they can.
pub const PINLANE_EXECUTION_EAGER: i32 = 0;
/// Emulated operations run only when somebody waits for them: as late as CUDA allows.
pub const PINLANE_EXECUTION_LAZY: i32 = 1;

/// Options of an emulated machine. Initialise with `PINLANE_EMULATOR_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_emulator_options {
    /// `sizeof(pinlane_emulator_options)`.
    pub size: usize,
    /// Decides everything that CUDA leaves open. The same seed gives the same run.
    pub seed: u64,
    /// Memory of each device, in bytes.
    pub memory_bytes: usize,
    /// `PINLANE_EXECUTION_EAGER` or `PINLANE_EXECUTION_LAZY`.
    pub execution: i32,
    /// Must be 0.
    pub flags: u32,
}

layout!(pinlane_emulator_options: 32; size 0, execution 24);

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
    unsafe { Out::new("device", device) }.create("pinlane_device_open", || {
        handle::check_process()?;
        Device::open(ordinal)
    })
}

/// Opens GPU 0 if there is one, else an emulated device, and writes it to `device`. The caller
/// frees it with `pinlane_device_free`. `pinlane_device_name` tells which it is.
///
/// Statuses: as for `pinlane_device_open`; `NO_DEVICE` only in a build without the emulated device.
///
/// # Safety
///
/// - `device` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_open_or_emulated(
    device: *mut *mut pinlane_device,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `device`.
    unsafe { Out::new("device", device) }.create("pinlane_device_open_or_emulated", || {
        handle::check_process()?;
        #[cfg(feature = "emulated")]
        return Device::open_or_emulated();
        #[cfg(not(feature = "emulated"))]
        Device::open(0)
    })
}

/// Makes an emulated machine with `count` devices, 1 to 64, and writes them to `devices[0 ..
/// count]`. The caller frees each with `pinlane_device_free`. `options` may be NULL.
///
/// Statuses: `INVALID_VALUE` if `devices` is NULL or misaligned, for a `count` out of range, or for
/// options of an unknown size, execution or flag; `UNSUPPORTED` in a build without the emulated
/// device.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `devices` is NULL or points to an array of `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_create(
    options: *const pinlane_emulator_options,
    devices: *mut *mut pinlane_device,
    count: i32,
) -> pinlane_status {
    boundary("pinlane_emulator_create", || {
        handle::check_process()?;
        // SAFETY: the caller's precondition on `devices`, an array of at least one element.
        unsafe { Out::new("devices", devices) }.check()?;
        if !(1..=64).contains(&count) {
            let context = format!("a machine with {count} devices");
            return Err(refused(ErrorKind::InvalidValue, context, "ask for 1 to 64"));
        }
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { pointer::options(options) }?;
        if let Some(options) = &options {
            check_flags(options.flags, 0)?;
            check_execution(options.execution)?;
        }
        for (index, device) in emulate(options, count)?.into_iter().enumerate() {
            // SAFETY: the array has `count` elements, and there are `count` devices.
            unsafe { devices.add(index).write(handle::create(device)) };
        }
        Ok(())
    })
}

fn check_execution(execution: i32) -> Result<()> {
    if matches!(execution, PINLANE_EXECUTION_EAGER | PINLANE_EXECUTION_LAZY) {
        return Ok(());
    }
    Err(unknown("execution", execution, "use one of PINLANE_EXECUTION_*"))
}

#[cfg(feature = "emulated")]
fn emulate(options: Option<pinlane_emulator_options>, count: i32) -> Result<Vec<Device>> {
    use crate::driver::emulated::{Emulator, Execution};
    let mut builder = Emulator::builder().devices(count as usize);
    if let Some(options) = options {
        let lazy = options.execution == PINLANE_EXECUTION_LAZY;
        builder = builder
            .seed(options.seed)
            .memory_bytes(options.memory_bytes)
            .execution(if lazy { Execution::Lazy } else { Execution::Eager });
    }
    let emulator = builder.build();
    (0..count).map(|ordinal| Device::of_emulator(&emulator, ordinal)).collect()
}

#[cfg(not(feature = "emulated"))]
fn emulate(_options: Option<pinlane_emulator_options>, _count: i32) -> Result<Vec<Device>> {
    Err(refused(
        ErrorKind::Unsupported,
        "this build has no emulated device",
        "build pinlane with the feature emulated",
    ))
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
            return Err(pointer::null("buffer, or its capacity,"));
        }
        let name = &device.name().as_bytes()[..device.name().len().min(capacity - 1)];
        // SAFETY: `buffer` has `capacity` bytes, of which at most `capacity - 1` and a NUL are
        // written; the name is the library's own memory.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len());
            buffer.add(name.len()).write(0);
        }
        Ok(())
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
/// those with a handle, those that a live buffer may still wait for, and a few of pinlane's own.
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
    boundary("pinlane_device_free", || handle::free(device))
}
