//! What the environment says: which library this is, its devices, and the variables of
//! docs/drop-in.md.

use std::env;
use std::ffi::c_int;
use std::str::FromStr;
use std::sync::OnceLock;

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

/// The version of the driver as CUDA writes it; 0 if there is none.
pub fn driver_version() -> i32 {
    variable("PINLANE_CUDART_DRIVER", version())
}

/// How many devices there are.
pub fn devices() -> usize {
    variable("PINLANE_CUDART_DEVICES", 1)
}

/// Whether devices have memory pools.
pub fn has_memory_pools() -> bool {
    !chooses("PINLANE_CUDART_POOLS", "on", "off")
}

/// A variable of the environment. What cannot be read stops the program: a run under a wrong seed
/// would mislead.
pub fn variable<T: FromStr>(name: &str, default: T) -> T {
    value(name).unwrap_or(default)
}

/// The same; `None` if the environment has no such variable.
pub fn value<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var_os(name)?;
    let read = value.to_str().and_then(|value| value.parse().ok());
    Some(read.unwrap_or_else(|| misunderstood(name)))
}

/// Whether a variable of the environment has this value, and not the default one.
pub fn chooses(name: &str, default: &str, other: &str) -> bool {
    let value = variable(name, default.to_owned());
    if value != default && value != other {
        misunderstood(name);
    }
    value == other
}

/// Ends the program: it asks for what cannot be read.
pub fn misunderstood(name: &str) -> ! {
    stop(&format!("{name}={:?} is not understood", env::var_os(name).unwrap_or_default()))
}

/// Ends the program because the environment asks for what cannot be.
pub fn stop(why: &str) -> ! {
    eprintln!("pinlane-cudart: {why}");
    // SAFETY: ends the process, with nothing of it cleaned up.
    unsafe { libc::_exit(125) }
}

/// Whether the library keeps its remarks to itself.
pub fn is_quiet() -> bool {
    static QUIET: OnceLock<bool> = OnceLock::new();
    *QUIET.get_or_init(|| env::var_os("PINLANE_CUDART_QUIET").is_some_and(|value| value != "0"))
}
