//! The functions of the driver's library.

use std::ffi::c_uint;

use super::super::driver_api::*;
use super::super::functions::{Function, function, table};
use crate::error::CudaCode;
use pinlane_driver::DriverResult;

table! {
    /// The functions of the driver.
    init: c"cuInit" 2000 PFN_cuInit_v2000;
    device_count: c"cuDeviceGetCount" 2000 PFN_cuDeviceGetCount_v2000;
    device: c"cuDeviceGet" 2000 PFN_cuDeviceGet_v2000;
    device_name: c"cuDeviceGetName" 2000 PFN_cuDeviceGetName_v2000;
    device_attribute: c"cuDeviceGetAttribute" 2000 PFN_cuDeviceGetAttribute_v2000;
    retain: c"cuDevicePrimaryCtxRetain" 7000 PFN_cuDevicePrimaryCtxRetain_v7000;
    current: c"cuCtxGetCurrent" 4000 PFN_cuCtxGetCurrent_v4000;
    push: c"cuCtxPushCurrent" 4000 PFN_cuCtxPushCurrent_v4000;
    pop: c"cuCtxPopCurrent" 4000 PFN_cuCtxPopCurrent_v4000;
    memory_info: c"cuMemGetInfo" 3020 PFN_cuMemGetInfo_v3020;
    host_alloc: c"cuMemHostAlloc" 2020 PFN_cuMemHostAlloc_v2020;
    host_free: c"cuMemFreeHost" 2000 PFN_cuMemFreeHost_v2000;
    host_register: c"cuMemHostRegister" 6050 PFN_cuMemHostRegister_v6050;
    host_unregister: c"cuMemHostUnregister" 4000 PFN_cuMemHostUnregister_v4000;
    malloc: c"cuMemAlloc" 3020 PFN_cuMemAlloc_v3020;
    free: c"cuMemFree" 3020 PFN_cuMemFree_v3020;
    malloc_async: c"cuMemAllocAsync" 11020 PFN_cuMemAllocAsync_v11020;
    free_async: c"cuMemFreeAsync" 11020 PFN_cuMemFreeAsync_v11020;
    memory_pool: c"cuDeviceGetMemPool" 11020 PFN_cuDeviceGetMemPool_v11020;
    pool_access: c"cuMemPoolSetAccess" 11020 PFN_cuMemPoolSetAccess_v11020;
    copy_up: c"cuMemcpyHtoDAsync" 3020 PFN_cuMemcpyHtoDAsync_v3020;
    copy_down: c"cuMemcpyDtoHAsync" 3020 PFN_cuMemcpyDtoHAsync_v3020;
    copy_within: c"cuMemcpyDtoDAsync" 3020 PFN_cuMemcpyDtoDAsync_v3020;
    copy_peer: c"cuMemcpyPeerAsync" 4000 PFN_cuMemcpyPeerAsync_v4000;
    copy_volume_peer: c"cuMemcpy3DPeerAsync" 4000 PFN_cuMemcpy3DPeerAsync_v4000;
    fill: c"cuMemsetD8Async" 3020 PFN_cuMemsetD8Async_v3020;
    stream_create: c"cuStreamCreateWithPriority" 5050 PFN_cuStreamCreateWithPriority_v5050;
    stream_destroy: c"cuStreamDestroy" 4000 PFN_cuStreamDestroy_v4000;
    stream_query: c"cuStreamQuery" 2000 PFN_cuStreamQuery_v2000;
    stream_synchronize: c"cuStreamSynchronize" 2000 PFN_cuStreamSynchronize_v2000;
    stream_wait: c"cuStreamWaitEvent" 3020 PFN_cuStreamWaitEvent_v3020;
    stream_capture: c"cuStreamIsCapturing" 10000 PFN_cuStreamIsCapturing_v10000;
    capture_mode: c"cuThreadExchangeStreamCaptureMode" 10010
        PFN_cuThreadExchangeStreamCaptureMode_v10010;
    event_create: c"cuEventCreate" 2000 PFN_cuEventCreate_v2000;
    event_destroy: c"cuEventDestroy" 4000 PFN_cuEventDestroy_v4000;
    event_record: c"cuEventRecord" 2000 PFN_cuEventRecord_v2000;
    event_query: c"cuEventQuery" 2000 PFN_cuEventQuery_v2000;
    event_synchronize: c"cuEventSynchronize" 2000 PFN_cuEventSynchronize_v2000;
    event_elapsed: c"cuEventElapsedTime" 2000 PFN_cuEventElapsedTime_v2000;
    launch_host: c"cuLaunchHostFunc" 10000 PFN_cuLaunchHostFunc_v10000;
    can_access_peer: c"cuDeviceCanAccessPeer" 4000 PFN_cuDeviceCanAccessPeer_v4000;
    enable_peer: c"cuCtxEnablePeerAccess" 4000 PFN_cuCtxEnablePeerAccess_v4000;
    load: c"cuModuleLoadData" 2000 PFN_cuModuleLoadData_v2000;
    kernel: c"cuModuleGetFunction" 2000 PFN_cuModuleGetFunction_v2000;
    priorities: c"cuCtxGetStreamPriorityRange" 5050 PFN_cuCtxGetStreamPriorityRange_v5050;
    launch: c"cuLaunchKernelEx" 11060 PFN_cuLaunchKernelEx_v11060;
}

/// What a function of the driver returned. Its codes are those of the runtime.
#[inline]
pub(super) fn result(code: c_uint) -> DriverResult<()> {
    if code == 0 { Ok(()) } else { Err(CudaCode(code.cast_signed())) }
}
