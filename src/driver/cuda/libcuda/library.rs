//! The driver's library, `libcuda.so.1`, and calls of it in the context of a device.
//!
//! It is opened at the first call, and never closed. If it is not there, or is of no use, that is
//! an error of the call; the next one looks again, because the driver may come up later.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use super::super::batch::{self, CopyBatch};
use super::super::driver_api::{
    CUcontext, PFN_cuDriverGetVersion_v2020, PFN_cuGetProcAddress_v12000,
    PFN_cuMemcpyBatchAsync_v12080,
};
use super::super::functions::{Search, function};
use super::super::{graph_table, strided};
use super::context::{Context, Device};
use super::table::{Functions, result};
use crate::error::CudaCode;
use crate::process::PerProcess;
use pinlane_driver::{DriverResult, Ordinal};

/// The version of CUDA that a driver must support at least: that of `cuGetProcAddress`, which finds
/// all other functions.
pub(super) const MINIMUM: c_int = 12_000;

/// Where the library is looked for. The first is where the dynamic linker finds it. WSL has it in a
/// folder of its own, and NixOS, which that linker may not know.
const PLACES: [&CStr; 3] =
    [c"libcuda.so.1", c"/usr/lib/wsl/lib/libcuda.so.1", c"/run/opengl-driver/lib/libcuda.so.1"];

/// The library, initialised.
pub(super) struct Library {
    pub(super) functions: Functions,
    /// If the driver has it.
    pub(super) copy_batch: Option<CopyBatch>,
    pub(super) graphs: graph_table::Functions,
    pub(super) strided: strided::Functions,
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
                let library = Library::open(&PLACES)?;
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

    /// Runs a call with the device's context current on the thread.
    pub(super) fn on(
        &self,
        device: Ordinal,
        call: impl FnOnce(&Functions) -> c_uint,
    ) -> DriverResult<()> {
        let context = self.device(device)?.context(&self.functions)?;
        self.within(context, call)
    }

    /// Runs a call that needs some context, whichever. Without one there is nothing to call for.
    pub(super) fn anywhere(&self, call: impl FnOnce(&Functions) -> c_uint) -> DriverResult<()> {
        if !self.current()?.is_null() {
            return result(call(&self.functions));
        }
        let known = self.devices().iter().find_map(Device::known_context);
        match known {
            Some(context) => self.within(context, call),
            None => self.on(0, call),
        }
    }

    fn current(&self) -> DriverResult<CUcontext> {
        let mut current = null_mut();
        // SAFETY: `current` is a live handle for the call to write.
        result(unsafe { (self.functions.current)(&mut current) })?;
        Ok(current)
    }

    /// The result is that of the call, even if the context cannot be popped: what the call made or
    /// enqueued exists.
    #[inline]
    fn within(
        &self,
        context: Context,
        call: impl FnOnce(&Functions) -> c_uint,
    ) -> DriverResult<()> {
        let functions = &self.functions;
        if self.current()? == context.get() {
            return result(call(functions));
        }
        // SAFETY: a live context.
        result(unsafe { (functions.push)(context.get()) })?;
        let answer = result(call(functions));
        let mut popped = null_mut();
        // SAFETY: `popped` is a live handle for the call to write.
        let _ = unsafe { (functions.pop)(&mut popped) };
        answer
    }

    #[cold]
    fn open(places: &[&CStr]) -> DriverResult<Library> {
        let mut error = CudaCode::INSUFFICIENT_DRIVER;
        for place in places {
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
    version_in(&PLACES)
}

fn version_in(places: &[&CStr]) -> c_int {
    let opened = places.iter().filter_map(|place| Opened::open(place));
    let mut versions = opened.filter_map(|opened| {
        let at = opened.symbol(c"cuDriverGetVersion")?;
        // SAFETY: the function of this name has had this signature since CUDA 2.2.
        let version = unsafe { function::<PFN_cuDriverGetVersion_v2020>(at) };
        let mut number = 0;
        // SAFETY: `number` is a live `int` for the call to write.
        let code = unsafe { version(&mut number) };
        (code == 0).then_some(number)
    });
    versions.next().unwrap_or(0)
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
        let unfit = |code| match CudaCode(code as i32) {
            CudaCode::STUB_LIBRARY => CudaCode::STUB_LIBRARY,
            _ => CudaCode::INSUFFICIENT_DRIVER,
        };
        let find = |name: &CStr, version| search.find(name, version);
        let functions = Functions::find(find).map_err(unfit)?;
        let graphs = graph_table::Functions::find(find).map_err(unfit)?;
        let strided = strided::Functions::find(find).map_err(unfit)?;
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
        Ok(Library { functions, copy_batch, graphs, strided, devices })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A library of this C code in a folder, as a place where one is looked for.
    fn library(folder: &Path, code: &str) -> CString {
        std::fs::create_dir_all(folder).unwrap();
        let (source, made) = (folder.join("libcuda.cpp"), folder.join("libcuda.so.1"));
        std::fs::write(&source, format!("extern \"C\" {{ {code} }}")).unwrap();
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let compile = ["-shared".as_ref(), "-fPIC".as_ref(), "-o".as_ref(), made.as_os_str()];
        let status = Command::new(compiler).args(compile).arg(&source).status();
        assert!(status.expect("a C++ compiler").success());
        CString::new(made.to_str().expect("UTF-8")).unwrap()
    }

    /// As on WSL, where the dynamic linker may find no library, or the stub of a toolkit.
    #[test]
    fn a_driver_in_a_later_place_is_found() {
        let name = format!("pinlane-places-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let stub = library(
            &folder.join("stub"),
            "int cuGetProcAddress_v2(const char*, void**, int, unsigned long, int*) { return 34; } \
             int cuDriverGetVersion(int*) { return 34; }",
        );
        let driver = library(
            &folder.join("wsl"),
            "static int init(...) { return 100; } \
             int cuGetProcAddress_v2(const char*, void** found, int, unsigned long, int*) \
             { *found = reinterpret_cast<void*>(init); return 0; } \
             int cuDriverGetVersion(int* version) { *version = 12080; return 0; }",
        );
        let missing = CString::new(folder.join("libcuda.so.1").to_str().unwrap()).unwrap();
        let (missing, stub, driver) = (&*missing, &*stub, &*driver);
        for (places, error, version) in [
            (&[missing][..], CudaCode::INSUFFICIENT_DRIVER, 0),
            (&[missing, stub], CudaCode::STUB_LIBRARY, 0),
            (&[missing, driver, stub], CudaCode::NO_DEVICE, 12_080),
            (&[stub, missing, driver], CudaCode::NO_DEVICE, 12_080),
        ] {
            assert_eq!(Library::open(places).err(), Some(error), "{places:?}");
            assert_eq!(version_in(places), version, "{places:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
