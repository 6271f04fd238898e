//! Which calls are refused inside a host function. CUDA's documents forbid all calls. GPUs were
//! seen to refuse these (`tests/arguments`).

use pinlane_driver::CudaCode;
use pinlane_emulator::Emulator;

/// Calls that are not about a context, and calls with checks of their own before they refuse.
const ANSWERED: [&str; 22] = [
    "__cuda",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudaGetError",
    "cudaGetDeviceCount",
    "cudaGetDriverEntryPoint",
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaStreamGetDevice",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaEventElapsedTime",
    "cudaMalloc",
    "cuStreamQuery",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetExportTable",
];

/// The error of a call inside a host function.
pub fn refusal(gpu: &Emulator, name: &str) -> Option<CudaCode> {
    if ANSWERED.iter().any(|start| name.starts_with(start)) {
        return None;
    }
    gpu.refuse_in_host_function().err()
}
