//! Functions of the driver by their names, as `cuGetProcAddress` gives them. The name `cuMemAlloc`
//! means `cuMemAlloc_v2` for programs of CUDA 3.2 and later; the flags say whether it means the
//! form for per-thread default streams.

use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};
use std::sync::OnceLock;

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;

use crate::abi::{Handle, Out};
use crate::environment;

/// A name, the version of CUDA since which it means this export, whether that is the form for
/// per-thread default streams, and the export.
type Row = (&'static str, c_int, bool, &'static CStr);

static ROWS: &[Row] = include!(concat!(env!("OUT_DIR"), "/entry_points.rs"));

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`, and all flags.
pub const PER_THREAD: c_ulonglong = 2;
const FLAGS: c_ulonglong = 3;

/// What was found: `CUdriverProcAddressQueryResult`.
const FOUND: c_int = 0;
const NOT_FOUND: c_int = 1;
const TOO_NEW: c_int = 2;

/// The library that this code is in, as the dynamic linker knows it.
fn library() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let open = || {
        let here = std::ptr::from_ref(ROWS).cast::<c_void>();
        // SAFETY: a struct of pointers and numbers, which the call fills; the path that it gives
        // stays as long as the library is loaded.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(here, &mut info) == 0 {
                return 0;
            }
            libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD).expose_provenance()
        }
    };
    std::ptr::with_exposed_provenance_mut(*LIBRARY.get_or_init(open))
}

/// The address of a function, and what was found.
///
/// # Errors
///
/// `INVALID_VALUE` for NULL, for unknown flags, and for versions that the driver does not know yet.
pub fn find(
    name: *const c_char,
    version: c_int,
    flags: c_ulonglong,
) -> DriverResult<(Handle, c_int)> {
    if name.is_null() || flags & !FLAGS != 0 || version > environment::driver_version() {
        return Err(CudaCode::INVALID_VALUE);
    }
    // The newest one, as drivers answer it.
    let version = if version < 0 { environment::driver_version() } else { version };
    // SAFETY: CUDA demands of its callers that it is a string.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default();
    let of_thread = flags & PER_THREAD != 0;
    let known = |row: &&Row| row.0 == name && (of_thread || !row.2);
    let usable = ROWS.iter().filter(known).filter(|row| row.1 <= version);
    // The newest version; its form for the thread's stream, if it has one.
    let export = match usable.max_by_key(|row| (row.1, row.2)) {
        Some(&(_, _, _, export)) => export,
        None if ROWS.iter().any(|row| known(&row)) => return Ok((0, TOO_NEW)),
        _ => return Ok((0, NOT_FOUND)),
    };
    let library = library();
    if library.is_null() {
        return Ok((0, NOT_FOUND));
    }
    // SAFETY: a handle of the dynamic linker, and a string.
    let found = unsafe { libc::dlsym(library, export.as_ptr()) };
    Ok((found.expose_provenance(), if found.is_null() { NOT_FOUND } else { FOUND }))
}

fn give(
    name: *const c_char,
    out: Out<Handle>,
    version: c_int,
    flags: c_ulonglong,
) -> DriverResult<c_int> {
    out.check()?;
    let (address, status) = find(name, version, flags)?;
    out.put(address)?;
    Ok(status)
}

cuda! {
    fn cuGetProcAddress(
        name: *const c_char, out: Out<Handle>, version: c_int, flags: c_ulonglong,
    ) |_face| {
        match give(name, out, version, flags)? {
            FOUND => Ok(()),
            // CUDA_ERROR_NOT_FOUND
            _ => Err(CudaCode(500)),
        }
    }

    /// For an unknown function it succeeds, and the address is NULL.
    fn cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz(
        name: *const c_char, out: Out<Handle>, version: c_int, flags: c_ulonglong,
        found: Out<c_int>,
    ) |_face, per_thread| {
        let flags = if flags == 0 && per_thread { PER_THREAD } else { flags };
        found.put_if_any(give(name, out, version, flags)?);
        Ok(())
    }
}
