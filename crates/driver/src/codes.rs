//! The codes of the CUDA runtime, and their names.

use std::fmt;

/// A `cudaError_t`, kept as the number that the runtime returned.
///
/// Codes that this crate has no name for are kept too: newer runtimes add codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CudaCode(pub i32);

macro_rules! marked {
    (sticky $name:ident) => {
        CudaCode::$name
    };
}

/// All codes of CUDA 13; those that the crate itself speaks of are constants. The mark is that of
/// [`is_sticky`](CudaCode::is_sticky).
macro_rules! cuda_codes {
    ($($code:literal $cuda:ident $(, $name:ident $($mark:ident)?)?;)*) => {
        impl CudaCode {
            pub(crate) const STICKY: &[CudaCode] = &[$($($(marked!($mark $name),)?)?)*];

            $($(
                #[doc = concat!("`", stringify!($cuda), "`")]
                pub const $name: CudaCode = CudaCode($code);
            )?)*

            /// The runtime's own name of the code, `cudaErrorUnknownCode` if this crate has none.
            #[must_use]
            pub fn name(self) -> &'static str {
                self.name_and_nul().trim_end_matches('\0')
            }

            /// The name as C wants it.
            #[doc(hidden)]
            #[must_use]
            pub fn name_and_nul(self) -> &'static str {
                match self.0 {
                    $($code => concat!(stringify!($cuda), "\0"),)*
                    _ => "cudaErrorUnknownCode\0",
                }
            }
        }
    };
}

