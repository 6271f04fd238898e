//! Looks for CUDA and builds with it, or without it, or says why it cannot. Nothing is written
//! outside `OUT_DIR`.
//!
//! `PINLANE_CUDA` decides: unset or `auto` uses CUDA where it is found, `on` insists on it, `off`
//! never looks, and a path names the toolkit. Each step is a file in `build/`; `tests/toolkit.rs`
//! tests them, and runs this script against broken toolkits.

use std::path::{Path, PathBuf};

#[path = "build/bindings.rs"]
mod bindings;
#[path = "build/header.rs"]
mod header;
#[path = "build/kernels.rs"]
mod kernels;
#[path = "build/libclang.rs"]
mod libclang;
#[path = "build/toolkit.rs"]
mod toolkit;

use toolkit::{Decision, Failure, Probe, Site, Toolkit};

/// A failure is told by `cargo::error`, which ends the build as an exit status would, but without a
/// dump of everything that the script has printed.
fn main() {
    if let Err(failure) = build() {
        for line in failure.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}

fn build() -> Result<(), Failure> {
    let project = PathBuf::from(cargo_variable("CARGO_MANIFEST_DIR"));
    let out_dir = PathBuf::from(cargo_variable("OUT_DIR"));
    let arch = cargo_variable("CARGO_CFG_TARGET_ARCH");
    let site = Site { project: &project, arch: &arch };
    rerun_if_changed(&project.join("build.rs"));

    match toolkit::decide(&Machine, &site)? {
        Decision::Cuda(toolkit) => build_cuda(&toolkit, &site, &out_dir)?,
        Decision::NotFound(tried) => {
            println!("cargo::warning={}", toolkit::not_found_warning(&tried));
        }
        Decision::Off => {}
    }
    if std::env::var_os("CARGO_FEATURE_CAPI").is_some() {
        build_header(&project, &out_dir)?;
    }

    // For tests/toolkit.rs, which runs this script.
    let script = std::env::current_exe().expect("a running program has a path");
    println!("cargo::rustc-env=PINLANE_BUILD_SCRIPT={}", script.display());
    Ok(())
}

/// Everything is looked for before anything slow begins.
fn build_cuda(toolkit: &Toolkit, site: &Site<'_>, out_dir: &Path) -> Result<(), Failure> {
    let libclang = libclang::find(&Machine, site, toolkit)?;
    let host_compiler = kernels::host_compiler()?;
    let source = site.project.join("cuda/kernels.cu");
    let header = site.project.join("cuda/kernels.h");
    let vectors = site.project.join("cuda/vectors.cuh");
    for input in
        [&source, &header, &vectors, &toolkit.nvcc, &toolkit.include.join("cuda_runtime_api.h")]
    {
        rerun_if_changed(input);
    }

    kernels::compile(toolkit, &host_compiler, &source, &cargo_variable("NUM_JOBS"))?;
    bindings::generate(toolkit, &libclang, &header, &out_dir.join("cudart.rs"))?;

    println!("cargo::rustc-cfg=pinlane_cuda");
    for line in kernels::link_lines(toolkit, out_dir) {
        println!("cargo::{line}");
    }
    Ok(())
}

fn build_header(project: &Path, out_dir: &Path) -> Result<(), Failure> {
    rerun_if_changed(&project.join("src/capi"));
    rerun_if_changed(&project.join("cbindgen.toml"));
    let version = header::PackageVersion {
        major: cargo_variable("CARGO_PKG_VERSION_MAJOR"),
        minor: cargo_variable("CARGO_PKG_VERSION_MINOR"),
        patch: cargo_variable("CARGO_PKG_VERSION_PATCH"),
    };
    let header = header::generate(project, &version, out_dir)?;
    println!("cargo::rustc-env=PINLANE_GENERATED_HEADER={}", header.display());
    Ok(())
}

fn cargo_variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("Cargo sets {name} for build scripts"))
}

/// Only for files that exist: Cargo takes a missing one as changed at every build.
fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

/// The machine that builds. What it is asked about decides when the script must run again.
struct Machine;

impl Probe for Machine {
    fn variable(&self, name: &'static str) -> Option<String> {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn read(&self, path: &Path) -> Option<String> {
        std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
}
