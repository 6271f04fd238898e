//! Which errors the CUDA documents list for each call.
//!
//! Source: the `\return` lists of `cuda_runtime_api.h` 13.0; of `cuda.h` 13.0 for the batch call,
//! which is one of the CUDA driver. `tests/build/documented.rs` compares them where there is a
//! toolkit. Left out is what is no error at the seam: `cudaErrorNotReady` of a query, and
//! `cudaErrorPeerAccessAlreadyEnabled`.

use super::Call;
use crate::CudaCode;

macro_rules! documented {
    ($($($call:ident)|+: $($function:ident)+ => $($code:ident)+;)*) => {
        impl Call {
            /// The CUDA functions that make the call.
            #[must_use]
            pub fn functions(self) -> &'static [&'static str] {
                match self { $($(Call::$call)|+ => &[$(stringify!($function)),+],)* }
            }

            /// The errors that the documents of these functions list. [Any](Self::ANY_RETURNS) call
            /// may also return others.
            #[must_use]
            pub fn documented_codes(self) -> &'static [CudaCode] {
                match self { $($(Call::$call)|+ => &[$(CudaCode::$code),+],)* }
            }
        }
    };
}

documented! {
    HostAlloc: cudaHostAlloc => INVALID_VALUE MEMORY_ALLOCATION;
    HostFree: cudaFreeHost => INVALID_VALUE;
    HostRegister: cudaHostRegister
        => INVALID_VALUE MEMORY_ALLOCATION HOST_MEMORY_ALREADY_REGISTERED NOT_SUPPORTED;
    HostUnregister: cudaHostUnregister => INVALID_VALUE HOST_MEMORY_NOT_REGISTERED;
    DeviceAlloc: cudaMallocAsync => INVALID_VALUE NOT_SUPPORTED MEMORY_ALLOCATION;
    DeviceFree: cudaFreeAsync => INVALID_VALUE NOT_SUPPORTED;
    CopyH2D | CopyD2H | CopyD2D: cudaMemcpyAsync => INVALID_VALUE INVALID_MEMCPY_DIRECTION;
    CopyBatch: cuMemcpyBatchAsync => CUDART_UNLOADING INITIALIZATION INVALID_VALUE;
    CopyPeer: cudaMemcpyPeerAsync => INVALID_VALUE INVALID_DEVICE;
    StreamCreate: cudaStreamCreateWithPriority => INVALID_VALUE;
    StreamDestroy: cudaStreamDestroy => INVALID_VALUE INVALID_RESOURCE_HANDLE;
    StreamQuery: cudaStreamQuery => INVALID_RESOURCE_HANDLE;
    StreamSynchronize: cudaStreamSynchronize => INVALID_RESOURCE_HANDLE;
    StreamWaitEvent: cudaStreamWaitEvent => INVALID_VALUE INVALID_RESOURCE_HANDLE;
    StreamCapture: cudaStreamIsCapturing => INVALID_VALUE STREAM_CAPTURE_IMPLICIT;
    EventCreate: cudaEventCreateWithFlags => INVALID_VALUE LAUNCH_FAILURE MEMORY_ALLOCATION;
    EventDestroy: cudaEventDestroy => INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE;
    EventRecord: cudaEventRecord => INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE;
    EventQuery: cudaEventQuery => INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE;
    EventSynchronize: cudaEventSynchronize => INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE;
    EventElapsed: cudaEventElapsedTime
        => NOT_READY INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE UNKNOWN;
    LaunchHost: cudaLaunchHostFunc => INVALID_RESOURCE_HANDLE INVALID_VALUE NOT_SUPPORTED;
    PeerQuery: cudaDeviceCanAccessPeer => INVALID_DEVICE;
    PeerEnable: cudaDeviceEnablePeerAccess => INVALID_DEVICE INVALID_VALUE;
    PoolAccess: cudaMemPoolSetAccess => INVALID_VALUE;
    Attributes: cudaDeviceGetAttribute cudaGetDeviceProperties => INVALID_DEVICE INVALID_VALUE;
    MemoryInfo: cudaMemGetInfo => INVALID_VALUE LAUNCH_FAILURE;
    Fill | Checksum | MoveItems | Busy: cudaLaunchKernel
        => INVALID_DEVICE_FUNCTION INVALID_CONFIGURATION LAUNCH_FAILURE LAUNCH_TIMEOUT
        LAUNCH_OUT_OF_RESOURCES SHARED_OBJECT_INIT_FAILED INVALID_PTX UNSUPPORTED_PTX_VERSION
        NO_KERNEL_IMAGE_FOR_DEVICE JIT_COMPILER_NOT_FOUND JIT_COMPILATION_DISABLED;
}

impl Call {
    /// What any call may return, whatever its own list says:
    ///
    /// * what initialising the runtime may give ("may also return cudaErrorInitializationError,
    ///   cudaErrorInsufficientDriver or cudaErrorNoDevice");
    /// * the errors of earlier asynchronous work ("may also return error codes from previous,
    ///   asynchronous launches"): those that are [sticky](CudaCode::is_sticky);
    /// * that the driver unloads (`driver_types.h`, cudaErrorCudartUnloading).
    pub const ANY_RETURNS: [CudaCode; 18] = [
        CudaCode::INITIALIZATION,
        CudaCode::INSUFFICIENT_DRIVER,
        CudaCode::NO_DEVICE,
        CudaCode::CUDART_UNLOADING,
        CudaCode::ECC_UNCORRECTABLE,
        CudaCode::CONTAINED,
        CudaCode::ILLEGAL_ADDRESS,
        CudaCode::LAUNCH_TIMEOUT,
        CudaCode::ASSERT,
        CudaCode::HARDWARE_STACK_ERROR,
        CudaCode::ILLEGAL_INSTRUCTION,
        CudaCode::MISALIGNED_ADDRESS,
        CudaCode::INVALID_ADDRESS_SPACE,
        CudaCode::INVALID_PC,
        CudaCode::LAUNCH_FAILURE,
        CudaCode::TENSOR_MEMORY_LEAK,
        CudaCode::MPS_CLIENT_TERMINATED,
        CudaCode::EXTERNAL_DEVICE,
    ];
}
