//! CUDA by a toolkit, if there is one: the search, then bindings and kernels. The feature
//! `toolkit`.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::toolkit::{self, Decision, Probe, Site, Toolkit};
use crate::{bindings, cargo_variable, driver_api, kernels, libclang, rerun_if_changed};

/// Builds with a toolkit. Returns whether the build has CUDA: by that, or by the driver alone.
pub fn build(project: &Path, out_dir: &Path) -> Result<bool, Failure> {
    let arch = cargo_variable("CARGO_CFG_TARGET_ARCH");
    let site = Site { project, arch: &arch };
    let decision = toolkit::decide(&Machine, &site)?;
    match &decision {
        Decision::Toolkit(toolkit) => {
            build_with(toolkit, &site, out_dir)?;
            // Metadata for the build scripts of dependent packages: crates/cli/build.rs.
            println!(
                "cargo::metadata=toolkit=CUDA {} in {}",
                toolkit.version,
                toolkit.root.display()
            );
        }
        Decision::Driver | Decision::Off => {}
    }
    Ok(decision != Decision::Off)
}

/// Writes the types of the driver's functions to `out`.
pub fn write_driver_api(project: &Path, out: &Path) -> Result<(), Failure> {
    let arch = cargo_variable("CARGO_CFG_TARGET_ARCH");
    let site = Site { project, arch: &arch };
    let Decision::Toolkit(toolkit) = toolkit::decide(&Machine, &site)? else {
        return Err(Failure::new("no toolkit, so there is no cudaTypedefs.h"));
    };
    let libclang = libclang::find(&Machine, &site, &toolkit)?;
    driver_api::generate(&toolkit, &libclang, &project.join("cuda/driver_api.h"), out)
}

/// Searches for everything before slow steps begin.
fn build_with(toolkit: &Toolkit, site: &Site<'_>, out_dir: &Path) -> Result<(), Failure> {
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

    println!("cargo::rustc-cfg=pinlane_toolkit");
    for line in kernels::link_lines(toolkit, out_dir) {
        println!("cargo::{line}");
    }
    Ok(())
}

/// The machine that builds. Its answers decide when the script must run again.
struct Machine;

impl Probe for Machine {
    fn variable(&self, name: &'static str) -> Option<String> {
        println!("cargo::rerun-if-env-changed={name}");
        // A path that is not UTF-8 is reported as not found, and not ignored.
        let value = std::env::var_os(name)?.to_string_lossy().into_owned();
        Some(value).filter(|value| !value.is_empty())
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
