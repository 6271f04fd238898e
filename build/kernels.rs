//! `cuda/kernels.cu` through nvcc into one archive, and the link lines for it and for the runtime.
//!
//! There is one translation unit, so no relocatable device code is needed and the host's linker can
//! link the archive directly.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::toolkit::{Toolkit, Version};

/// The C++ compiler that nvcc uses for the host's half; `CXX` replaces the default.
pub fn host_compiler() -> Result<PathBuf, Failure> {
    let missing = |cause: String| {
        Failure::new(format!("nvcc needs a C++ compiler for the host: {cause}"))
            .help("install one (`apt install g++`, or `dnf install gcc-c++`) or name one in CXX")
            .or_without_toolkit()
    };
    let compiler = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .try_get_compiler()
        .map_err(|error| missing(error.to_string()))?;
    let answer = compiler
        .to_command()
        .arg("--version")
        .output()
        .map_err(|error| missing(format!("`{}`: {error}", compiler.path().display())))?;
    if !answer.status.success() {
        return Err(missing(format!("`{} --version` failed", compiler.path().display())));
    }
    Ok(compiler.path().to_owned())
}

/// Compiles the kernels. `jobs` is how many architectures nvcc may compile at once.
pub fn compile(
    toolkit: &Toolkit,
    host_compiler: &Path,
    source: &Path,
    jobs: &str,
) -> Result<(), Failure> {
    // cc finds nvcc only by this variable; the form with the target overrides a plain NVCC.
    let target = std::env::var("TARGET").expect("Cargo sets TARGET");
    // SAFETY: the build script has one thread, so no other code reads the environment.
    unsafe { std::env::set_var(format!("NVCC_{target}"), &toolkit.nvcc) };

    let failure = |error: cc::Error| {
        // cc has passed on the messages of nvcc, as warnings.
        Failure::new(format!(
            "nvcc of CUDA {} could not compile the kernels, see its messages: {error}",
            toolkit.version
        ))
        .help(format!(
            "if nvcc rejects the host compiler {}, name one that it supports in CXX",
            host_compiler.display()
        ))
        .help("or name another toolkit: PINLANE_CUDA=/path/to/cuda")
        .or_without_toolkit()
    };
    let objects = cc::Build::new()
        .cuda(true)
        .cpp(true)
        // With debug information, cc passes -G, which turns off the optimiser for device code.
        .debug(false)
        .opt_level(3)
        .include(&toolkit.include)
        .flag("-std=c++17")
        .flags(device_flags(toolkit.version))
        .flag(format!("--threads={jobs}"))
        .file(source)
        .try_compile_intermediates()
        .map_err(failure)?;
    cc::Build::new()
        .cargo_metadata(false)
        .objects(objects)
        .try_compile("pinlane_kernels")
        .map_err(failure)
}

/// The lines that tell Cargo what to link, each library before those that it needs.
pub fn link_lines(toolkit: &Toolkit, out_dir: &Path) -> Vec<String> {
    let mut lines = vec![
        format!("rustc-link-search=native={}", out_dir.display()),
        format!("rustc-link-search=native={}", toolkit.lib.display()),
        "rustc-link-lib=static=pinlane_kernels".to_owned(),
        // Not bundled: an application that links our static library has its own copy of the runtime
        // from nvcc, and two copies would be two runtimes that do not know each other's state.
        "rustc-link-lib=static:-bundle=cudart_static".to_owned(),
    ];
    lines
        .extend(["stdc++", "dl", "pthread", "rt"].map(|lib| format!("rustc-link-lib=dylib={lib}")));
    lines
}

/// Machine code for the architectures that are common and that this nvcc knows, and PTX of the
/// oldest, which the driver compiles for any other.
fn device_flags(version: Version) -> Vec<OsString> {
    let blackwell = version >= Version { major: 12, minor: 8 };
    let architectures: &[u32] = if blackwell { &[75, 80, 90, 100, 120] } else { &[75, 80, 90] };
    let mut flags: Vec<OsString> = architectures
        .iter()
        .map(|arch| format!("-gencode=arch=compute_{arch},code=sm_{arch}").into())
        .collect();
    flags.push("-gencode=arch=compute_75,code=compute_75".into());
    if blackwell {
        flags.push("--compress-mode=size".into());
    }
    flags
}
