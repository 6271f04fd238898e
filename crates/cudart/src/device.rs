//! Devices: how many, which one is current, what they can do, peers; and versions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::Emulator;

use crate::abi::{Handle, In, Out};
use crate::driver::entry_points;
use crate::{environment, machine, properties};

/// `cudaErrorPeerAccessUnsupported`
const PEER_ACCESS_UNSUPPORTED: CudaCode = CudaCode(217);

/// The ways to wait, of which a device has one (`cudaDeviceScheduleMask`), and all flags.
const SCHEDULES: c_uint = 7;
const DEVICE_FLAGS: c_uint = 0xff;

/// How many limits there are (`cudaLimit`), and how many preferences of caches.
const LIMITS: c_uint = 10;
const CACHE_CONFIGS: c_int = 4;

/// Lets the current device access memory of another.
pub fn enable_peer(gpu: &Emulator, peer: c_int, flags: c_uint) -> DriverResult<()> {
    let device = gpu.current_device();
    gpu.check_device(peer)?;
    if flags != 0 {
        return Err(CudaCode::INVALID_VALUE);
    }
    if peer == device {
        return Err(PEER_ACCESS_UNSUPPORTED);
    }
    gpu.enable_peer_access(device, peer)
}

pub fn disable_peer(gpu: &Emulator, peer: c_int) -> DriverResult<()> {
    gpu.check_device(peer)?;
    gpu.disable_peer_access(gpu.current_device(), peer)
}

