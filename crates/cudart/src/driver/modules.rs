//! Modules: code for GPUs, of which only the names are used. A library is a module, and its kernels
//! are functions: there is one code for all contexts.
//!
//! The text of PTX says which kernels and variables there are, and how long parameters are. Of
//! other images (cubin, fat binaries) nothing is read: any name is taken for a kernel's.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::Emulator;

use crate::abi::{Handle, Out};
use crate::ptx;
use crate::stand_ins::Kernel;
use crate::symbols::symbols;

const INVALID_IMAGE: CudaCode = CudaCode(200);
const FILE_NOT_FOUND: CudaCode = CudaCode(301);
const INVALID_HANDLE: CudaCode = CudaCode(400);
pub const NOT_FOUND: CudaCode = CudaCode(500);

/// What the handles of modules and functions begin with.
const MODULE: usize = 0xd0_0000_0000;
const FUNCTION: usize = 0xf0_0000_0000;

struct Module {
    /// What its text says, if it is PTX.
    known: Option<ptx::Module>,
    /// Where its variables are. They are made by their first use.
    variables: BTreeMap<String, usize>,
}

/// A kernel of a module.
#[derive(Clone)]
pub struct Function {
    /// 0 for a kernel that the program has registered with the runtime.
    pub module: Handle,
    name: CString,
    /// The sizes of its parameters, if its code says them.
    sizes: Option<Vec<usize>>,
}

impl Function {
    pub fn kernel(self) -> Kernel {
        Kernel { name: self.name.to_string_lossy().into_owned(), sizes: self.sizes }
    }
}

#[derive(Default)]
struct Modules {
    all: BTreeMap<Handle, Module>,
    functions: BTreeMap<Handle, Function>,
    made: usize,
}

impl Modules {
    fn find(&mut self, module: Handle) -> DriverResult<&mut Module> {
        self.all.get_mut(&module).ok_or(INVALID_HANDLE)
    }

    fn next(&mut self, tag: usize) -> Handle {
        self.made += 1;
        tag | self.made
    }

    fn function(&mut self, module: Handle, name: &CStr) -> DriverResult<Handle> {
        let sizes = match &self.find(module)?.known {
            Some(known) => {
                let sizes = known.kernels.get(&*name.to_string_lossy());
                Some(sizes.cloned().ok_or(NOT_FOUND)?)
            }
            None => None,
        };
        let same = |one: &Function| one.module == module && *one.name == *name;
        if let Some((&handle, _)) = self.functions.iter().find(|(_, one)| same(one)) {
            return Ok(handle);
        }
        let handle = self.next(FUNCTION);
        self.functions.insert(handle, Function { module, name: name.to_owned(), sizes });
        Ok(handle)
    }
}

fn modules() -> MutexGuard<'static, Modules> {
    static MODULES: LazyLock<Mutex<Modules>> = LazyLock::new(Mutex::default);
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The function that a call names: of a module, or one that `cudaGetFuncBySymbol` gave.
pub fn function(handle: Handle) -> DriverResult<Function> {
    if let Some(function) = modules().functions.get(&handle) {
        return Ok(function.clone());
    }
    let registered = symbols().kernels.get(&handle).cloned().ok_or(INVALID_HANDLE)?;
    let name = CString::new(registered).map_err(|_| INVALID_HANDLE)?;
    Ok(Function { module: 0, name, sizes: None })
}

fn text<'a>(name: *const c_char) -> DriverResult<&'a CStr> {
    if name.is_null() {
        return Err(CudaCode::INVALID_VALUE);
    }
    // SAFETY: CUDA demands of its callers that it is a string, and that it stays for the call.
    Ok(unsafe { CStr::from_ptr(name) })
}

/// What an image is, by the bytes that it begins with.
fn is_binary(start: &[u8]) -> bool {
    const STARTS: [[u8; 4]; 3] =
        [*b"\x7fELF", 0xba55_ed50_u32.to_le_bytes(), 0x4662_43b1_u32.to_le_bytes()];
    STARTS.iter().any(|known| start.starts_with(known))
}

