//! The seam's handles, attributes, flags and answers as CUDA's. The runtime's types have the same
//! numbers, by other names (the tests of `runtime/convert.rs`).

use super::driver_api::*;
use crate::error::CudaCode;
use pinlane_driver::{Attribute, DriverResult, HostFlags, Poll, RawEvent, RawStream};

/// What [`Driver::host_alloc`](pinlane_driver::Driver::host_alloc) promises. CUDA promises no
/// alignment of pinned memory.
pub(super) const PAGE: usize = 4096;

/// The handle as CUDA's type.
pub(super) fn stream_of(stream: RawStream) -> CUstream {
    std::ptr::with_exposed_provenance_mut(stream.handle)
}

pub(super) fn event_of(event: RawEvent) -> CUevent {
    std::ptr::with_exposed_provenance_mut(event.handle)
}

/// `CUdevice_attribute`
pub(super) fn attribute_of(attribute: Attribute) -> CUdevice_attribute {
    match attribute {
        Attribute::MemoryPoolsSupported => MEMORY_POOLS_SUPPORTED,
        Attribute::UnifiedAddressing => UNIFIED_ADDRESSING,
        Attribute::CanUseHostPointerForRegisteredMem => HOST_POINTER_FOR_REGISTERED,
        Attribute::HostRegisterReadOnly => READ_ONLY_REGISTRATION,
        Attribute::AsyncEngineCount => ASYNC_ENGINE_COUNT,
        Attribute::MaxPitch => MAX_PITCH,
        Attribute::PciDomainId => PCI_DOMAIN_ID,
        Attribute::PciBusId => PCI_BUS_ID,
        Attribute::PciDeviceId => PCI_DEVICE_ID,
        // `CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID`, by number: headers older than 12.2 do not name it.
        Attribute::HostNumaNode => 134,
    }
}

/// New memory is for all uses: the flag for reading only is refused, not dropped.
pub(super) fn alloc_flags(flags: HostFlags) -> DriverResult<u32> {
    if flags.read_only {
        return Err(CudaCode::INVALID_VALUE);
    }
    let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
    Ok(bit(flags.portable, HOST_ALLOC_PORTABLE)
        | bit(flags.mapped, HOST_ALLOC_MAPPED)
        | bit(flags.write_combined, HOST_ALLOC_WRITE_COMBINED))
}

/// Memory that exists already cannot become write-combined: that flag is refused, not dropped.
pub(super) fn register_flags(flags: HostFlags) -> DriverResult<u32> {
    if flags.write_combined {
        return Err(CudaCode::INVALID_VALUE);
    }
    let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
    Ok(bit(flags.portable, HOST_REGISTER_PORTABLE)
        | bit(flags.mapped, HOST_REGISTER_MAPPED)
        | bit(flags.read_only, HOST_REGISTER_READ_ONLY))
}

/// Turns the error "not ready" into a result.
pub(super) fn poll(answer: DriverResult<()>) -> DriverResult<Poll> {
    match answer {
        Ok(()) => Ok(Poll::Done),
        Err(CudaCode::NOT_READY) => Ok(Poll::NotReady),
        Err(code) => Err(code),
    }
}

/// The bytes to allocate for a request of page-locked memory: whole pages, so that blocks do not
/// share pages. CUDA returns NULL and success for 0 bytes.
pub(super) fn whole_pages(bytes: usize) -> DriverResult<usize> {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(0) => Err(CudaCode::INVALID_VALUE),
        Some(bytes) => Ok(bytes),
        None => Err(CudaCode::MEMORY_ALLOCATION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_kept_or_refused() {
        let flags = HostFlags { write_combined: true, ..HostFlags::default() };
        assert_eq!(register_flags(flags), Err(CudaCode::INVALID_VALUE));
        let flags = HostFlags { portable: true, mapped: true, ..HostFlags::default() };
        assert_eq!(register_flags(flags), Ok(3));
        let flags = HostFlags { read_only: true, ..flags };
        assert_eq!(register_flags(flags), Ok(11));
        assert_eq!(alloc_flags(flags), Err(CudaCode::INVALID_VALUE));
    }

    #[test]
    fn soundness_rule_13_every_host_flag_is_kept() {
        for bits in 0..8u32 {
            let flags = HostFlags {
                portable: bits & 1 != 0,
                mapped: bits & 2 != 0,
                write_combined: bits & 4 != 0,
                read_only: false,
            };
            assert_eq!(alloc_flags(flags), Ok(bits));
        }
    }

    #[test]
    fn page_locked_memory_has_whole_pages() {
        assert_eq!(whole_pages(0), Err(CudaCode::INVALID_VALUE));
        assert_eq!(whole_pages(1), Ok(PAGE));
        assert_eq!(whole_pages(PAGE), Ok(PAGE));
        assert_eq!(whole_pages(PAGE + 1), Ok(2 * PAGE));
        assert_eq!(whole_pages(usize::MAX), Err(CudaCode::MEMORY_ALLOCATION));
    }

    #[test]
    fn not_ready_is_an_answer_and_all_else_an_error() {
        assert_eq!(poll(Ok(())), Ok(Poll::Done));
        assert_eq!(poll(Err(CudaCode::NOT_READY)), Ok(Poll::NotReady));
        assert_eq!(poll(Err(CudaCode::UNKNOWN)), Err(CudaCode::UNKNOWN));
    }
}