cuda! {
    fn [cudaGetDeviceCount, cuDeviceGetCount](out: Out<c_int>) |gpu| {
        out.put(gpu.devices()?)
    }

    fn [cudaGetDevice, cuCtxGetDevice](out: Out<c_int>) |gpu| {
        out.put(gpu.current_device())
    }

    fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) |gpu| {
        gpu.check_device(device)
    }

    fn cudaSetDeviceFlags(flags: c_uint) |_face| {
        let schedules = (flags & SCHEDULES).count_ones();
        let there = flags & !DEVICE_FLAGS == 0 && schedules <= 1;
        if there { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
    }

    fn cudaGetDeviceFlags(out: Out<c_uint>) |_face| {
        // cudaDeviceMapHost, as always under unified addressing.
        out.put(8)
    }

    fn cudaSetValidDevices(devices: In<c_int>, count: c_int) |gpu| {
        (0..count).try_for_each(|at| gpu.check_device(devices.nth(at as usize).get()?))
    }

    fn cudaChooseDevice(out: Out<c_int>, _properties: *const c_void) |_face| {
        out.put(0)
    }

    fn [cudaDeviceSynchronize, cudaThreadSynchronize, cuCtxSynchronize]() |gpu| {
        gpu.device_synchronize(gpu.current_device())
    }

    fn cudaDeviceReset() |gpu| {
        // SAFETY: the program gives up what the reset destroys.
        unsafe { gpu.reset(gpu.current_device()) }
    }

    fn [cudaDeviceGetAttribute, cuDeviceGetAttribute](
        out: Out<c_int>, attribute: c_int, device: c_int,
    ) |gpu| {
        out.check()?;
        gpu.check_device(device)?;
        out.put(properties::attribute(attribute, device).ok_or(CudaCode::INVALID_VALUE)?)
    }

    fn [cudaDeviceGetStreamPriorityRange, cuCtxGetStreamPriorityRange](
        least: Out<c_int>, greatest: Out<c_int>,
    ) |_face| {
        least.put_if_any(0);
        greatest.put_if_any(-5);
        Ok(())
    }

    fn [cudaDeviceGetLimit, cuCtxGetLimit](out: Out<usize>, limit: c_uint) |gpu| {
        out.check()?;
        if limit >= LIMITS {
            return Err(CudaCode::INVALID_VALUE);
        }
        out.put(gpu.limit(gpu.current_device(), limit as usize)?)
    }

    fn [cudaDeviceSetLimit, cuCtxSetLimit](limit: c_uint, value: usize) |gpu| {
        if limit >= LIMITS {
            return Err(CudaCode::INVALID_VALUE);
        }
        gpu.set_limit(gpu.current_device(), limit as usize, value)
    }

    fn [cudaDeviceGetCacheConfig, cuCtxGetCacheConfig](out: Out<c_int>) |_face| {
        out.put(0)
    }

    fn [cudaDeviceSetCacheConfig, cuCtxSetCacheConfig](config: c_int) |_face| {
        let there = (0..CACHE_CONFIGS).contains(&config);
        if there { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
    }

    fn [cudaDeviceGetPCIBusId, cuDeviceGetPCIBusId](
        out: Out<c_char>, length: c_int, device: c_int,
    ) |gpu| {
        gpu.check_device(device)?;
        let text = bus_id(device) + "\0";
        if length < text.len() as c_int {
            return Err(CudaCode::INVALID_VALUE);
        }
        text.bytes().enumerate().try_for_each(|(at, byte)| out.at(at).put(byte))
    }

    fn [cudaDeviceGetByPCIBusId, cuDeviceGetByPCIBusId](
        out: Out<c_int>, id: *const c_char,
    ) |gpu| {
        out.check()?;
        if id.is_null() {
            return Err(CudaCode::INVALID_VALUE);
        }
        // SAFETY: CUDA demands of its callers that it is a string.
        let id = unsafe { CStr::from_ptr(id) }.to_string_lossy().to_uppercase();
        let named = (0..gpu.devices()?).find(|&device| {
            let known = bus_id(device);
            known == id || known.strip_prefix("0000:") == Some(&id)
        });
        out.put(named.ok_or(CudaCode::INVALID_VALUE)?)
    }

    fn [cudaDeviceCanAccessPeer, cuDeviceCanAccessPeer](
        out: Out<c_int>, device: c_int, peer: c_int,
    ) |gpu| {
        out.check()?;
        out.put(c_int::from(gpu.can_access_peer(device, peer)?))
    }

    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) |gpu| {
        enable_peer(gpu, peer, flags)
    }

    fn cudaDeviceDisablePeerAccess(peer: c_int) |gpu| {
        disable_peer(gpu, peer)
    }

    fn [cudaDeviceGetP2PAttribute, cuDeviceGetP2PAttribute](
        out: Out<c_int>, attribute: c_int, device: c_int, peer: c_int,
    ) |gpu| {
        out.check()?;
        gpu.check_device(device)?;
        gpu.check_device(peer)?;
        if device == peer {
            return Err(CudaCode::INVALID_DEVICE);
        }
        out.put(c_int::from(attribute == 2))
    }

    fn cudaGetDriverEntryPoint / cudaGetDriverEntryPoint_ptsz(
        name: *const c_char, out: Out<Handle>, flags: c_ulonglong, found: Out<c_int>,
    ) |_face, per_thread| {
        entry_point(name, out, (environment::version(), flags, per_thread), found)
    }

    fn cudaGetDriverEntryPointByVersion / cudaGetDriverEntryPointByVersion_ptsz(
        name: *const c_char, out: Out<Handle>, version: c_uint, flags: c_ulonglong,
        found: Out<c_int>,
    ) |_face, per_thread| {
        entry_point(name, out, (version as c_int, flags, per_thread), found)
    }

    fn [cudaProfilerStart, cudaProfilerStop, cuProfilerStart, cuProfilerStop]() |_face| {
        Ok(())
    }
}

/// It succeeds without a driver, too (rule 31).
#[unsafe(no_mangle)]
extern "C" fn cudaDriverGetVersion(out: Out<c_int>) -> c_int {
    version(out, environment::driver_version())
}

#[unsafe(no_mangle)]
extern "C" fn cudaRuntimeGetVersion(out: Out<c_int>) -> c_int {
    version(out, environment::version())
}

fn version(out: Out<c_int>, version: c_int) -> c_int {
    let Err(code) = out.put(version) else { return 0 };
    if let Some(process) = machine::process() {
        process.gpu.note_error(code);
    }
    code.0
}

fn bus_id(device: c_int) -> String {
    format!("0000:{:02X}:00.0", device + 1)
}

/// A function of the driver. For an unknown one the call succeeds.
fn entry_point(
    name: *const c_char,
    out: Out<Handle>,
    (version, flags, per_thread): (c_int, c_ulonglong, bool),
    found: Out<c_int>,
) -> DriverResult<()> {
    let flags = if flags == 0 && per_thread { entry_points::PER_THREAD } else { flags };
    let (address, status) = entry_points::find(name, version, flags)?;
    out.put(address)?;
    found.put_if_any(status);
    Ok(())
}
