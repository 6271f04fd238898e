//! The driver's library, `libcuda.so.1`, and the functions in it.
//!
//! It is opened at the first call, and never closed. If it is not there, or is of no use, that is
//! an error of the call; the next one looks again, because the driver may come up later.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::super::batch::{self, CopyBatch};
use super::super::driver_api::*;
use super::super::functions::{Function, Search, function};
use super::device::Device;
use crate::driver::{DriverResult, Ordinal};
use crate::error::CudaCode;
use crate::process::PerProcess;

/// The version of CUDA that a driver must support at least: that of `cuGetProcAddress`, which finds
/// all other functions.
pub(super) const MINIMUM: c_int = 12_000;

/// Where the library is looked for. The first is where the dynamic linker finds it. WSL has it in a
/// folder of its own, and NixOS, which that linker may not know.
const PLACES: [&CStr; 3] =
    [c"libcuda.so.1", c"/usr/lib/wsl/lib/libcuda.so.1", c"/run/opengl-driver/lib/libcuda.so.1"];

/// Declares the functions, each with the version of CUDA whose signature it is.
macro_rules! functions {
    ($($field:ident: $name:literal $version:literal $type:ident;)*) => {
        /// The functions of the driver.
        pub(super) struct Functions {
            $(pub(super) $field: Function<$type>,)*
        }

        impl Functions {
            fn find(search: Search) -> Result<Functions, c_uint> {
                // SAFETY: the driver's functions of these names and versions have these signatures.
                unsafe {
                    Ok(Functions {
                        $($field: function::<$type>(search.find($name, $version)?),)*
                    })
                }
            }
        }
    };
}

functions! {
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
    launch: c"cuLaunchKernel" 4000 PFN_cuLaunchKernel_v4000;
}

/// The library, initialised.
pub(super) struct Library {
    pub(super) functions: Functions,
    /// If the driver has it.
    pub(super) copy_batch: Option<CopyBatch>,
    devices: Box<[Device]>,
}

impl Library {
    /// The library of this process.
    #[inline]
    pub(super) fn get() -> DriverResult<&'static Library> {
        static LIBRARY: PerProcess<OnceLock<Library>> = PerProcess::new();
        let place = LIBRARY.get();
        match place.get() {
            Some(library) => Ok(library),
            None => {
                let library = Library::open()?;
                Ok(place.get_or_init(|| library))
            }
        }
    }

    /// The device of this number.
    pub(super) fn device(&self, ordinal: Ordinal) -> DriverResult<&Device> {
        let index = usize::try_from(ordinal).map_err(|_| CudaCode::INVALID_DEVICE)?;
        self.devices.get(index).ok_or(CudaCode::INVALID_DEVICE)
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.devices
    }

    #[cold]
    fn open() -> DriverResult<Library> {
        let mut error = CudaCode::INSUFFICIENT_DRIVER;
        for place in PLACES {
            let Some(opened) = Opened::open(place) else { continue };
            match opened.library() {
                Ok(library) => return Ok(library),
                // A toolkit has a stub of that name, which is linked against and has no driver in
                // it. The real one may lie in the next place.
                Err(CudaCode::STUB_LIBRARY) => error = CudaCode::STUB_LIBRARY,
                Err(code) => return Err(code),
            }
        }
        Err(error)
    }
}

/// The version of CUDA that the driver of this machine supports; 0 if there is none.
pub(super) fn driver_version() -> c_int {
    let versions = PLACES.into_iter().filter_map(Opened::open).filter_map(|opened| {
        let at = opened.symbol(c"cuDriverGetVersion")?;
        // SAFETY: the function of this name has had this signature since CUDA 2.2.
        let version = unsafe { function::<PFN_cuDriverGetVersion_v2020>(at) };
        let mut number = 0;
        // SAFETY: `number` is a live `int` for the call to write.
        let code = unsafe { version(&mut number) };
        (code == 0).then_some(number)
    });
    versions.into_iter().next().unwrap_or(0)
}

/// A library that was opened, whatever it is.
struct Opened(NonNull<c_void>);

impl Opened {
    fn open(name: &CStr) -> Option<Opened> {
        // SAFETY: a C string. Opening NVIDIA's library runs its constructors, which need nothing.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
            .map(Opened)
    }

    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open library, and a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    fn library(&self) -> DriverResult<Library> {
        // A driver that is older than `MINIMUM` does not have this version of the search.
        let search = self.symbol(c"cuGetProcAddress_v2").ok_or(CudaCode::INSUFFICIENT_DRIVER)?;
        // SAFETY: the symbol has this signature.
        let search = Search(unsafe { function::<PFN_cuGetProcAddress_v12000>(search) });
        let functions = Functions::find(search).map_err(|code| match CudaCode(code as i32) {
            CudaCode::STUB_LIBRARY => CudaCode::STUB_LIBRARY,
            _ => CudaCode::INSUFFICIENT_DRIVER,
        })?;
        // SAFETY: takes flags, which must be 0.
        result(unsafe { (functions.init)(0) })?;
        let mut count = 0;
        // SAFETY: `count` is a live `int` for the call to write.
        result(unsafe { (functions.device_count)(&mut count) })?;
        let devices = (0..count).map(|number| Device::new(&functions, number));
        let devices = devices.collect::<DriverResult<_>>()?;
        let copy_batch = search.find(batch::NAME, batch::VERSION).ok();
        // SAFETY: the driver's function of this name and version has this signature.
        let copy_batch =
            copy_batch.map(|at| unsafe { function::<PFN_cuMemcpyBatchAsync_v12080>(at) });
        Ok(Library { functions, copy_batch, devices })
    }
}

/// What a function of the driver returned. Its codes are those of the runtime.
#[inline]
pub(super) fn result(code: c_uint) -> DriverResult<()> {
    if code == 0 { Ok(()) } else { Err(CudaCode(code.cast_signed())) }
}
