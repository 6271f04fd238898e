//! Memory of devices and page-locked memory, where the driver is stricter than the runtime; and
//! what a pointer is.

use std::ffi::{c_int, c_uint, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{Emulator, Held, Side};

use super::contexts;
use crate::abi::{In, Out};
use crate::{host, memory};

/// The driver refuses to allocate no bytes.
fn some(bytes: usize) -> DriverResult<usize> {
    if bytes == 0 { Err(CudaCode::INVALID_VALUE) } else { Ok(bytes) }
}

/// The lengths of elements of pitched allocations, in bytes.
const ELEMENTS: [c_uint; 3] = [4, 8, 16];

/// The memory that an address of a device or of page-locked memory names.
fn known(gpu: &Emulator, ptr: *const c_void) -> DriverResult<Held> {
    let held = gpu.held(ptr);
    if held.bytes == 0 { Err(CudaCode::INVALID_VALUE) } else { Ok(held) }
}

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`
const ON_HOST: u32 = 1;
const ON_DEVICE: u32 = 2;

/// The error for an attribute without an answer: it does not apply, it is not supported here, or it
/// does not exist.
fn unknown(attribute: c_int) -> CudaCode {
    let is_absent = [5, 6, 10, 14, 15, 16, 17, 18, 19, 20, 21].contains(&attribute);
    if is_absent { CudaCode::NOT_SUPPORTED } else { CudaCode::INVALID_VALUE }
}

/// Writes what an attribute says of a pointer.
fn answer(held: &Held, ptr: *const c_void, attribute: c_int, out: Out<u8>) -> DriverResult<()> {
    let is_managed = held.side == Side::Managed;
    let on_host = held.side != Side::OnDevice;
    match attribute {
        1 => out.cast().put(contexts::primary(held.device)),
        2 => out.cast().put(if on_host && !is_managed { ON_HOST } else { ON_DEVICE }),
        3 => out.cast().put(ptr),
        4 if on_host => out.cast().put(ptr),
        7 => out.cast().put(held.base.addr() as u64),
        8 => out.put(u8::from(is_managed)),
        9 => out.cast().put(held.device),
        11 => out.cast().put(held.base),
        12 => out.cast().put(held.bytes),
        13 => out.put(1),
        _ => Err(unknown(attribute)),
    }
}

cuda! {
    fn cuMemAlloc_v2(out: Out<*mut c_void>, bytes: usize) |gpu| {
        out.put(std::ptr::null_mut())?;
        out.put(gpu.malloc(some(bytes)?)?)
    }

    fn cuMemAllocHost_v2(out: Out<*mut c_void>, bytes: usize) |gpu| {
        host::alloc(gpu, out, bytes, 0)
    }

    fn cuMemHostAlloc(out: Out<*mut c_void>, bytes: usize, flags: c_uint) |gpu| {
        host::alloc(gpu, out, bytes, flags)
    }

    fn cuMemAllocManaged(out: Out<*mut c_void>, bytes: usize, flags: c_uint) |gpu| {
        out.check()?;
        memory::alloc_managed(gpu, out, some(bytes)?, flags)
    }

    fn cuMemAllocPitch_v2(
        out: Out<*mut c_void>, pitch: Out<usize>, width: usize, height: usize, element: c_uint,
    ) |gpu| {
        if width == 0 || height == 0 || !ELEMENTS.contains(&element) {
            return Err(CudaCode::INVALID_VALUE);
        }
        memory::alloc_lines(gpu, out, pitch, (width, height))
    }

    fn cuMemGetAddressRange_v2(
        base: Out<*mut c_void>, bytes: Out<usize>, ptr: *const c_void,
    ) |gpu| {
        let held = known(gpu, ptr).map_err(|_| CudaCode(500))?;
        base.put_if_any(held.base);
        bytes.put_if_any(held.bytes);
        Ok(())
    }

    fn cuPointerGetAttribute(out: Out<u8>, attribute: c_int, ptr: *const c_void) |gpu| {
        out.check()?;
        answer(&known(gpu, ptr)?, ptr, attribute, out)
    }

    /// What is not known of the pointer becomes 0.
    fn cuPointerGetAttributes(
        count: c_uint, attributes: In<c_int>, outs: In<usize>, ptr: *const c_void,
    ) |gpu| {
        let held = known(gpu, ptr);
        for index in 0..count as usize {
            let attribute = attributes.nth(index).get()?;
            let out: Out<u8> = Out::of(outs.nth(index).get()?);
            out.check()?;
            let known = held.and_then(|held| answer(&held, ptr, attribute, out));
            if known.is_err() {
                nothing(attribute, out)?;
            }
        }
        Ok(())
    }
}

/// The attribute of a pointer that nothing is known of.
fn nothing(attribute: c_int, out: Out<u8>) -> DriverResult<()> {
    match attribute {
        1 | 3 | 4 | 7 | 11 | 12 => out.cast().put(0_u64),
        2 => out.cast().put(0_u32),
        9 => out.cast().put(-2_i32),
        8 | 13 => out.put(0),
        _ => Err(unknown(attribute)),
    }
}
