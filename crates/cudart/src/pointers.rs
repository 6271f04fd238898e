//! What a pointer is.

use std::ffi::{c_int, c_void};

use pinlane_emulator::Side;

use crate::abi::Out;
use crate::environment;

/// `cudaPointerAttributes`, without what CUDA 13 reserves at its end.
#[repr(C)]
struct Attributes {
    kind: c_int,
    device: c_int,
    on_device: *mut c_void,
    on_host: *mut c_void,
}

/// How much CUDA 13 reserves.
const RESERVED: usize = 64;

cuda! {
    fn cudaPointerGetAttributes(out: Out<Attributes>, ptr: *const c_void) |gpu| {
        out.check()?;
        let held = gpu.held(ptr);
        let (here, none) = (ptr.cast_mut(), std::ptr::null_mut());
        let attributes = match held.side {
            Side::OnDevice if held.bytes > 0 => {
                Attributes { kind: 2, device: held.device, on_device: here, on_host: none }
            }
            Side::PageLocked => {
                Attributes { kind: 1, device: held.device, on_device: here, on_host: here }
            }
            Side::Managed => {
                Attributes { kind: 3, device: held.device, on_device: here, on_host: here }
            }
            // Plain memory of the host (rule 23), and addresses that were freed.
            Side::Pageable | Side::OnDevice => {
                Attributes { kind: 0, device: -2, on_device: none, on_host: here }
            }
        };
        out.put(attributes)?;
        if environment::major() >= 13 {
            out.at(size_of::<Attributes>()).cast::<[u8; RESERVED]>().put([0; RESERVED])?;
        }
        Ok(())
    }
}
