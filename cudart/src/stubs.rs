//! Names that NVIDIA's runtime exports and this library does not have. build.rs lists them.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use pinlane::CudaCode;

use crate::{boundary, machine};

/// Says once that the library does not have something.
pub fn remark_once(said: &AtomicBool, name: &str) {
    if !said.swap(true, Ordering::Relaxed) && !machine::is_quiet() {
        eprintln!("pinlane-cudart: {name} is not there: cudaErrorNotSupported");
    }
}

fn refuse(said: &AtomicBool, name: &str) -> c_int {
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
