//! The file `src/driver/cuda/driver_api.rs` declares what the headers of the toolkit declare.
//!
//! `PINLANE_DRIVER_API=overwrite` writes the file instead, from the headers that are there.

use std::ffi::OsStr;
use std::path::Path;
use std::{env, fs};

use crate::script;

#[test]
#[cfg_attr(not(pinlane_toolkit), ignore = "needs a toolkit")]
fn the_drivers_functions_are_declared_as_in_the_headers() {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver_api.rs");
    let toolkit = env::var_os("PINLANE_CUDA").unwrap_or_else(|| "on".into());
    let stdout = script::run(
        [
            ("PINLANE_CUDA", &*toolkit),
            ("PINLANE_WRITE_DRIVER_API", made.as_os_str()),
            ("CXX", &*env::var_os("CXX").unwrap_or_default()),
        ]
        .map(|(name, value): (&str, &OsStr)| (name, value)),
    );
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
    assert_eq!(lines(&made), lines(&kept), "PINLANE_DRIVER_API=overwrite writes it again");
}
