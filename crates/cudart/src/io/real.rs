//! The functions that ours replace: the next ones of their names, in libraries after this one.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One function. It is looked for when the library is loaded, or by its first call if that comes
/// before.
pub struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Self {
        Real { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// NULL if there is none.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.find() } else { address }
    }

    #[cold]
    pub fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with NUL.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// What a call gives that cannot be made.
pub trait Missing {
    const MISSING: Self;
}

impl Missing for isize {
    const MISSING: Self = -1;
}

/// Calls on streams of C have read or written nothing.
impl Missing for usize {
    const MISSING: Self = 0;
}

#[cold]
pub fn missing<R: Missing>() -> R {
    // SAFETY: where the thread keeps its error number.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    R::MISSING
}
