//! The calls of Linux that the crates make. Programs for other systems compile with them, and no
//! device can be opened there: each call fails, if anything makes it at all.

#[cfg(target_os = "linux")]
pub use libc::*;
#[cfg(target_os = "linux")]
pub use std::os::unix::fs::FileExt;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::*;

#[cfg(not(target_os = "linux"))]
#[allow(non_camel_case_types, missing_docs, clippy::missing_safety_doc)]
mod elsewhere {
    use std::ffi::{c_char, c_int, c_void};
    use std::{fs, io, ptr};

    pub type pthread_t = usize;
    pub type c_ulong = u64;

    /// The code of a call that the system does not have.
    const ENOSYS: c_int = 38;

    pub const CPU_SETSIZE: c_int = 1024;
    pub const EINVAL: c_int = 22;
    pub const EIO: c_int = 5;
    pub const MADV_DOFORK: c_int = 11;
    pub const MADV_DONTFORK: c_int = 10;
    pub const MADV_HUGEPAGE: c_int = 14;
    pub const MADV_WIPEONFORK: c_int = 18;
    pub const MAP_ANONYMOUS: c_int = 32;
    pub const MAP_FAILED: *mut c_void = ptr::without_provenance_mut(usize::MAX);
    pub const MAP_PRIVATE: c_int = 2;
    pub const O_DIRECT: c_int = 0;
    pub const PROT_READ: c_int = 1;
    pub const PROT_WRITE: c_int = 2;
    pub const RTLD_DEFAULT: *mut c_void = ptr::null_mut();
    pub const RTLD_LAZY: c_int = 1;
    pub const RTLD_NODELETE: c_int = 0x1000;
    pub const RTLD_NOLOAD: c_int = 4;

    pub struct pthread_attr_t;

    pub struct Dl_info {
        pub dli_fname: *const c_char,
    }

    /// Functions that return this.
    macro_rules! fail {
        ($($name:ident: ($($type:ty),*) -> $result:ty = $answer:expr;)*) => {
            $(pub unsafe fn $name($(_: $type),*) -> $result { $answer })*
        };
    }

    fail! {
        atexit: (extern "C" fn()) -> c_int = ENOSYS;
        dladdr: (*const c_void, *mut Dl_info) -> c_int = 0;
        dlopen: (*const c_char, c_int) -> *mut c_void = ptr::null_mut();
        dlsym: (*mut c_void, *const c_char) -> *mut c_void = ptr::null_mut();
        madvise: (*mut c_void, usize, c_int) -> c_int = -1;
        mmap: (*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void = MAP_FAILED;
        munmap: (*mut c_void, usize) -> c_int = -1;
        pthread_atfork: (
            Option<unsafe extern "C" fn()>,
            Option<unsafe extern "C" fn()>,
            Option<unsafe extern "C" fn()>
        ) -> c_int = ENOSYS;
        pthread_attr_destroy: (*mut pthread_attr_t) -> c_int = ENOSYS;
        pthread_attr_init: (*mut pthread_attr_t) -> c_int = ENOSYS;
        pthread_attr_setstacksize: (*mut pthread_attr_t, usize) -> c_int = ENOSYS;
        pthread_create: (
            *mut pthread_t,
            *const pthread_attr_t,
            extern "C" fn(*mut c_void) -> *mut c_void,
            *mut c_void
        ) -> c_int = ENOSYS;
        pthread_detach: (pthread_t) -> c_int = ENOSYS;
        pthread_join: (pthread_t, *mut *mut c_void) -> c_int = ENOSYS;
        pthread_self: () -> pthread_t = 0;
        pthread_setname_np: (pthread_t, *const c_char) -> c_int = ENOSYS;
    }

    /// Reads of a file at an offset.
    pub trait FileExt {
        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    }

    impl FileExt for fs::File {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
