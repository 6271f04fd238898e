//! The codes of the CUDA runtime.

use std::ffi::c_char;

use crate::error::CudaCode;

/// The CUDA runtime's own name of a `cudaError_t`, such as "cudaErrorMemoryAllocation", or
/// "cudaErrorUnknownCode" for a code that pinlane has no name for. A constant string, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_cuda_error_name(cuda_error: i32) -> *const c_char {
    CudaCode(cuda_error).name_and_nul().as_ptr().cast()
}

/// 1 if a `cudaError_t` means a corrupted context: every later call of the process returns it too,
/// and the process must end. 0 for any other code.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_cuda_error_is_sticky(cuda_error: i32) -> i32 {
    CudaCode(cuda_error).is_sticky().into()
}
