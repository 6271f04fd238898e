//! The methods of a driver, as data.
//!
//! The errors are those that the CUDA documents list: the `\return` lists of `cuda_runtime_api.h`
//! 13.0, and of `cuda.h` 13.0 for the functions of the CUDA driver.
//! `tests/build/documented.rs` compares them where there is a toolkit. Left out is what is no error
//! at the seam: `cudaErrorNotReady` of a query, and `cudaErrorPeerAccessAlreadyEnabled`.

use crate::CudaCode;

/// The errors of a call: a list of them, or the name of one.
macro_rules! errors {
    ([$($code:ident)+]) => { &[$(CudaCode::$code),+] };
    ($list:ident) => { $list };
}

/// Each row has a call, the CUDA functions that make it, a note for the documents, and the errors.
macro_rules! calls {
    ($($name:ident: $function:ident $($more:ident)* $($note:literal)? => $errors:tt;)*) => {
        /// Names the methods of [`Driver`](super::Driver), for messages, counters and fault
        /// injection.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Call {
            $(
                #[doc = concat!(
                    "`", stringify!($function), "`" $(, ", `", stringify!($more), "`")*
                    $(, " ", $note)?
                )]
                $name,
            )*
        }

        impl Call {
            /// Every call, in the order of their declaration; `Call::ALL[call as usize] == call`.
            pub const ALL: [Call; [$(Call::$name),*].len()] = [$(Call::$name),*];

            /// The call of that name, such as `"HostAlloc"`.
            #[must_use]
            pub fn named(name: &str) -> Option<Call> {
                match name { $(stringify!($name) => Some(Call::$name),)* _ => None }
            }

            /// The CUDA functions that make the call.
            #[must_use]
            pub fn functions(self) -> &'static [&'static str] {
                match self {
                    $(Call::$name => &[stringify!($function) $(, stringify!($more))*],)*
                }
            }

            /// The errors that the documents of these functions list. [Any](Self::ANY_RETURNS) call
            /// may also return others.
            #[must_use]
            pub fn documented_codes(self) -> &'static [CudaCode] {
                match self { $(Call::$name => errors!($errors),)* }
            }
        }
    };
}

