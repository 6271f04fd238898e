//! Pools of memory of devices and of the host.

use std::ffi::{c_int, c_uint, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{Emulator, PoolFigure, PoolId};

use crate::abi::{Handle, In, Location, MANAGED, Out, PINNED};
use crate::driver::contexts::stream;

/// What a pool's handle begins with, so that other numbers are known as wrong ones.
const TAG: usize = 0x9001_0000_0000;

/// The sorts of handles by which pools are shared on this system: descriptors, and those of a
/// fabric.
const HANDLES: c_int = 1 | 8;
/// `cudaMemAccessFlagsProtRead`, `ReadWrite`
const READ: c_int = 1;
const READ_WRITE: c_int = 3;
/// `cudaMemPoolProps`
#[repr(C)]
#[derive(Clone, Copy)]
struct Props {
    allocation: c_int,
    handles: c_int,
    location: Location,
    security: *mut c_void,
    limit: usize,
    usage: u16,
    reserved: [u8; 54],
}

/// `cudaMemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location: Location,
    flags: c_int,
}

fn handle(pool: PoolId) -> Handle {
    TAG | pool.0
}

fn pool(handle: Handle) -> DriverResult<PoolId> {
    let index = handle.checked_sub(TAG).filter(|&index| index < 1 << 32);
    index.map(PoolId).ok_or(CudaCode::INVALID_VALUE)
}

fn figure(attribute: c_int) -> Option<PoolFigure> {
    Some(match attribute {
        4 => PoolFigure::ReleaseThreshold,
        5 => PoolFigure::Reserved,
        6 => PoolFigure::ReservedHigh,
        7 => PoolFigure::Used,
        8 => PoolFigure::UsedHigh,
        _ => return None,
    })
}

/// A figure of the memory of a device's graphs (`cudaGraphMemAttributeType`); sets it if a value is
/// given.
fn graph_figure(
    gpu: &Emulator,
    device: c_int,
    figure: c_uint,
    set: Option<u64>,
) -> DriverResult<u64> {
    gpu.check_device(device)?;
    let figures =
        [PoolFigure::Used, PoolFigure::UsedHigh, PoolFigure::Reserved, PoolFigure::ReservedHigh];
    let figure = *figures.get(figure as usize).ok_or(CudaCode::INVALID_VALUE)?;
    gpu.pool_figure(gpu.graph_pool(device)?, figure, set)
}

