//! Names that NVIDIA's libraries export and this one does not have. build.rs lists them.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use pinlane_driver::CudaCode;

use crate::boundary::{self, Api};
use crate::environment;

/// Says once that the library does not have something.
pub fn remark_once(said: &AtomicBool, name: &str) {
    if !said.swap(true, Ordering::Relaxed) && !environment::is_quiet() {
        let code = match Api::of(name) {
            Api::Runtime => "cudaErrorNotSupported",
            Api::Driver => "CUDA_ERROR_NOT_SUPPORTED",
        };
        eprintln!("pinlane-cudart: {name} is not there: {code}");
    }
}

fn refuse(said: &AtomicBool, name: &'static str) -> c_int {
    remark_once(said, name);
    boundary::call(name, |_| Err(CudaCode::NOT_SUPPORTED))
}

macro_rules! stub {
    ($name:ident) => {
        // Arguments are left where they are: the caller takes care of them.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            static SAID: AtomicBool = AtomicBool::new(false);
            refuse(&SAID, stringify!($name))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
