//! The headers of the CUDA runtime and of our kernels, as Rust: `OUT_DIR/cudart.rs`.
//!
//! Generates only what `src/driver/cuda/runtime` uses, so this list is the crate's whole dependency
//! on the runtime.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;

use bindgen::callbacks::{ItemInfo, ParseCallbacks};
use bindgen::{Builder, Formatter};

use crate::failure::Failure;
use crate::toolkit::Toolkit;

const FUNCTIONS: &str = "\
    cudaGetDeviceCount|cudaGetDevice|cudaSetDevice|cudaGetDeviceProperties(_v2)?|\
    cudaDeviceGetAttribute|cudaMemGetInfo|cudaDriverGetVersion|cudaRuntimeGetVersion|\
    cudaHostAlloc|cudaFreeHost|cudaHostRegister|cudaHostUnregister|\
    cudaDeviceGetMemPool|cudaMemPoolSetAccess|cudaGetDriverEntryPoint|\
    cudaMalloc|cudaFree|cudaMallocAsync|cudaFreeAsync|cudaMemcpyAsync|cudaMemcpyPeerAsync|\
    cudaMemcpy3DPeerAsync|\
    cudaStreamCreateWithPriority|cudaStreamDestroy|cudaStreamQuery|cudaStreamSynchronize|\
    cudaMemsetAsync|cudaStreamWaitEvent|cudaStreamIsCapturing|cudaThreadExchangeStreamCaptureMode|\
    cudaEventCreateWithFlags|cudaEventDestroy|cudaEventRecord|cudaEventQuery|\
    cudaEventSynchronize|cudaEventElapsedTime|cudaLaunchHostFunc|\
    cudaDeviceCanAccessPeer|cudaDeviceEnablePeerAccess|\
    cudaPeekAtLastError|cudaGetLastError|cudaGetErrorName|\
    pinlane_launch_kernel";

const CONSTANTS: &str = "\
    cudaHostAlloc(Default|Portable|Mapped|WriteCombined)|\
    cudaHostRegister(Default|Portable|Mapped|ReadOnly)|\
    cudaEvent(Default|DisableTiming|BlockingSync)|cudaEventRecordDefault|cudaEventWaitDefault|\
    cudaStream(Default|NonBlocking)";

/// A newer runtime may return a number that these headers do not know. For a Rust `enum` that is
/// undefined behaviour, so C's enums become newtypes.
const ENUMS: &str = "\
    cudaError|cudaMemcpyKind|cudaDeviceAttr|cudaStreamCapture(Mode|Status)|\
    cudaDriverEntryPointQueryResult|cudaMemAccessFlags|cudaMemLocationType|\
    cudaMemAllocationType|cudaMemAllocationHandleType|pinlane_kernel";

/// Writes the bindings to `out`, with the libclang in the file `libclang`.
pub fn generate(
    toolkit: &Toolkit,
    libclang: &Path,
    kernels: &Path,
    out: &Path,
) -> Result<(), Failure> {
    let builder = builder(toolkit, libclang)
        .header(toolkit.include.join("cuda_runtime_api.h").display().to_string())
        .header(kernels.display().to_string())
        .allowlist_function(FUNCTIONS)
        .allowlist_var(CONSTANTS)
        .allowlist_type("pinlane_(item|layer|index|rows|pattern)")
        .newtype_enum(ENUMS)
        .must_use_type("cudaError")
        .merge_extern_blocks(true)
        .wrap_unsafe_ops(true)
        .formatter(Formatter::None)
        .parse_callbacks(Box::new(PlainNames));
    write(builder, toolkit, libclang, out)
}

/// bindgen for the headers of a toolkit.
pub fn builder(toolkit: &Toolkit, libclang: &Path) -> Builder {
    // SAFETY: the build script has one thread, so no other code reads the environment.
    unsafe { std::env::set_var("LIBCLANG_PATH", libclang) };

    let builder = Builder::default()
        .clang_arg(format!("-I{}", toolkit.include.display()))
        .use_core()
        .generate_comments(false);
    match compiler_headers() {
        // Last in the order, so that a libclang with its own headers uses those.
        Some(include) => {
            builder.clang_args(["-idirafter".to_owned(), include.display().to_string()])
        }
        None => builder,
    }
}

/// Writes what the builder generates to `out`.
pub fn write(
    builder: Builder,
    toolkit: &Toolkit,
    libclang: &Path,
    out: &Path,
) -> Result<(), Failure> {
    let failure = |cause: String| {
        Failure::new(format!("no bindings for CUDA {}: {cause}", toolkit.version))
            .help(format!("bindgen used {} and {}", libclang.display(), toolkit.include.display()))
            .help("check that a C compiler and the C library's headers are installed")
            .or_without_toolkit()
    };
    let bindings = quietly(|| builder.generate())
        .ok_or_else(|| failure("libclang cannot be loaded, or bindgen cannot work with it".into()))?
        .map_err(|error| failure(error.to_string()))?;
    bindings.write_to_file(out).map_err(|error| failure(format!("{}: {error}", out.display())))
}

/// The result of `work`, or `None` if it panics. bindgen panics if a libclang is damaged, or of
/// another architecture, and does not load.
fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(hook);
    result.ok()
}

/// Gives a function one name in Rust in all versions. Headers of CUDA 12 declare only
/// `cudaGetDeviceProperties_v2`, with a macro for the plain name; headers of CUDA 13 declare the
/// plain name again.
#[derive(Debug)]
struct PlainNames;

impl ParseCallbacks for PlainNames {
    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        let plain = "cudaGetDeviceProperties";
        (item.name.strip_suffix("_v2") == Some(plain)).then(|| plain.to_owned())
    }
}

/// The folder of the C compiler's own `stddef.h`. A libclang from a Python wheel comes without one.
fn compiler_headers() -> Option<PathBuf> {
    let compiler = cc::Build::new().cargo_metadata(false).try_get_compiler().ok()?;
    let answer = Command::new(compiler.path()).arg("-print-file-name=include").output().ok()?;
    let folder = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    folder.is_dir().then_some(folder)
}