cuda! {
    fn [cudaDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute](
        device: c_int, figure: c_uint, out: Out<u64>,
    ) |gpu| {
        out.check()?;
        out.put(graph_figure(gpu, device, figure, None)?)
    }

    fn [cudaDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute](
        device: c_int, figure: c_uint, value: In<u64>,
    ) |gpu| {
        graph_figure(gpu, device, figure, None)?;
        graph_figure(gpu, device, figure, Some(value.get()?)).map(drop)
    }

    fn [cudaDeviceGraphMemTrim, cuDeviceGraphMemTrim](device: c_int) |gpu| {
        gpu.check_device(device)?;
        gpu.graph_trim(device)
    }

    fn [cudaDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool](
        out: Out<Handle>, device: c_int,
    ) |gpu| {
        out.check()?;
        gpu.device_pool(device)?;
        out.put(handle(PoolId(device as usize)))
    }

    fn [cudaMemGetDefaultMemPool, cuMemGetDefaultMemPool](
        out: Out<Handle>, location: In<Location>, kind: c_int,
    ) |gpu| {
        out.check()?;
        let location = location.get()?;
        match (location.kind, kind) {
            (Location::DEVICE, PINNED) => out.put(handle(PoolId(location.id as usize))),
            (Location::DEVICE, MANAGED) => out.put(handle(gpu.managed_pool(location.id)?)),
            (Location::HOST | Location::HOST_NODE, PINNED | MANAGED) => {
                out.put(handle(gpu.host_pool()))
            }
            _ => Err(CudaCode::NOT_SUPPORTED),
        }
    }

    fn [cudaDeviceGetMemPool, cuDeviceGetMemPool](out: Out<Handle>, device: c_int) |gpu| {
        out.check()?;
        out.put(handle(gpu.device_pool(device)?))
    }

    fn [cudaDeviceSetMemPool, cuDeviceSetMemPool](device: c_int, named: Handle) |gpu| {
        gpu.device_pool(device).map_err(|_| CudaCode::INVALID_VALUE)?;
        gpu.set_device_pool(device, pool(named)?)
    }

    fn [cudaMemPoolCreate, cuMemPoolCreate](out: Out<Handle>, props: In<Props>) |gpu| {
        out.check()?;
        let props = props.get()?;
        let Location { kind, id } = props.location;
        // Without a node, a pool cannot be shared. There is one node.
        let is_there = match kind {
            Location::DEVICE => true,
            Location::HOST => props.handles == 0,
            Location::HOST_NODE => id == 0,
            _ => false,
        };
        if props.allocation != PINNED || !is_there {
            return Err(CudaCode::INVALID_VALUE);
        }
        // Nothing is exported (cudaMemPoolExportToShareableHandle), but programs may ask for it.
        if props.handles & !HANDLES != 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        let created = match kind {
            Location::DEVICE => gpu.pool_create(id, props.limit),
            _ => Ok(gpu.pool_create_on_host(props.limit)),
        };
        out.put(handle(created.map_err(|_| CudaCode::INVALID_VALUE)?))
    }

    fn [cudaMemPoolDestroy, cuMemPoolDestroy](named: Handle) |gpu| {
        gpu.pool_destroy(pool(named)?)
    }

    fn [cudaMemPoolTrimTo, cuMemPoolTrimTo](named: Handle, keep: usize) |gpu| {
        gpu.pool_trim(pool(named)?, keep)
    }

    fn [cudaMemPoolSetAttribute, cuMemPoolSetAttribute](
        named: Handle, attribute: c_int, value: In<u64>,
    ) |gpu| {
        let pool = pool(named)?;
        match figure(attribute) {
            Some(figure) => gpu.pool_figure(pool, figure, Some(value.get()?)).map(drop),
            None => {
                let switch = usize::try_from(attribute - 1).map_err(|_| CudaCode::INVALID_VALUE)?;
                let value = crate::abi::narrow(value).get()?;
                gpu.pool_switch(pool, switch, Some(value)).map(drop)
            }
        }
    }

    fn [cudaMemPoolGetAttribute, cuMemPoolGetAttribute](
        named: Handle, attribute: c_int, out: Out<u64>,
    ) |gpu| {
        let pool = pool(named)?;
        match figure(attribute) {
            Some(figure) => out.put(gpu.pool_figure(pool, figure, None)?),
            None => {
                let switch = usize::try_from(attribute - 1).map_err(|_| CudaCode::INVALID_VALUE)?;
                out.cast::<c_int>().put(gpu.pool_switch(pool, switch, None)?)
            }
        }
    }

    fn [cudaMemPoolSetAccess, cuMemPoolSetAccess](
        named: Handle, list: In<Access>, count: usize,
    ) |gpu| {
        let owner = gpu.pool_device(pool(named)?)?;
        let on_host = gpu.is_host_pool(pool(named)?)?;
        for index in 0..count {
            let access = list.nth(index).get()?;
            if on_host {
                // Every device can use page-locked memory.
                continue;
            }
            match (access.location.kind, access.flags) {
                (Location::DEVICE, READ_WRITE) => {
                    gpu.pool_access(owner, access.location.id)?;
                }
                (Location::DEVICE, 0) if access.location.id == owner => {
                    return Err(CudaCode::INVALID_DEVICE);
                }
                (Location::DEVICE, 0) => {}
                (Location::DEVICE, READ) | (Location::HOST, _) => {
                    return Err(CudaCode::NOT_SUPPORTED);
                }
                _ => return Err(CudaCode::INVALID_VALUE),
            }
        }
        Ok(())
    }

    fn [cudaMemPoolGetAccess, cuMemPoolGetAccess](
        out: Out<c_int>, named: Handle, location: In<Location>,
    ) |gpu| {
        let owner = gpu.pool_device(pool(named)?)?;
        let location = location.get()?;
        if gpu.is_host_pool(pool(named)?)? {
            return out.put(READ_WRITE);
        }
        if location.kind != Location::DEVICE {
            return out.put(0);
        }
        let invalid = |_| CudaCode::INVALID_VALUE;
        let opened = location.id == owner || gpu.is_opened(owner, location.id).map_err(invalid)?;
        out.put(if opened { READ_WRITE } else { 0 })
    }

    fn [
        cudaMallocFromPoolAsync / cudaMallocFromPoolAsync_ptsz,
        cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz
    ](
        out: Out<*mut c_void>, bytes: usize, named: Handle, of: Handle,
    ) |gpu, per_thread| {
        out.check()?;
        let pool = pool(named)?;
        let stream = stream(gpu, of, per_thread)?;
        out.put(gpu.malloc_async(stream, pool, bytes)?)
    }
}
