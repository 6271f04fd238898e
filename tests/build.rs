//! Passes on what the library's build script has found and made.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = env::var("CARGO_MANIFEST_DIR").expect("Cargo sets it");
    let project = Path::new(&folder).parent().expect("the tests lie in the project's folder");
    println!("cargo::rustc-env=PINLANE_PROJECT={}", project.display());
    for (made, name) in [
        ("DEP_PINLANE_SCRIPT", "PINLANE_BUILD_SCRIPT"),
        ("DEP_PINLANE_HEADER", "PINLANE_GENERATED_HEADER"), // with the feature `capi`
    ] {
        if let Ok(path) = env::var(made) {
            println!("cargo::rustc-env={name}={path}");
        }
    }
    for (found, cfg) in
        [("DEP_PINLANE_CUDA", "pinlane_cuda"), ("DEP_PINLANE_TOOLKIT", "pinlane_toolkit")]
    {
        if env::var_os(found).is_some() {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
}
