//! Looks for CUDA and builds with it or without it, or reports why it cannot; writes the C header.
//! Writes only in `OUT_DIR`.
//!
//! `PINLANE_CUDA` decides: unset or `auto` uses a toolkit if there is one, and else the functions
//! of the driver, which are looked up at run time; `driver` asks for the latter, `on` for a
//! toolkit, `off` for no CUDA; a path names the toolkit. The feature `cuda` is CUDA at run time,
//! `toolkit` the way by a toolkit, and `capi` the header; what only one of them needs is not
//! compiled without it. Each step is a file in `build/`; `tests/build` tests them, and runs this
//! script against broken toolkits.

use std::path::{Path, PathBuf};

#[cfg(feature = "toolkit")]
#[path = "build/bindings.rs"]
mod bindings;
#[cfg(feature = "toolkit")]
#[path = "build/cuda.rs"]
mod cuda;
#[cfg(feature = "toolkit")]
#[path = "build/driver_api.rs"]
mod driver_api;
#[path = "build/failure.rs"]
mod failure;
#[cfg(feature = "capi")]
#[path = "build/header.rs"]
mod header;
#[cfg(feature = "toolkit")]
#[path = "build/kernels.rs"]
mod kernels;
#[cfg(feature = "toolkit")]
#[path = "build/libclang.rs"]
mod libclang;
#[cfg(feature = "toolkit")]
#[path = "build/toolkit.rs"]
mod toolkit;
#[path = "build/wish.rs"]
#[cfg_attr(feature = "toolkit", allow(dead_code))]
mod wish;

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
    let system = cargo_variable("CARGO_CFG_TARGET_OS");
    if system != "linux" {
        return build_elsewhere(&system);
    }
    if cfg!(feature = "emulated") {
        println!("cargo::rustc-cfg=pinlane_emulated");
    }
    let project = PathBuf::from(cargo_variable("CARGO_MANIFEST_DIR"));
    rerun_if_changed(&project.join("build.rs"));

    #[cfg(any(feature = "toolkit", feature = "capi"))]
    let out_dir = PathBuf::from(cargo_variable("OUT_DIR"));
    #[cfg(feature = "toolkit")]
    if let Some(file) = std::env::var_os("PINLANE_WRITE_DRIVER_API") {
        return cuda::write_driver_api(&project, Path::new(&file));
    }
    #[cfg(feature = "toolkit")]
    let has_cuda = cuda::build(&project, &out_dir)?;
    #[cfg(not(feature = "toolkit"))]
    let has_cuda = has_cuda_without_toolkit()?;
    if has_cuda {
        println!("cargo::rustc-cfg=pinlane_cuda");
        println!("cargo::metadata=cuda=1");
    }
    #[cfg(feature = "capi")]
    header::build(&project, &out_dir)?;

    say_why_there_is_no_cuda();
    // For tests/build, which runs this script.
    let script = std::env::current_exe().expect("a running program has a path");
    println!("cargo::metadata=script={}", script.display());
    Ok(())
}

/// Sizes of memory are 64-bit numbers, as on the device.
fn check_platform() -> Result<(), Failure> {
    let bits = cargo_variable("CARGO_CFG_TARGET_POINTER_WIDTH");
    if bits == "64" {
        return Ok(());
    }
    Err(Failure::new(format!("pinlane needs a 64-bit system, and this target has {bits} bits")))
}

/// Pages that children do not inherit, `membarrier`, `O_DIRECT`: the crate needs what only Linux
/// has. For other systems it compiles, so that programs for several systems do, and `Device::open`
/// fails.
fn build_elsewhere(system: &str) -> Result<(), Failure> {
    use wish::Wish;

    println!("cargo::rerun-if-env-changed=PINLANE_CUDA");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let wish = Wish::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
    let asked = match wish {
        Wish::Auto | Wish::Never if cfg!(feature = "capi") => "the feature `capi`",
        Wish::Auto | Wish::Never => {
            println!(
                "cargo::rustc-env=PINLANE_WITHOUT_CUDA=pinlane opens devices on Linux only, and \
                 it was compiled for {system}"
            );
            return Ok(());
        }
        Wish::Driver | Wish::Toolkit | Wish::At(_) => "CUDA, which PINLANE_CUDA asks for,",
    };
    Err(Failure::new(format!("{asked} needs Linux, and this target is {system}")))
}

/// Whether a build that has no feature `toolkit` has CUDA: by the driver.
#[cfg(not(feature = "toolkit"))]
fn has_cuda_without_toolkit() -> Result<bool, Failure> {
    use wish::Wish;

    println!("cargo::rerun-if-env-changed=PINLANE_CUDA");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let wish = Wish::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
    if cfg!(not(feature = "cuda")) {
        return wish.without_feature("cuda", &[Wish::Auto, Wish::Never]).map(|()| false);
    }
    wish.without_feature("toolkit", &[Wish::Auto, Wish::Driver, Wish::Never])?;
    let arch = cargo_variable("CARGO_CFG_TARGET_ARCH");
    if !wish::ARCHITECTURES.contains(&&*arch) {
        return wish.without_cuda(&arch).map(|()| false);
    }
    Ok(wish != Wish::Never)
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
        "CUDA does not exist for the architecture that it was compiled for"
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
