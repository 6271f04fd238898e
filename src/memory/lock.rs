//! Page-locks memory of this process (`cudaHostRegister`), or leaves it as it was.

use std::ptr::NonNull;

use crate::driver::{Driver, HostFlags, Ordinal};
use crate::error::CudaCode;

/// Memory that could not be registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotRegistered {
    pub(crate) code: CudaCode,
    /// Whether it may still be page-locked.
    pub(crate) may_be_locked: bool,
}

/// Registers memory. The error may come from earlier work, and the call may have registered the
/// memory all the same. Then it is unregistered. Never free memory that `may_be_locked`: CUDA keeps
/// the pages of a range that is freed while it is registered.
///
/// # Safety
///
/// * The range is mapped, readable and writable, and stays so until it is unregistered.
/// * No operation that names it is pending.
pub(crate) unsafe fn register(
    driver: &dyn Driver,
    device: Ordinal,
    ptr: NonNull<u8>,
    bytes: usize,
    flags: HostFlags,
) -> Result<(), NotRegistered> {
    // SAFETY: mapped, readable and writable, by the caller's first precondition.
    let Err(code) = (unsafe { driver.host_register(device, ptr, bytes, flags) }) else {
        return Ok(());
    };
    if code == CudaCode::HOST_MEMORY_ALREADY_REGISTERED {
        return Err(NotRegistered { code, may_be_locked: false });
    }
    // SAFETY: no operation names it, by the caller's second precondition; none has begun since.
    let undone = unsafe { driver.host_unregister(ptr) };
    let is_free = matches!(undone, Ok(()) | Err(CudaCode::HOST_MEMORY_NOT_REGISTERED));
    Err(NotRegistered { code, may_be_locked: !is_free })
}
