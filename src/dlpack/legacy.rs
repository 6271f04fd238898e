//! Tensors of DLPack before 1.0, without a version and flags, for libraries that support nothing
//! newer.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::{ManagedTensor, Tensor, VERSION, delete};
use crate::error::{Error, Result};
use crate::process::call_user;

/// A tensor and the owner of its memory (`DLManagedTensor`).
#[repr(C)]
#[derive(Debug)]
pub struct LegacyTensor {
    /// The tensor itself.
    pub tensor: Tensor,
    /// The producer's context.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and gives the memory back; called once, on any thread. May be NULL.
    pub deleter: Option<unsafe extern "C" fn(*mut LegacyTensor)>,
}

const _: () = assert!(size_of::<LegacyTensor>() == 64);

/// The same tensor in the older form. Its deleter calls that of `tensor`.
///
/// # Safety
///
/// * `tensor` is live, of version 1, and the caller owns it. If the call succeeds, the result owns
///   it.
///
/// # Errors
///
/// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) for a tensor that is read-only or
/// padded: the older form cannot express that.
pub unsafe fn to_legacy(tensor: NonNull<ManagedTensor>) -> Result<NonNull<LegacyTensor>> {
    // SAFETY: live, by the precondition.
    let managed = unsafe { tensor.as_ref() };
    if managed.version.major != VERSION.major || managed.flags & !ManagedTensor::COPIED != 0 {
        let what = format!("version {}, flags {:#x}", managed.version.major, managed.flags);
        let remedy = "pass a writable and packed tensor of DLPack 1 to libraries of DLPack 0";
        return Err(Error::invalid("to_legacy", what, remedy));
    }
    let legacy = LegacyTensor {
        tensor: managed.tensor,
        manager_ctx: tensor.as_ptr().cast(),
        deleter: Some(delete_newer),
    };
    Ok(NonNull::from(Box::leak(Box::new(legacy))))
}

/// The same tensor in the newer form. Its deleter calls that of `legacy`. Its elements count as
/// [packed](crate::dlpack#elements-of-less-than-a-byte).
///
/// # Safety
///
/// * `legacy` is live, and the caller owns it. The result takes it over.
#[must_use]
pub unsafe fn from_legacy(legacy: NonNull<LegacyTensor>) -> NonNull<ManagedTensor> {
    NonNull::from(Box::leak(Box::new(ManagedTensor {
        version: VERSION,
        manager_ctx: legacy.as_ptr().cast(),
        deleter: Some(delete_older),
        flags: 0,
        // SAFETY: live, by the precondition.
        tensor: unsafe { legacy.as_ref() }.tensor,
    })))
}

/// # Safety
///
/// * `legacy` is NULL, or came from [`to_legacy`] and is not used afterwards.
unsafe extern "C" fn delete_newer(legacy: *mut LegacyTensor) {
    let Some(legacy) = NonNull::new(legacy) else { return };
    // SAFETY: `to_legacy` made it, and its context is the tensor that it took over.
    let context = unsafe { Box::from_raw(legacy.as_ptr()) }.manager_ctx;
    if let Some(tensor) = NonNull::new(context.cast::<ManagedTensor>()) {
        // SAFETY: live until now, and owned by the struct that was just freed.
        call_user(|| unsafe { delete(tensor) });
    }
}

/// # Safety
///
/// * `tensor` is NULL, or came from [`from_legacy`] and is not used afterwards.
unsafe extern "C" fn delete_older(tensor: *mut ManagedTensor) {
    let Some(tensor) = NonNull::new(tensor) else { return };
    // SAFETY: `from_legacy` made it, and its context is the tensor that it took over.
    let context = unsafe { Box::from_raw(tensor.as_ptr()) }.manager_ctx;
    let Some(legacy) = NonNull::new(context.cast::<LegacyTensor>()) else { return };
    // SAFETY: live until now, and owned by the struct that was just freed.
    if let Some(deleter) = unsafe { legacy.as_ref() }.deleter {
        // SAFETY: as above.
        call_user(|| unsafe { deleter(legacy.as_ptr()) });
    }
}
