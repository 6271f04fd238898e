//! What `src/driver/cuda/driver_api.rs` has: the types of the driver's functions, from
//! `cuda/driver_api.h`. That file is committed, since a build without a toolkit has no headers.
//!
//! A build does none of this. The test `driver_api` of `tests/build` calls the build script for it,
//! and compares the file with what the headers of a toolkit say. With
//! `PINLANE_DRIVER_API=overwrite` it writes the file.

use std::path::Path;

use bindgen::Formatter;

use crate::bindings;
use crate::failure::Failure;
use crate::toolkit::Toolkit;

/// The functions, each with the version of CUDA whose signature it is.
const FUNCTIONS: &str = "PFN_cu(\
    GetProcAddress_v12000|Init_v2000|DriverGetVersion_v2020|\
    DeviceGetCount_v2000|DeviceGet_v2000|DeviceGetName_v2000|DeviceGetAttribute_v2000|\
    DevicePrimaryCtxRetain_v7000|CtxGetCurrent_v4000|CtxPushCurrent_v4000|CtxPopCurrent_v4000|\
    MemGetInfo_v3020|MemHostAlloc_v2020|MemFreeHost_v2000|\
    MemHostRegister_v6050|MemHostUnregister_v4000|\
    MemAlloc_v3020|MemFree_v3020|MemAllocAsync_v11020|MemFreeAsync_v11020|\
    DeviceGetMemPool_v11020|MemPoolSetAccess_v11020|\
    MemcpyHtoDAsync_v3020|MemcpyDtoHAsync_v3020|MemcpyDtoDAsync_v3020|MemcpyPeerAsync_v4000|\
    Memcpy3DPeerAsync_v4000|\
    Memcpy2DAsync_v3020|Memcpy3DAsync_v3020|MemcpyBatchAsync_v12080|MemsetD8Async_v3020|\
    StreamCreateWithPriority_v5050|StreamDestroy_v4000|StreamQuery_v2000|\
    StreamSynchronize_v2000|StreamWaitEvent_v3020|StreamIsCapturing_v10000|\
    ThreadExchangeStreamCaptureMode_v10010|\
    StreamBeginCapture_v10010|StreamGetCaptureInfo_v11030|StreamEndCapture_v10000|\
    GraphInstantiateWithFlags_v11040|GraphLaunch_v10000|\
    GraphExecMemcpyNodeSetParams_v10020|GraphExecDestroy_v10000|GraphDestroy_v10000|\
    EventCreate_v2000|EventDestroy_v4000|EventRecord_v2000|EventQuery_v2000|\
    EventSynchronize_v2000|EventElapsedTime_v2000|LaunchHostFunc_v10000|\
    DeviceCanAccessPeer_v4000|CtxEnablePeerAccess_v4000|\
    ModuleLoadData_v2000|ModuleGetFunction_v2000|\
    CtxGetStreamPriorityRange_v5050)";

const CONSTANTS: &str = "STREAM_.*|EVENT_.*|HOST_.*|CAPTURE_.*|LOCATION_.*|ACCESS_.*|SOURCE_.*|\
    LAUNCH_PRIORITY|LEGACY_STREAM|MEMORY_HOST|MEMORY_DEVICE|MEMORY_POOLS_SUPPORTED|\
    UNIFIED_ADDRESSING|READ_ONLY_REGISTRATION|ASYNC_ENGINE_COUNT|MAX_PITCH|PCI_.*";

/// Enums of C, which are numbers here: a newer driver may return one that no header knows.
const ENUMS: [&str; 11] = [
    "CUresult",
    "CUdevice_attribute",
    "CUdriverProcAddressQueryResult",
    "CUarray_format",
    "CUmemAccess_flags",
    "CUmemAllocationHandleType",
    "CUmemLocationType",
    "CUmemorytype",
    "CUmemcpySrcAccessOrder",
    "CUstreamCaptureMode",
    "CUstreamCaptureStatus",
];

/// All toolkits lay it out so, and do not all write it so.
const LOCATION: &str = "\
#[repr(C)]
pub struct CUmemLocation {
    pub type_: CUmemLocationType,
    pub id: ::core::ffi::c_int,
}";

/// What a launch needs. Toolkits differ in the values that an attribute may have; one is used.
const LAUNCH: &str = "\
#[repr(C, align(8))]
pub struct CUlaunchAttribute {
    pub id: ::core::ffi::c_uint,
    pub pad: ::core::ffi::c_uint,
    pub priority: ::core::ffi::c_int,
    pub rest: [::core::ffi::c_int; 15],
}
#[repr(C)]
pub struct CUlaunchConfig {
    pub grid: [::core::ffi::c_uint; 3],
    pub block: [::core::ffi::c_uint; 3],
    pub shared_bytes: ::core::ffi::c_uint,
    pub stream: CUstream,
    pub attributes: *mut CUlaunchAttribute,
    pub attribute_count: ::core::ffi::c_uint,
}
pub type PFN_cuLaunchKernelEx_v11060 = ::core::option::Option<
    unsafe extern \"C\" fn(
        config: *const CUlaunchConfig,
        f: CUfunction,
        kernelParams: *mut *mut ::core::ffi::c_void,
        extra: *mut *mut ::core::ffi::c_void,
    ) -> CUresult,
>;";

/// Writes the declarations to `out`, with the libclang in the file `libclang`.
pub fn generate(
    toolkit: &Toolkit,
    libclang: &Path,
    header: &Path,
    out: &Path,
) -> Result<(), Failure> {
    let enums = ENUMS.iter().fold(
        bindings::builder(toolkit, libclang)
            .header(header.display().to_string())
            .allowlist_type(FUNCTIONS)
            .allowlist_var(CONSTANTS)
            .layout_tests(false)
            .blocklist_type("CUmemLocation(_st.*|_v1)?")
            .raw_line(LOCATION)
            .raw_line(LAUNCH)
            .formatter(Formatter::Prettyplease),
        |builder, name| {
            builder
                .blocklist_type(format!("{name}(_enum|_v1)?|cudaError_enum"))
                .raw_line(format!("pub type {name} = ::core::ffi::c_uint;"))
        },
    );
    bindings::write(enums, toolkit, libclang, out)
}
