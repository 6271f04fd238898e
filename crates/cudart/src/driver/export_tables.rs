//! `cuGetExportTable`: tables of functions that NVIDIA's libraries have for each other, and that no
//! document describes. NVIDIA's runtime asks for them first of all. So the caller is a runtime that
//! is linked into the program, or one that this library has not replaced. Such a runtime cannot
//! work on this driver.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, PoisonError};

use pinlane_driver::CudaCode;

use crate::abi::Out;
use crate::lines;

/// NVIDIA's libraries that have a runtime.
const LIBRARIES: [&str; 9] = [
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcufile",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libnccl",
    "libnvshmem",
];

/// The file of the program or library that calls.
fn caller() -> String {
    let at = std::ptr::without_provenance(lines::first_caller());
    // SAFETY: the call fills a struct of pointers and numbers; a name that it gives is a string,
    // and stays as long as the file is loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(at, &raw mut info) == 0 || info.dli_fname.is_null() {
            return "the program".to_owned();
        }
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    }
}

/// What is the matter with a file, and what to do.
fn trouble(caller: &str) -> &'static str {
    let name = caller.rsplit('/').next().unwrap_or(caller);
    match () {
        () if name.starts_with("libcupti") => {
            "does not run on this driver: profile without events of devices"
        }
        // NVIDIA's libraries are linked with a runtime of their own, and cannot be linked anew.
        () if LIBRARIES.iter().any(|library| name.starts_with(library)) => {
            "has NVIDIA's own CUDA runtime, which does not run on this driver: its calls fail"
        }
        () => {
            "has NVIDIA's own CUDA runtime, which does not run on this driver: its calls fail. \
             Link the shared runtime, so that this project's takes its place: nvcc -cudart shared, \
             in CMake CUDA_RUNTIME_LIBRARY Shared or CUDA::cudart, else -lcudart for \
             -lcudart_static. If it is shared already, preload libcudart.so.13 of this project \
             (docs/drop-in.md)"
        }
    }
}

cuda! {
    fn cuGetExportTable(out: Out<*const c_void>, _id: *const c_void) |_face| {
        static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let caller = caller();
        // Also where remarks are off: nothing works.
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(caller.clone()) {
            eprintln!("pinlane-cudart: {caller} {}", trouble(&caller));
        }
        out.put_if_any(std::ptr::null());
        Err(CudaCode::NOT_SUPPORTED)
    }
}
