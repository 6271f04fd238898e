//! CUPTI, as far as PyTorch's profiler calls it: every call says that it is not supported, so that
//! a profile has no events of devices.
//!
//! CUPTI asks NVIDIA's driver for tables that no document describes. Without them it calls itself
//! until the stack overflows. These functions have no version, as the replaced calls of the C
//! library, so the dynamic linker binds them before CUPTI's if this library is preloaded.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::Out;
use crate::environment;

/// `CUPTI_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: c_int = 27;

fn refuse(name: &str) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) && !environment::is_quiet() {
        eprintln!(
            "pinlane-cudart: {name} is not there: CUPTI_ERROR_NOT_SUPPORTED. A profile has no \
             events of devices"
        );
    }
    NOT_SUPPORTED
}

macro_rules! refused {
    ($($name:ident)*) => { $(
        // Arguments are left where they are: the caller takes care of them.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            refuse(stringify!($name))
        }
    )* };
}

refused! {
    cuptiActivityDisable
    cuptiActivityEnable
    cuptiActivityEnableCudaEventDeviceTimestamps
    cuptiActivityEnableDriverApi
    cuptiActivityEnableRuntimeApi
    cuptiActivityFlushAll
    cuptiActivityGetNextRecord
    cuptiActivityGetNumDroppedRecords
    cuptiActivityPopExternalCorrelationId
    cuptiActivityPushExternalCorrelationId
    cuptiActivityRegisterCallbacks
    cuptiActivityRegisterTimestampCallback
    cuptiActivitySetAttribute
    cuptiEnableCallback
    cuptiEnableDomain
    cuptiFinalize
    cuptiGetCallbackName
    cuptiSubscribe
    cuptiUnsubscribe
}

/// There is none.
#[unsafe(no_mangle)]
extern "C" fn cuptiGetVersion(version: Out<u32>) -> c_int {
    version.put_if_any(0);
    refuse("cuptiGetVersion")
}

/// The one error of these functions has a name, and no other.
#[unsafe(no_mangle)]
extern "C" fn cuptiGetResultString(_code: c_int, out: Out<*const c_char>) -> c_int {
    const NAME: &CStr = c"CUPTI_ERROR_NOT_SUPPORTED";
    out.put(NAME.as_ptr()).map_or(1, |()| 0)
}
