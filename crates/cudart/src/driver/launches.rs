//! Launches of functions, and what they need of a multiprocessor.

use std::ffi::{c_char, c_int, c_uint, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::Emulator;

use super::modules::{NOT_FOUND, function};
use crate::abi::{Dim3, Handle, In, Out};
use crate::driver::contexts::stream;
use crate::kernels::resident;
use crate::properties;
use crate::stand_ins::{self, MOST_THREADS, Shape};

/// The shared memory of a block, unless it asks for more.
const SHARED: usize = 48 << 10;
/// The attribute of a device that says how many multiprocessors it has.
const MULTIPROCESSORS: c_int = 16;

/// `CUlaunchConfig`, without the attributes at its end.
#[repr(C)]
#[derive(Clone, Copy)]
struct Launch {
    grid: Dim3,
    block: Dim3,
    shared: c_uint,
    stream: Handle,
}

fn launch(
    gpu: &Emulator,
    named: Handle,
    how: Launch,
    args: *mut *mut c_void,
    extra: *mut *mut c_void,
    per_thread: bool,
) -> DriverResult<()> {
    let kernel = function(named)?.kernel();
    if !extra.is_null() {
        // All arguments in one buffer.
        return Err(CudaCode::NOT_SUPPORTED);
    }
    let stream = stream(gpu, how.stream, per_thread)?;
    let shape = Shape { grid: how.grid, block: how.block, shared: how.shared as usize };
    stand_ins::launch(gpu, &kernel, shape, args, stream)
}

/// An attribute of a function (`CUfunction_attribute`).
fn attribute(number: c_int) -> DriverResult<c_int> {
    match number {
        0 => Ok(MOST_THREADS as c_int),
        // Registers; the versions of its code.
        4 => Ok(32),
        5 | 6 => Ok(90),
        8 => Ok(SHARED as c_int),
        9 => Ok(-1),
        1..=3 | 7 | 10..=15 => Ok(0),
        _ => Err(CudaCode::INVALID_VALUE),
    }
}

cuda! {
    fn cuLaunchKernel / cuLaunchKernel_ptsz(
        named: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: Handle,
        args: *mut *mut c_void, extra: *mut *mut c_void,
    ) |gpu, per_thread| {
        let grid = Dim3 { x: grid_x, y: grid_y, z: grid_z };
        let block = Dim3 { x: block_x, y: block_y, z: block_z };
        launch(gpu, named, Launch { grid, block, shared, stream }, args, extra, per_thread)
    }

    fn cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        named: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: Handle,
        args: *mut *mut c_void,
    ) |gpu, per_thread| {
        let grid = Dim3 { x: grid_x, y: grid_y, z: grid_z };
        let block = Dim3 { x: block_x, y: block_y, z: block_z };
        let none = std::ptr::null_mut();
        launch(gpu, named, Launch { grid, block, shared, stream }, args, none, per_thread)
    }

    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: In<Launch>, named: Handle, args: *mut *mut c_void, extra: *mut *mut c_void,
    ) |gpu, per_thread| {
        launch(gpu, named, config.get()?, args, extra, per_thread)
    }

    // All devices have the same code.
    fn [cuFuncGetAttribute, cuKernelGetAttribute](
        out: Out<c_int>, number: c_int, named: Handle,
    ) |_face| {
        out.check()?;
        function(named)?;
        out.put(attribute(number)?)
    }

    fn cuFuncSetAttribute(named: Handle, number: c_int, _value: c_int) |_face| {
        attribute(number)?;
        function(named).map(drop)
    }

    fn cuKernelSetAttribute(number: c_int, _value: c_int, named: Handle) |_face| {
        attribute(number)?;
        function(named).map(drop)
    }

    fn [cuFuncSetCacheConfig, cuKernelSetCacheConfig](named: Handle, _config: c_int) |_face| {
        function(named).map(drop)
    }

    // A kernel that is registered with the runtime is in none.
    fn [cuFuncGetModule, cuKernelGetLibrary](out: Out<Handle>, named: Handle) |_face| {
        let module = function(named)?.module;
        if module == 0 { Err(NOT_FOUND) } else { out.put(module) }
    }

    // Shared memory and flags do not count.
    fn [
        cuOccupancyMaxActiveBlocksPerMultiprocessor,
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    ](
        out: Out<c_int>, named: Handle, threads: c_int,
    ) |_face| {
        function(named)?;
        out.put(resident(threads)?)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        out: Out<usize>, named: Handle, _blocks: c_int, _threads: c_int,
    ) |_face| {
        function(named)?;
        out.put(SHARED)
    }

    // The largest block, and how many of them fill the device.
    fn [cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSizeWithFlags](
        blocks: Out<c_int>, threads: Out<c_int>, named: Handle, _shared_of: *const c_char,
        _shared: usize, limit: c_int,
    ) |_face| {
        function(named)?;
        let most = MOST_THREADS as c_int;
        let size = if (1..most).contains(&limit) { limit } else { most };
        let all = properties::attribute(MULTIPROCESSORS, 0).unwrap_or(1);
        blocks.put(all * resident(size)?)?;
        threads.put(size)
    }
}
