//! The energy that the GPU uses, from its counter, if the driver has one.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::transmute;

/// The counter of one GPU, by NVML, which comes with the driver.
pub struct Energy {
    handle: *mut c_void,
    read: unsafe extern "C" fn(*mut c_void, *mut c_ulonglong) -> c_int,
}

impl Energy {
    /// `None` without NVML, or for a GPU without a counter.
    pub fn of(ordinal: c_uint) -> Option<Self> {
        // SAFETY: the library's initialisers are those of NVIDIA's driver.
        let library =
            unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr().cast::<c_char>(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let find = |name: &std::ffi::CStr| {
            // SAFETY: a library that is never closed, and a C string.
            let function = unsafe { libc::dlsym(library, name.as_ptr()) };
            Some(function).filter(|function| !function.is_null())
        };
        // SAFETY: these are the signatures in NVML's reference, "Initialization and Cleanup" and
        // "Device Queries".
        let (init, by_index, read) = unsafe {
            (
                transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(find(c"nvmlInit_v2")?),
                transmute::<*mut c_void, unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int>(
                    find(c"nvmlDeviceGetHandleByIndex_v2")?,
                ),
                transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *mut c_ulonglong) -> c_int,
                >(find(c"nvmlDeviceGetTotalEnergyConsumption")?),
            )
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live place for the handle.
        let found = unsafe { init() == 0 && by_index(ordinal, &mut handle) == 0 };
        let energy = Energy { handle, read };
        Some(energy).filter(|energy| found && energy.joules().is_some())
    }

    /// The energy used since the driver was loaded.
    pub fn joules(&self) -> Option<f64> {
        let mut millijoules = 0;
        // SAFETY: the handle is that of a GPU, and the place is live.
        let read = unsafe { (self.read)(self.handle, &mut millijoules) };
        (read == 0).then_some(millijoules as f64 / 1e3)
    }
}