cuda_codes! {
    0 cudaSuccess, SUCCESS;
    1 cudaErrorInvalidValue, INVALID_VALUE;
    2 cudaErrorMemoryAllocation, MEMORY_ALLOCATION;
    3 cudaErrorInitializationError, INITIALIZATION;
    4 cudaErrorCudartUnloading, CUDART_UNLOADING;
    5 cudaErrorProfilerDisabled;
    6 cudaErrorProfilerNotInitialized;
    7 cudaErrorProfilerAlreadyStarted;
    8 cudaErrorProfilerAlreadyStopped;
    9 cudaErrorInvalidConfiguration, INVALID_CONFIGURATION;
    12 cudaErrorInvalidPitchValue, INVALID_PITCH_VALUE;
    13 cudaErrorInvalidSymbol;
    16 cudaErrorInvalidHostPointer;
    17 cudaErrorInvalidDevicePointer;
    18 cudaErrorInvalidTexture;
    19 cudaErrorInvalidTextureBinding;
    20 cudaErrorInvalidChannelDescriptor;
    21 cudaErrorInvalidMemcpyDirection, INVALID_MEMCPY_DIRECTION;
    22 cudaErrorAddressOfConstant;
    23 cudaErrorTextureFetchFailed;
    24 cudaErrorTextureNotBound;
    25 cudaErrorSynchronizationError;
    26 cudaErrorInvalidFilterSetting;
    27 cudaErrorInvalidNormSetting;
    28 cudaErrorMixedDeviceExecution;
    31 cudaErrorNotYetImplemented;
    32 cudaErrorMemoryValueTooLarge;
    34 cudaErrorStubLibrary, STUB_LIBRARY;
    35 cudaErrorInsufficientDriver, INSUFFICIENT_DRIVER;
    36 cudaErrorCallRequiresNewerDriver;
    37 cudaErrorInvalidSurface;
    43 cudaErrorDuplicateVariableName;
    44 cudaErrorDuplicateTextureName;
    45 cudaErrorDuplicateSurfaceName;
    46 cudaErrorDevicesUnavailable, DEVICES_UNAVAILABLE;
    49 cudaErrorIncompatibleDriverContext;
    52 cudaErrorMissingConfiguration;
    53 cudaErrorPriorLaunchFailure;
    65 cudaErrorLaunchMaxDepthExceeded;
    66 cudaErrorLaunchFileScopedTex;
    67 cudaErrorLaunchFileScopedSurf;
    68 cudaErrorSyncDepthExceeded;
    69 cudaErrorLaunchPendingCountExceeded;
    98 cudaErrorInvalidDeviceFunction, INVALID_DEVICE_FUNCTION;
    100 cudaErrorNoDevice, NO_DEVICE;
    101 cudaErrorInvalidDevice, INVALID_DEVICE;
    102 cudaErrorDeviceNotLicensed;
    103 cudaErrorSoftwareValidityNotEstablished;
    127 cudaErrorStartupFailure;
    200 cudaErrorInvalidKernelImage;
    201 cudaErrorDeviceUninitialized, DEVICE_UNINITIALIZED;
    205 cudaErrorMapBufferObjectFailed;
    206 cudaErrorUnmapBufferObjectFailed;
    207 cudaErrorArrayIsMapped;
    208 cudaErrorAlreadyMapped;
    209 cudaErrorNoKernelImageForDevice, NO_KERNEL_IMAGE_FOR_DEVICE;
    210 cudaErrorAlreadyAcquired;
    211 cudaErrorNotMapped;
    212 cudaErrorNotMappedAsArray;
    213 cudaErrorNotMappedAsPointer;
    214 cudaErrorECCUncorrectable, ECC_UNCORRECTABLE sticky;
    215 cudaErrorUnsupportedLimit;
    216 cudaErrorDeviceAlreadyInUse;
    217 cudaErrorPeerAccessUnsupported;
    218 cudaErrorInvalidPtx, INVALID_PTX;
    219 cudaErrorInvalidGraphicsContext;
    220 cudaErrorNvlinkUncorrectable;
    221 cudaErrorJitCompilerNotFound, JIT_COMPILER_NOT_FOUND;
    222 cudaErrorUnsupportedPtxVersion, UNSUPPORTED_PTX_VERSION;
    223 cudaErrorJitCompilationDisabled, JIT_COMPILATION_DISABLED;
    224 cudaErrorUnsupportedExecAffinity;
    225 cudaErrorUnsupportedDevSideSync;
    226 cudaErrorContained, CONTAINED sticky;
    300 cudaErrorInvalidSource;
    301 cudaErrorFileNotFound;
    302 cudaErrorSharedObjectSymbolNotFound;
    303 cudaErrorSharedObjectInitFailed, SHARED_OBJECT_INIT_FAILED;
    304 cudaErrorOperatingSystem;
    400 cudaErrorInvalidResourceHandle, INVALID_RESOURCE_HANDLE;
    401 cudaErrorIllegalState;
    402 cudaErrorLossyQuery;
    500 cudaErrorSymbolNotFound;
    600 cudaErrorNotReady, NOT_READY;
    700 cudaErrorIllegalAddress, ILLEGAL_ADDRESS sticky;
    701 cudaErrorLaunchOutOfResources, LAUNCH_OUT_OF_RESOURCES;
    702 cudaErrorLaunchTimeout, LAUNCH_TIMEOUT sticky;
    703 cudaErrorLaunchIncompatibleTexturing;
    704 cudaErrorPeerAccessAlreadyEnabled, PEER_ACCESS_ALREADY_ENABLED;
    705 cudaErrorPeerAccessNotEnabled, PEER_ACCESS_NOT_ENABLED;
    708 cudaErrorSetOnActiveProcess;
    709 cudaErrorContextIsDestroyed;
    710 cudaErrorAssert, ASSERT sticky;
    711 cudaErrorTooManyPeers;
    712 cudaErrorHostMemoryAlreadyRegistered, HOST_MEMORY_ALREADY_REGISTERED;
    713 cudaErrorHostMemoryNotRegistered, HOST_MEMORY_NOT_REGISTERED;
    714 cudaErrorHardwareStackError, HARDWARE_STACK_ERROR sticky;
    715 cudaErrorIllegalInstruction, ILLEGAL_INSTRUCTION sticky;
    716 cudaErrorMisalignedAddress, MISALIGNED_ADDRESS sticky;
    717 cudaErrorInvalidAddressSpace, INVALID_ADDRESS_SPACE sticky;
    718 cudaErrorInvalidPc, INVALID_PC sticky;
    719 cudaErrorLaunchFailure, LAUNCH_FAILURE sticky;
    720 cudaErrorCooperativeLaunchTooLarge;
    721 cudaErrorTensorMemoryLeak, TENSOR_MEMORY_LEAK sticky;
    800 cudaErrorNotPermitted, NOT_PERMITTED;
    801 cudaErrorNotSupported, NOT_SUPPORTED;
    802 cudaErrorSystemNotReady;
    803 cudaErrorSystemDriverMismatch;
    804 cudaErrorCompatNotSupportedOnDevice;
    805 cudaErrorMpsConnectionFailed;
    806 cudaErrorMpsRpcFailure;
    807 cudaErrorMpsServerNotReady;
    808 cudaErrorMpsMaxClientsReached;
    809 cudaErrorMpsMaxConnectionsReached;
    810 cudaErrorMpsClientTerminated, MPS_CLIENT_TERMINATED sticky;
    811 cudaErrorCdpNotSupported;
    812 cudaErrorCdpVersionMismatch;
    900 cudaErrorStreamCaptureUnsupported, STREAM_CAPTURE_UNSUPPORTED;
    901 cudaErrorStreamCaptureInvalidated, STREAM_CAPTURE_INVALIDATED;
    902 cudaErrorStreamCaptureMerge;
    903 cudaErrorStreamCaptureUnmatched;
    904 cudaErrorStreamCaptureUnjoined;
    905 cudaErrorStreamCaptureIsolation;
    906 cudaErrorStreamCaptureImplicit, STREAM_CAPTURE_IMPLICIT;
    907 cudaErrorCapturedEvent, CAPTURED_EVENT;
    908 cudaErrorStreamCaptureWrongThread, STREAM_CAPTURE_WRONG_THREAD;
    909 cudaErrorTimeout;
    910 cudaErrorGraphExecUpdateFailure;
    911 cudaErrorExternalDevice, EXTERNAL_DEVICE sticky;
    912 cudaErrorInvalidClusterSize;
    913 cudaErrorFunctionNotLoaded;
    914 cudaErrorInvalidResourceType;
    915 cudaErrorInvalidResourceConfiguration;
    999 cudaErrorUnknown, UNKNOWN;
}

impl CudaCode {
    /// Whether the code marks a corrupted context: every later call of the process returns it too.
    ///
    /// Source: the comments on `cudaError` in `driver_types.h`, which say of each code whether the
    /// process must end.
    #[must_use]
    pub fn is_sticky(self) -> bool {
        Self::STICKY.contains(&self)
    }
}

impl fmt::Debug for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Display for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
