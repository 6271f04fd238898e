//! The seam's types as the runtime's: addresses, handles and attributes.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::super::words;
use super::sys;
use pinlane_driver::{Attribute, DevicePtr, RawEvent, RawStream};

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
    words::stream_of(stream).cast()
}

pub(super) fn event_of(event: RawEvent) -> sys::cudaEvent_t {
    words::event_of(event).cast()
}

pub(super) fn attribute_of(attribute: Attribute) -> sys::cudaDeviceAttr {
    sys::cudaDeviceAttr(words::attribute_of(attribute))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::cuda::words::{alloc_flags, register_flags};
    use pinlane_driver::HostFlags;

    /// [`words`] has the driver API's; the headers of the runtime have them by these names.
    #[test]
    fn numbers_are_those_of_the_runtime() {
        use sys::cudaDeviceAttr as Attr;
        for (attribute, theirs) in [
            (Attribute::MemoryPoolsSupported, Attr::cudaDevAttrMemoryPoolsSupported),
            (Attribute::UnifiedAddressing, Attr::cudaDevAttrUnifiedAddressing),
            (
                Attribute::CanUseHostPointerForRegisteredMem,
                Attr::cudaDevAttrCanUseHostPointerForRegisteredMem,
            ),
            (Attribute::HostRegisterReadOnly, Attr::cudaDevAttrHostRegisterReadOnlySupported),
            (Attribute::AsyncEngineCount, Attr::cudaDevAttrAsyncEngineCount),
            (Attribute::MaxPitch, Attr::cudaDevAttrMaxPitch),
            (Attribute::PciDomainId, Attr::cudaDevAttrPciDomainId),
            (Attribute::PciBusId, Attr::cudaDevAttrPciBusId),
            (Attribute::PciDeviceId, Attr::cudaDevAttrPciDeviceId),
        ] {
            assert_eq!(attribute_of(attribute), theirs, "{attribute:?}");
        }

        let none = HostFlags::default();
        assert_eq!(alloc_flags(none), Ok(sys::cudaHostAllocDefault));
        assert_eq!(register_flags(none), Ok(sys::cudaHostRegisterDefault));
        let portable = HostFlags { portable: true, ..none };
        assert_eq!(alloc_flags(portable), Ok(sys::cudaHostAllocPortable));
        assert_eq!(register_flags(portable), Ok(sys::cudaHostRegisterPortable));
        let mapped = HostFlags { mapped: true, ..none };
        assert_eq!(alloc_flags(mapped), Ok(sys::cudaHostAllocMapped));
        assert_eq!(register_flags(mapped), Ok(sys::cudaHostRegisterMapped));
        let read_only = HostFlags { read_only: true, ..none };
        assert_eq!(register_flags(read_only), Ok(sys::cudaHostRegisterReadOnly));
        let write_combined = HostFlags { write_combined: true, ..none };
        assert_eq!(alloc_flags(write_combined), Ok(sys::cudaHostAllocWriteCombined));
    }
}
