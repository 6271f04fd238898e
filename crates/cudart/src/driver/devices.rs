//! The beginning: the driver, and its devices.

use std::ffi::{c_char, c_int, c_uint, c_void};

use pinlane_driver::CudaCode;

use super::contexts;
use crate::abi::{Handle, Out};
use crate::{environment, properties};

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(out: Out<c_int>) -> c_int {
    out.put(environment::driver_version()).map_or_else(|code| code.0, |()| 0)
}

cuda! {
    fn cuInit(flags: c_uint) |_face| {
        if flags != 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        if environment::devices() == 0 {
            return Err(CudaCode::NO_DEVICE);
        }
        contexts::initialize();
        Ok(())
    }

    // The driver's own words about errors. This one has none: findings say more.
    fn cuLogsRegisterCallback(
        callback: *const c_void, _data: *mut c_void, out: Out<Handle>,
    ) |_face| {
        if callback.is_null() {
            return Err(CudaCode::INVALID_VALUE);
        }
        out.put(callback.expose_provenance())
    }

    fn cuLogsUnregisterCallback(handle: Handle) |_face| {
        if handle == 0 { Err(CudaCode::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuDeviceGet(out: Out<c_int>, ordinal: c_int) |gpu| {
        out.check()?;
        gpu.check_device(ordinal)?;
        out.put(ordinal)
    }

    fn cuDeviceGetName(out: Out<c_char>, length: c_int, device: c_int) |gpu| {
        out.check()?;
        gpu.check_device(device)?;
        let name = gpu.device_name(device)?;
        let room = length.checked_sub(1).and_then(|room| usize::try_from(room).ok());
        let room = room.ok_or(CudaCode::INVALID_VALUE)?;
        let bytes = name.bytes().take(room).chain([0]);
        bytes.enumerate().try_for_each(|(at, byte)| out.at(at).put(byte))
    }

    fn [cuDeviceGetUuid, cuDeviceGetUuid_v2](out: Out<[u8; 16]>, device: c_int) |gpu| {
        out.check()?;
        gpu.check_device(device)?;
        out.put(properties::uuid(device))
    }

    fn cuDeviceTotalMem_v2(out: Out<usize>, device: c_int) |gpu| {
        out.check()?;
        gpu.check_device(device)?;
        out.put(gpu.memory_info(device)?.1)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) |gpu| {
        gpu.check_device(device)?;
        major.put(properties::attribute(75, device).unwrap_or(0))?;
        minor.put(properties::attribute(76, device).unwrap_or(0))
    }
}
