//! The seam's types as the runtime's: addresses, handles, flags and attributes.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::super::handles;
use super::sys;
use crate::driver::{Attribute, DevicePtr, DriverResult, HostFlags, RawEvent, RawStream};
use crate::error::CudaCode;

/// An address that CUDA takes or returns. Never dereferenced here.
#[derive(Clone, Copy)]
pub(super) struct Address(*mut c_void);

// SAFETY: CUDA takes an address on any thread; this type never dereferences it.
unsafe impl Send for Address {}

impl Address {
    pub(super) fn null() -> Self {
        Address(null_mut())
    }

    pub(super) fn host(ptr: *const u8) -> Self {
        Address(ptr.cast_mut().cast())
    }

    pub(super) fn device(ptr: DevicePtr) -> Self {
        // Device addresses have no provenance on the host.
        Address(std::ptr::without_provenance_mut(ptr as usize))
    }

    /// The pointer. A method, so that a closure captures the whole, which may change threads.
    pub(super) fn get(self) -> *mut c_void {
        self.0
    }

    /// The address as the driver API's `CUdeviceptr`.
    pub(super) fn number(self) -> u64 {
        self.0.addr() as u64
    }

    pub(super) fn slot(&mut self) -> *mut *mut c_void {
        &mut self.0
    }
}

/// The handle as the runtime's type.
pub(super) fn stream_of(stream: RawStream) -> sys::cudaStream_t {
    handles::stream_of(stream).cast()
}

pub(super) fn event_of(event: RawEvent) -> sys::cudaEvent_t {
    handles::event_of(event).cast()
}

pub(super) fn attribute_of(attribute: Attribute) -> sys::cudaDeviceAttr {
    use sys::cudaDeviceAttr as Attr;
    match attribute {
        Attribute::MemoryPoolsSupported => Attr::cudaDevAttrMemoryPoolsSupported,
        Attribute::UnifiedAddressing => Attr::cudaDevAttrUnifiedAddressing,
        Attribute::CanUseHostPointerForRegisteredMem => {
            Attr::cudaDevAttrCanUseHostPointerForRegisteredMem
        }
        Attribute::AsyncEngineCount => Attr::cudaDevAttrAsyncEngineCount,
        Attribute::PciDomainId => Attr::cudaDevAttrPciDomainId,
        Attribute::PciBusId => Attr::cudaDevAttrPciBusId,
        Attribute::PciDeviceId => Attr::cudaDevAttrPciDeviceId,
        // `cudaDevAttrHostNumaId`, by number: headers older than 12.2 do not name it.
        Attribute::HostNumaNode => sys::cudaDeviceAttr(134),
    }
}

pub(super) fn alloc_flags(flags: HostFlags) -> u32 {
    sys::cudaHostAllocDefault
        | if flags.portable { sys::cudaHostAllocPortable } else { 0 }
        | if flags.mapped { sys::cudaHostAllocMapped } else { 0 }
        | if flags.write_combined { sys::cudaHostAllocWriteCombined } else { 0 }
}

/// Memory that exists already cannot become write-combined: that flag is refused, not dropped.
pub(super) fn register_flags(flags: HostFlags) -> DriverResult<u32> {
    if flags.write_combined {
        return Err(CudaCode::INVALID_VALUE);
    }
    Ok(sys::cudaHostRegisterDefault
        | if flags.portable { sys::cudaHostRegisterPortable } else { 0 }
        | if flags.mapped { sys::cudaHostRegisterMapped } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_refuses_write_combined() {
        let flags = HostFlags { write_combined: true, ..HostFlags::default() };
        assert_eq!(register_flags(flags), Err(CudaCode::INVALID_VALUE));
        let flags = HostFlags { portable: true, mapped: true, write_combined: false };
        assert_eq!(register_flags(flags), Ok(3));
    }

    #[test]
    fn soundness_rule_13_every_host_flag_is_kept() {
        for bits in 0..8u32 {
            let flags = HostFlags {
                portable: bits & 1 != 0,
                mapped: bits & 2 != 0,
                write_combined: bits & 4 != 0,
            };
            assert_eq!(alloc_flags(flags), bits);
        }
    }
}