fn load(out: Out<Handle>, image: &[u8]) -> DriverResult<()> {
    let known = if is_binary(image) {
        None
    } else {
        let text = str::from_utf8(image).map_err(|_| INVALID_IMAGE)?;
        Some(ptx::read(text).ok_or(INVALID_IMAGE)?)
    };
    let mut modules = modules();
    let handle = modules.next(MODULE);
    modules.all.insert(handle, Module { known, variables: BTreeMap::new() });
    out.put(handle)
}

/// The place of a variable, and its size.
fn variable(gpu: &Emulator, module: Handle, name: &str) -> DriverResult<(Handle, usize)> {
    let bytes = {
        let mut modules = modules();
        let module = modules.find(module)?;
        let known = module.known.as_ref().and_then(|known| known.variables.get(name));
        let bytes = *known.ok_or(NOT_FOUND)?;
        if let Some(&place) = module.variables.get(name) {
            return Ok((place, bytes));
        }
        bytes
    };
    // Not under the lock: this waits for the device.
    let new = crate::symbols::zeroed(gpu, bytes)?;
    let place = modules()
        .find(module)
        .map(|module| *module.variables.entry(name.to_owned()).or_insert(new.addr()));
    if place != Ok(new.addr()) {
        // Another thread was first, or the module is gone.
        gpu.free(new)?;
    }
    Ok((place?, bytes))
}

cuda! {
    fn [cuModuleLoad, cuLibraryLoadFromFile, cudaLibraryLoadFromFile](
        out: Out<Handle>, path: *const c_char,
    ) |_face| {
        out.check()?;
        let path = OsStr::from_bytes(text(path)?.to_bytes());
        let image = fs::read(path).map_err(|_| FILE_NOT_FOUND)?;
        load(out, image.strip_suffix(&[0]).unwrap_or(&image))
    }

    // An image in memory is a string, or a binary of unknown length. Options are for a compiler,
    // and there is none.
    fn [
        cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary, cuLibraryLoadData,
        cudaLibraryLoadData
    ](
        out: Out<Handle>, image: *const c_char,
    ) |_face| {
        out.check()?;
        load(out, text(image)?.to_bytes())
    }

    fn [cuModuleUnload, cuLibraryUnload, cudaLibraryUnload](module: Handle) |gpu| {
        let gone = {
            let mut modules = modules();
            modules.functions.retain(|_, function| function.module != module);
            modules.all.remove(&module).ok_or(INVALID_HANDLE)?
        };
        let mut places = gone.variables.into_values();
        places.try_for_each(|place| gpu.free(std::ptr::without_provenance_mut(place)))
    }

    fn [cuModuleGetFunction, cuLibraryGetKernel, cudaLibraryGetKernel](
        out: Out<Handle>, module: Handle, name: *const c_char,
    ) |_face| {
        out.check()?;
        out.put(modules().function(module, text(name)?)?)
    }

    fn cuLibraryGetModule(out: Out<Handle>, library: Handle) |_face| {
        modules().find(library)?;
        out.put(library)
    }

    fn cuKernelGetFunction(out: Out<Handle>, kernel: Handle) |_face| {
        function(kernel)?;
        out.put(kernel)
    }

    // The name stays until its module is unloaded.
    fn [cuFuncGetName, cuKernelGetName](out: Out<*const c_char>, named: Handle) |_face| {
        let modules = modules();
        let known = modules.functions.get(&named).ok_or(INVALID_HANDLE)?;
        out.put(known.name.as_ptr())
    }

    fn [cuModuleGetGlobal_v2, cuLibraryGetGlobal, cudaLibraryGetGlobal](
        out: Out<Handle>, bytes: Out<usize>, module: Handle, name: *const c_char,
    ) |gpu| {
        let (place, size) = variable(gpu, module, &text(name)?.to_string_lossy())?;
        out.put_if_any(place);
        bytes.put_if_any(size);
        Ok(())
    }
}
