//! Devices: GPUs and emulated machines.

use std::ffi::c_char;

use super::handle::{self, Handle};
use super::pointer::{self, Out};
use super::status::{boundary, pinlane_status};
use super::table::Table;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};

/// A device: a GPU, or an emulated one. Any thread may use it; freeing it does not end what was
/// made from it.
pub struct pinlane_device {
    _opaque: [u8; 0],
}

impl Handle for pinlane_device {
    type Object = Device;
    const NAME: &'static str = "device";
    fn table() -> &'static Table<Device> {
        static TABLE: Table<Device> = Table::new(1, true);
        &TABLE
    }
}

/// Emulated operations run as soon as they can.
pub const PINLANE_EXECUTION_EAGER: i32 = 0;
/// Emulated operations run only when somebody waits: the latest that CUDA allows.
pub const PINLANE_EXECUTION_LAZY: i32 = 1;

/// Options of an emulated machine. Initialise with `PINLANE_EMULATOR_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_emulator_options {
    /// `sizeof(pinlane_emulator_options)`.
    pub size: usize,
    /// Decides all that CUDA leaves open; the same seed gives the same run.
    pub seed: u64,
    /// Memory of each device, in bytes.
    pub memory_bytes: usize,
    /// `PINLANE_EXECUTION_EAGER` or `PINLANE_EXECUTION_LAZY`.
    pub execution: i32,
    /// Must be 0.
    pub flags: u32,
}

const _: () = {
    assert!(size_of::<pinlane_emulator_options>() == 32);
    assert!(std::mem::offset_of!(pinlane_emulator_options, size) == 0);
    assert!(std::mem::offset_of!(pinlane_emulator_options, execution) == 24);
};

/// Opens GPU number `ordinal`, counted from 0, and writes it to `device`, which the caller frees
/// with `pinlane_device_free`. Blocks while CUDA initialises, which can take a second.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_open";
        handle::check_process(OPERATION)?;
        // SAFETY: the caller's precondition on `device`.
        let out = unsafe { Out::new(OPERATION, "device", device) }?;
        out.set(handle::create(Device::open(ordinal)?));
        Ok(())
    })
}

/// Opens GPU 0 where there is one and an emulated device where there is none, and writes it to
/// `device`, which the caller frees with `pinlane_device_free`. `pinlane_device_name` tells which
/// it is.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_open_or_emulated";
        handle::check_process(OPERATION)?;
        // SAFETY: the caller's precondition on `device`.
        let out = unsafe { Out::new(OPERATION, "device", device) }?;
        #[cfg(feature = "emulated")]
        let opened = Device::open_or_emulated()?;
        #[cfg(not(feature = "emulated"))]
        let opened = Device::open(0)?;
        out.set(handle::create(opened));
        Ok(())
    })
}

/// Makes an emulated machine with `count` devices, 1 to 64, and writes them to `devices[0 ..
/// count]`; the caller frees each with `pinlane_device_free`. `options` may be NULL.
///
/// Statuses: `INVALID_VALUE` for NULL or misaligned `devices`, a `count` out of range, or options
/// of an unknown size, execution or flag; `UNSUPPORTED` in a build without the emulated device.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_emulator_create";
        handle::check_process(OPERATION)?;
        // SAFETY: the caller's precondition on `devices`; the array has at least one element.
        unsafe { Out::new(OPERATION, "devices", devices) }?;
        if !(1..=64).contains(&count) {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                OPERATION,
                format!("a machine with {count} devices"),
                "ask for 1 to 64",
            ));
        }
        let options = if options.is_null() {
            None
        } else {
            // SAFETY: the caller's precondition on `options`.
            let options = unsafe { sized_input(OPERATION, options) }?;
            check_flags(OPERATION, options.flags, 0)?;
            check_execution(OPERATION, options.execution)?;
            Some(options)
        };
        for (index, device) in emulate(OPERATION, options, count)?.into_iter().enumerate() {
            // SAFETY: the array has `count` elements, and there are `count` devices.
            unsafe { devices.add(index).write(handle::create(device)) };
        }
        Ok(())
    })
}

