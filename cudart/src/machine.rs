//! The one machine of the process, as the environment says. It is built by the first call.

use std::env;
use std::ffi::c_int;
use std::panic::catch_unwind;
use std::str::FromStr;
use std::sync::OnceLock;

use pinlane::driver::emulated::{Emulator, Execution, Face};

static FACE: OnceLock<Option<Face>> = OnceLock::new();

unsafe extern "C" {
    /// 12 or 13: which library this is. scripts/build-cudart links it in.
    static pinlane_cudart_major: c_int;
}

/// Which version of CUDA the library stands for: 12 or 13.
pub fn major() -> i32 {
    // SAFETY: a constant of the library.
    unsafe { pinlane_cudart_major }
}

/// The version as CUDA writes it.
pub fn version() -> i32 {
    if major() == 12 { 12_090 } else { 13_000 }
}

/// The machine; `None` if it could not be built.
pub fn face() -> Option<&'static Face> {
    FACE.get_or_init(|| catch_unwind(build).unwrap_or_default()).as_ref()
}

/// The machine, if some call has built it.
pub fn built() -> Option<&'static Face> {
    FACE.get()?.as_ref()
}

/// A variable of the environment. What cannot be read stops the program: a run under a wrong seed
/// would mislead.
fn variable<T: FromStr>(name: &str, default: T) -> T {
    let Some(value) = env::var_os(name) else { return default };
    value.to_str().and_then(|value| value.parse().ok()).unwrap_or_else(|| {
        eprintln!("pinlane-cudart: {name}={value:?} is not understood");
        // SAFETY: ends the process, with nothing of it cleaned up.
        unsafe { libc::_exit(125) }
    })
}

struct Mode(Execution);

impl FromStr for Mode {
    type Err = ();

    fn from_str(mode: &str) -> Result<Self, ()> {
        match mode {
            "eager" => Ok(Mode(Execution::Eager)),
            "lazy" => Ok(Mode(Execution::Lazy)),
            _ => Err(()),
        }
    }
}

fn build() -> Option<Face> {
    let Mode(execution) = variable("PINLANE_CUDART_MODE", Mode(Execution::Eager));
    let gibibytes: usize = variable("PINLANE_CUDART_MEMORY_GIB", 4);
    let emulator = Emulator::builder()
        .execution(execution)
        .seed(variable("PINLANE_CUDART_SEED", 0))
        .devices(variable("PINLANE_CUDART_DEVICES", 1))
        .memory_bytes(gibibytes << 30)
        .build();
    let face = Face::new(emulator);
    if face.is_none() {
        eprintln!("pinlane-cudart: no room for the addresses of the devices");
    }
    face
}

/// Whether the library keeps its remarks to itself.
pub fn is_quiet() -> bool {
    static QUIET: OnceLock<bool> = OnceLock::new();
    *QUIET.get_or_init(|| env::var_os("PINLANE_CUDART_QUIET").is_some_and(|value| value != "0"))
}