calls! {
    HostAlloc: cudaHostAlloc => [INVALID_VALUE MEMORY_ALLOCATION];
    HostFree: cudaFreeHost => [INVALID_VALUE];
    HostRegister: cudaHostRegister
        => [INVALID_VALUE MEMORY_ALLOCATION HOST_MEMORY_ALREADY_REGISTERED NOT_SUPPORTED];
    HostUnregister: cudaHostUnregister => [INVALID_VALUE HOST_MEMORY_NOT_REGISTERED];
    DeviceAlloc: cudaMallocAsync "or `cudaMalloc`"
        => [INVALID_VALUE NOT_SUPPORTED MEMORY_ALLOCATION];
    DeviceFree: cudaFreeAsync => [INVALID_VALUE NOT_SUPPORTED];
    CopyH2D: cudaMemcpyAsync "from host to device" => [INVALID_VALUE INVALID_MEMCPY_DIRECTION];
    CopyD2H: cudaMemcpyAsync "from device to host" => [INVALID_VALUE INVALID_MEMCPY_DIRECTION];
    CopyBatch: cuMemcpyBatchAsync => [CUDART_UNLOADING INITIALIZATION INVALID_VALUE];
    CopyStrided: cuMemcpy2DAsync cuMemcpy3DAsync
        => [CUDART_UNLOADING INITIALIZATION INVALID_VALUE DEVICE_UNINITIALIZED
            INVALID_RESOURCE_HANDLE];
    CopyD2D: cudaMemcpyAsync "within a device" => [INVALID_VALUE INVALID_MEMCPY_DIRECTION];
    CopyPeer: cudaMemcpyPeerAsync => [INVALID_VALUE INVALID_DEVICE];
    CopyStridedPeer: cudaMemcpy3DPeerAsync
        => [INVALID_VALUE INVALID_DEVICE INVALID_PITCH_VALUE];
    StreamCreate: cudaStreamCreateWithPriority => [INVALID_VALUE];
    StreamDestroy: cudaStreamDestroy => [INVALID_VALUE INVALID_RESOURCE_HANDLE];
    StreamQuery: cudaStreamQuery => [INVALID_RESOURCE_HANDLE];
    StreamSynchronize: cudaStreamSynchronize => [INVALID_RESOURCE_HANDLE];
    StreamWaitEvent: cudaStreamWaitEvent => [INVALID_VALUE INVALID_RESOURCE_HANDLE];
    StreamCapture: cudaStreamIsCapturing => [INVALID_VALUE STREAM_CAPTURE_IMPLICIT];
    EventCreate: cudaEventCreateWithFlags => [INVALID_VALUE LAUNCH_FAILURE MEMORY_ALLOCATION];
    EventDestroy: cudaEventDestroy => [INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE];
    EventRecord: cudaEventRecord => [INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE];
    EventQuery: cudaEventQuery => [INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE];
    EventSynchronize: cudaEventSynchronize
        => [INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE];
    EventElapsed: cudaEventElapsedTime
        => [NOT_READY INVALID_VALUE INVALID_RESOURCE_HANDLE LAUNCH_FAILURE UNKNOWN];
    CaptureBegin: cuStreamBeginCapture => [CUDART_UNLOADING INITIALIZATION INVALID_VALUE];
    CaptureNode: cuStreamGetCaptureInfo => [INVALID_VALUE STREAM_CAPTURE_IMPLICIT];
    CaptureEnd: cuStreamEndCapture cuGraphInstantiate
        => [CUDART_UNLOADING INITIALIZATION INVALID_VALUE STREAM_CAPTURE_WRONG_THREAD];
    GraphSetCopy: cuGraphExecMemcpyNodeSetParams => [INVALID_VALUE];
    GraphLaunch: cuGraphLaunch => [CUDART_UNLOADING INITIALIZATION INVALID_VALUE];
    GraphDestroy: cuGraphExecDestroy cuGraphDestroy
        => [CUDART_UNLOADING INITIALIZATION INVALID_VALUE];
    LaunchHost: cudaLaunchHostFunc => [INVALID_RESOURCE_HANDLE INVALID_VALUE NOT_SUPPORTED];
    PeerQuery: cudaDeviceCanAccessPeer => [INVALID_DEVICE];
    PeerEnable: cudaDeviceEnablePeerAccess => [INVALID_DEVICE INVALID_VALUE];
    PoolAccess: cudaMemPoolSetAccess => [INVALID_VALUE];
    Attributes: cudaDeviceGetAttribute cudaGetDeviceProperties "and whether there are batches"
        => [INVALID_DEVICE INVALID_VALUE];
    MemoryInfo: cudaMemGetInfo => [INVALID_VALUE LAUNCH_FAILURE];
    Fill: cudaLaunchKernel "of the fill kernel" => LAUNCH;
    Checksum: cudaLaunchKernel "of the checksum kernel" => LAUNCH;
    MoveItems: cudaLaunchKernel "of the kernel that moves items" => LAUNCH;
    Busy: cudaLaunchKernel "of the busy kernel" => LAUNCH;
}

/// The errors of a launch.
const LAUNCH: &[CudaCode] = errors!([
    INVALID_DEVICE_FUNCTION INVALID_CONFIGURATION LAUNCH_FAILURE LAUNCH_TIMEOUT
    LAUNCH_OUT_OF_RESOURCES SHARED_OBJECT_INIT_FAILED INVALID_PTX UNSUPPORTED_PTX_VERSION
    NO_KERNEL_IMAGE_FOR_DEVICE JIT_COMPILER_NOT_FOUND JIT_COMPILATION_DISABLED
]);

impl Call {
    /// What any call may return, whatever its own list says:
    ///
    /// * what initialising the runtime may give ("may also return cudaErrorInitializationError,
    ///   cudaErrorInsufficientDriver or cudaErrorNoDevice");
    /// * the errors of earlier asynchronous work ("may also return error codes from previous,
    ///   asynchronous launches"): those that are [sticky](CudaCode::is_sticky);
    /// * that the driver unloads (`driver_types.h`, cudaErrorCudartUnloading).
    pub const ANY_RETURNS: [CudaCode; 18] = {
        let mut all = [CudaCode::CUDART_UNLOADING; 18];
        all[0] = CudaCode::INITIALIZATION;
        all[1] = CudaCode::INSUFFICIENT_DRIVER;
        all[2] = CudaCode::NO_DEVICE;
        all.split_at_mut(4).1.copy_from_slice(CudaCode::STICKY);
        all
    };
}