fn check_execution(operation: &'static str, execution: i32) -> Result<()> {
    if matches!(execution, PINLANE_EXECUTION_EAGER | PINLANE_EXECUTION_LAZY) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidValue,
        operation,
        format!("{execution} is no execution mode"),
        "use PINLANE_EXECUTION_EAGER or PINLANE_EXECUTION_LAZY",
    ))
}

#[cfg(feature = "emulated")]
fn emulate(
    operation: &'static str,
    options: Option<pinlane_emulator_options>,
    count: i32,
) -> Result<Vec<Device>> {
    use crate::driver::emulated::{Emulator, Execution};
    let _ = operation;
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
fn emulate(
    operation: &'static str,
    _options: Option<pinlane_emulator_options>,
    _count: i32,
) -> Result<Vec<Device>> {
    Err(Error::new(
        ErrorKind::Unsupported,
        operation,
        "this build has no emulated device",
        "build pinlane with the feature emulated",
    ))
}

/// Writes how many GPUs there are to `count`: 0 where there is no driver, or no CUDA in this build.
///
/// Statuses: `INVALID_VALUE` if `count` is NULL.
///
/// # Safety
///
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_count(count: *mut i32) -> pinlane_status {
    boundary(|| {
        // SAFETY: the caller's precondition on `count`.
        let out = unsafe { Out::new("pinlane_device_count", "count", count) }?;
        out.set(Device::available().len() as i32);
        Ok(())
    })
}

/// Writes the device's name, as the vendor prints it, to `buffer`: at most `capacity` bytes with
/// the terminating NUL, cut off if it does not fit.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_name";
        let device = handle::get(OPERATION, device)?;
        if buffer.is_null() || capacity == 0 {
            return Err(pointer::null(OPERATION, "buffer, or its capacity,"));
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_ordinal";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `ordinal`.
        unsafe { Out::new(OPERATION, "ordinal", ordinal) }?.set(device.ordinal());
        Ok(())
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_memory_info";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `free_bytes`.
        let free = unsafe { Out::new(OPERATION, "free_bytes", free_bytes) }?;
        // SAFETY: the caller's precondition on `total_bytes`.
        let total = unsafe { Out::new(OPERATION, "total_bytes", total_bytes) }?;
        let info = device.memory_info()?;
        free.set(info.free);
        total.set(info.total);
        Ok(())
    })
}

/// Writes how many streams of the device exist that pinlane created to `count`: those with handles,
/// those that work of a live buffer was enqueued on and that it may still wait for, and a few of
/// pinlane's own.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_live_streams";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `count`.
        unsafe { Out::new(OPERATION, "count", count) }?.set(device.live_streams());
        Ok(())
    })
}

/// Frees the handle; NULL is a no-op. Streams, pools and buffers of the device stay valid.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_free(device: *mut pinlane_device) -> pinlane_status {
    boundary(|| handle::free("pinlane_device_free", device))
}

/// Reads an options struct whose first member, its size, must be the one that this library knows.
///
/// # Safety
///
/// - `options` is misaligned (an error), or points to a struct that is as large as its `size` says.
pub(super) unsafe fn sized_input<T: Copy>(operation: &'static str, options: *const T) -> Result<T> {
    // SAFETY: `size` is the first member of every options struct, so a struct of any size has it.
    let given = unsafe { pointer::input(operation, "options", options.cast::<usize>()) }?;
    if given != size_of::<T>() {
        return Err(Error::new(
            ErrorKind::InvalidValue,
            operation,
            format!("options of {given} bytes, not {}", size_of::<T>()),
            "initialise options with their _INIT macro, and use the header of this library",
        ));
    }
    // SAFETY: the struct is as large as `T`.
    unsafe { pointer::input(operation, "options", options) }
}

/// Unknown flags are refused: a newer program may mean something by them.
pub(super) fn check_flags(operation: &'static str, flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidValue,
        operation,
        format!("unknown flags {:#x}", flags & !known),
        "use the flags that the header of this library names",
    ))
}
