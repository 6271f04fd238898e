//! The file `src/driver/cuda/driver_api.rs` declares what the headers of toolkits declare.
//!
//! They are those of the build's toolkit, and of the folders in `PINLANE_TOOLKITS`, which
//! `scripts/toolkit-headers` prints. `PINLANE_DRIVER_API=overwrite` writes the file instead.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::{env, fs};

use crate::script;

fn compare(toolkit: &OsStr) {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver_api.rs");
    let libclang = env::var_os("LIBCLANG_PATH").unwrap_or_default();
    let stdout = script::run([
        ("PINLANE_CUDA", toolkit),
        ("LIBCLANG_PATH", &libclang),
        ("PINLANE_WRITE_DRIVER_API", made.as_os_str()),
    ]);
    assert_eq!(script::errors(&stdout), [""; 0]);
    let kept = Path::new(env!("PINLANE_PROJECT")).join("src/driver/cuda/driver_api.rs");
    if env::var_os("PINLANE_DRIVER_API").is_some_and(|what| what == "overwrite") {
        fs::copy(&made, &kept).expect("the project can be written");
    }
    // The first line has the version of bindgen.
    let lines = |path: &Path| {
        let text = fs::read_to_string(path).expect("a file");
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&made), lines(&kept), "{toolkit:?}");
}

#[test]
#[cfg_attr(not(pinlane_toolkit), ignore = "needs a toolkit")]
fn the_drivers_functions_are_declared_as_in_the_headers() {
    compare(&env::var_os("PINLANE_CUDA").unwrap_or_else(|| OsString::from("on")));
    let others = env::var("PINLANE_TOOLKITS").unwrap_or_default();
    for toolkit in others.split_whitespace() {
        compare(OsStr::new(toolkit));
    }
}
