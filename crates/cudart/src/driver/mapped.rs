//! Virtual memory: addresses that a program reserves, and memory that it maps there. Handles for
//! other processes are stubs.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{CreatedMemory, Emulator, MappedAccess};

use crate::abi::{In, Location, MANAGED, Out, PINNED};

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    of_windows: usize,
    compression: u8,
    for_rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
struct AccessOf {
    location: Location,
    flags: c_uint,
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const FILE_DESCRIPTOR: c_int = 1;

/// The modes of access, by their numbers.
const MODES: [(c_uint, MappedAccess); 3] =
    [(0, MappedAccess::None), (1, MappedAccess::Read), (3, MappedAccess::ReadWrite)];

/// The device that properties name, if such memory can be made here.
fn device_of(gpu: &Emulator, of: &Properties) -> DriverResult<c_int> {
    match (of.kind, of.location.kind) {
        (PINNED, Location::DEVICE) => {}
        (
            PINNED | MANAGED,
            Location::DEVICE | Location::HOST | Location::HOST_NODE | Location::HOST_NODE_OF_THREAD,
        ) => return Err(CudaCode::NOT_SUPPORTED),
        _ => return Err(CudaCode::INVALID_VALUE),
    }
    gpu.check_device(of.location.id)?;
    let is_there = [0, FILE_DESCRIPTOR].contains(&of.handle_types) && of.usage == 0;
    if is_there { Ok(of.location.id) } else { Err(CudaCode::NOT_SUPPORTED) }
}

fn no_flags(flags: c_ulonglong) -> DriverResult<()> {
    if flags == 0 { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
}

cuda! {
    fn cuMemGetAllocationGranularity(
        out: Out<usize>, properties: In<Properties>, option: c_uint,
    ) |gpu| {
        out.check()?;
        device_of(gpu, &properties.get()?)?;
        // The least, or what is recommended.
        if option > 1 {
            return Err(CudaCode::INVALID_VALUE);
        }
        out.put(Emulator::MAPPED_GRANULARITY)
    }

    // The address that the program would like is a hint.
    fn cuMemAddressReserve(
        out: Out<*mut c_void>, bytes: usize, alignment: usize, _hint: *mut c_void,
        flags: c_ulonglong,
    ) |gpu| {
        out.check()?;
        no_flags(flags)?;
        out.put(gpu.reserve_addresses(bytes, alignment)?)
    }

    fn cuMemAddressFree(ptr: *mut c_void, bytes: usize) |gpu| {
        gpu.free_addresses(ptr, bytes)
    }

    fn cuMemCreate(
        out: Out<u64>, bytes: usize, properties: In<Properties>, flags: c_ulonglong,
    ) |gpu| {
        out.check()?;
        no_flags(flags)?;
        let properties = properties.get()?;
        let (device, handle_types) = (device_of(gpu, &properties)?, properties.handle_types);
        out.put(gpu.create_memory(CreatedMemory { device, bytes, handle_types })?)
    }

    fn cuMemRelease(handle: u64) |gpu| {
        gpu.release_memory(handle)
    }

    fn cuMemMap(
        ptr: *mut c_void, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong,
    ) |gpu| {
        no_flags(flags)?;
        // CUDA has no other offsets yet.
        if offset != 0 { Err(CudaCode::INVALID_VALUE) } else { gpu.map_memory(ptr, bytes, handle) }
    }

    fn cuMemUnmap(ptr: *mut c_void, bytes: usize) |gpu| {
        gpu.unmap_memory(ptr, bytes)
    }

    fn cuMemSetAccess(
        ptr: *mut c_void, bytes: usize, all: In<AccessOf>, count: usize,
    ) |gpu| {
        if count == 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        // All of them, or none.
        let wanted = (0..count).map(|at| {
            let AccessOf { location, flags } = all.nth(at).get()?;
            let mode = MODES.iter().find(|(number, _)| *number == flags);
            let mode = mode.filter(|_| location.kind == Location::DEVICE);
            let &(_, mode) = mode.ok_or(CudaCode::INVALID_VALUE)?;
            gpu.check_device(location.id)?;
            Ok((location.id, mode))
        });
        let wanted: Vec<_> = wanted.collect::<DriverResult<_>>()?;
        let set = |(device, mode)| gpu.set_mapped_access(ptr, bytes, device, mode);
        wanted.into_iter().try_for_each(set)
    }

    fn cuMemGetAccess(
        out: Out<c_ulonglong>, location: In<Location>, ptr: *const c_void,
    ) |gpu| {
        out.check()?;
        let location = location.get()?;
        if location.kind != Location::DEVICE {
            return Err(CudaCode::INVALID_VALUE);
        }
        let access = gpu.mapped_access(ptr, location.id)?;
        let mode = MODES.iter().find(|(_, mode)| *mode == access);
        out.put(mode.map_or(0, |&(number, _)| number.into()))
    }

    fn cuMemRetainAllocationHandle(out: Out<u64>, ptr: *const c_void) |gpu| {
        out.check()?;
        out.put(gpu.retain_memory(ptr)?)
    }

    fn cuMemGetAllocationPropertiesFromHandle(out: Out<Properties>, handle: u64) |gpu| {
        out.check()?;
        let CreatedMemory { device, handle_types, .. } = gpu.created_memory(handle)?;
        out.put(Properties {
            kind: PINNED,
            handle_types,
            location: Location { kind: Location::DEVICE, id: device },
            of_windows: 0,
            compression: 0,
            for_rdma: 0,
            usage: 0,
            reserved: [0; 4],
        })
    }
}
