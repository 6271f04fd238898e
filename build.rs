//! Looks for CUDA and builds with it or without it, or reports why it cannot; writes the C header.
//! Writes only in `OUT_DIR`.
//!
//! `PINLANE_CUDA` decides: unset or `auto` uses CUDA if it is found, `on` requires it, `off` does
//! not look, and a path names the toolkit. Without the feature `cuda` the build does not look for
//! it, and without `capi` there is no header; their build dependencies are then not compiled
//! either. Each step is a file in `build/`; `tests/build` tests them, and runs this script against
//! broken toolkits.

use std::path::{Path, PathBuf};

#[cfg(feature = "cuda")]
#[path = "build/bindings.rs"]
mod bindings;
#[cfg(feature = "cuda")]
#[path = "build/cuda.rs"]
mod cuda;
#[path = "build/failure.rs"]
mod failure;
#[cfg(feature = "capi")]
#[path = "build/header.rs"]
mod header;
#[cfg(feature = "cuda")]
#[path = "build/kernels.rs"]
mod kernels;
#[cfg(feature = "cuda")]
#[path = "build/libclang.rs"]
mod libclang;
#[cfg(feature = "cuda")]
#[path = "build/toolkit.rs"]
mod toolkit;

use failure::Failure;

/// Reports a failure by `cargo::error`, which ends the build as an exit status would, but without a
/// dump of all output of the script.
fn main() {
    if let Err(failure) = build() {
        for line in failure.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}

fn build() -> Result<(), Failure> {
    check_platform()?;
    let project = PathBuf::from(cargo_variable("CARGO_MANIFEST_DIR"));
    rerun_if_changed(&project.join("build.rs"));

    #[cfg(any(feature = "cuda", feature = "capi"))]
    let out_dir = PathBuf::from(cargo_variable("OUT_DIR"));
    #[cfg(feature = "cuda")]
    cuda::build(&project, &out_dir)?;
    #[cfg(not(feature = "cuda"))]
    check_that_nobody_asks_for_cuda()?;
    #[cfg(feature = "capi")]
    header::build(&project, &out_dir)?;

    say_why_there_is_no_cuda();
    // For tests/build, which runs this script.
    let script = std::env::current_exe().expect("a running program has a path");
    println!("cargo::metadata=script={}", script.display());
    Ok(())
}

/// Pages that children do not inherit, `membarrier`, `O_DIRECT`: the crate needs features that only
/// Linux has.
fn check_platform() -> Result<(), Failure> {
    let system = cargo_variable("CARGO_CFG_TARGET_OS");
    let bits = cargo_variable("CARGO_CFG_TARGET_POINTER_WIDTH");
    if system == "linux" && bits == "64" {
        return Ok(());
    }
    Err(Failure::new(format!(
        "pinlane needs 64-bit Linux, for the emulated device too, and this target is {bits}-bit \
         {system}"
    )))
}

/// The promise of `PINLANE_CUDA=on`, that a build has CUDA or stops, holds without the feature too.
#[cfg(not(feature = "cuda"))]
fn check_that_nobody_asks_for_cuda() -> Result<(), Failure> {
    println!("cargo::rerun-if-env-changed=PINLANE_CUDA");
    let wish = std::env::var("PINLANE_CUDA").unwrap_or_default();
    if !(matches!(&*wish, "on" | "1") || wish.contains('/')) {
        return Ok(());
    }
    Err(Failure::new(format!("PINLANE_CUDA={wish} asks for CUDA, but the feature `cuda` is off"))
        .help("turn the feature on, or unset PINLANE_CUDA"))
}

/// For the message of a build that has no CUDA.
fn say_why_there_is_no_cuda() {
    println!("cargo::rerun-if-env-changed=PINLANE_CUDA");
    let wish = std::env::var_os("PINLANE_CUDA").unwrap_or_default();
    let why = if wish == "off" || wish == "0" {
        "PINLANE_CUDA was `off` when it was compiled"
    } else if cfg!(not(feature = "cuda")) {
        "the crate's feature `cuda` was off when it was compiled"
    } else {
        "no toolkit was found when it was compiled"
    };
    println!("cargo::rustc-env=PINLANE_WITHOUT_CUDA={why}");
}

fn cargo_variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("Cargo sets {name} for build scripts"))
}

/// Only for files that exist: Cargo treats a missing file as changed at every build.
fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
