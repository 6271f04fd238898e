//! Functions and variables of the program's device code, as its constructors register them.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{Emulator, Plane};

use crate::abi::{Handle, Out};
use crate::copies::copy;
use crate::driver::contexts::target;

/// `cudaErrorInvalidSymbol`
const INVALID_SYMBOL: CudaCode = CudaCode(13);

/// What is registered, by the addresses of the host's shadows.
#[derive(Default)]
pub struct Symbols {
    /// Kernels by their mangled names.
    pub kernels: HashMap<usize, String>,
    variables: HashMap<usize, Variable>,
}

struct Variable {
    bytes: usize,
    /// On each device that has used it.
    places: HashMap<c_int, usize>,
}

pub fn symbols() -> MutexGuard<'static, Symbols> {
    static SYMBOLS: LazyLock<Mutex<Symbols>> = LazyLock::new(Mutex::default);
    SYMBOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name that a program gives, if it is one.
fn text(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: what nvcc writes for the constructors of a program ends with a NUL.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Memory for a variable on the current device. A variable without an initializer is zero.
pub fn zeroed(gpu: &Emulator, bytes: usize) -> DriverResult<*mut c_void> {
    let ptr = gpu.malloc(bytes)?;
    // SAFETY: the memory is new.
    unsafe { gpu.fill(gpu.default_stream(false), ptr, bytes, &[0], (bytes, 1), true) }?;
    gpu.device_synchronize(gpu.current_device())?;
    Ok(ptr)
}

/// The variable on the current device: where, and how long. It is made by its first use.
fn place(gpu: &Emulator, symbol: *const c_void) -> DriverResult<(*mut c_void, usize)> {
    let device = gpu.current_device();
    let mut symbols = symbols();
    let variable = symbols.variables.get_mut(&symbol.addr()).ok_or(INVALID_SYMBOL)?;
    let bytes = variable.bytes;
    if let Some(&place) = variable.places.get(&device) {
        return Ok((std::ptr::without_provenance_mut(place), bytes));
    }
    let ptr = zeroed(gpu, bytes)?;
    variable.places.insert(device, ptr.addr());
    Ok((ptr, bytes))
}

/// Part of a variable.
fn part(
    gpu: &Emulator,
    symbol: *const c_void,
    offset: usize,
    bytes: usize,
) -> DriverResult<*mut c_void> {
    let (start, all) = place(gpu, symbol)?;
    let inside = offset <= all && bytes <= all - offset;
    let part = start.cast::<u8>().wrapping_add(offset).cast();
    if inside { Ok(part) } else { Err(CudaCode::INVALID_VALUE) }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(binary: *mut c_void) -> *mut *mut c_void {
    // The program gives it back and looks at nothing of it. It stays until the process ends.
    Box::into_raw(Box::new(binary))
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_binary: *mut *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(_binary: *mut *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_binary: *mut *mut c_void) -> c_char {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(
    _binary: *mut *mut c_void,
    shadow: *const c_void,
    _function: *mut c_char,
    name: *const c_char,
) {
    if let Some(name) = text(name) {
        symbols().kernels.insert(shadow.addr(), name);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(
    _binary: *mut *mut c_void,
    shadow: *mut c_void,
    _address: *mut c_char,
    _name: *const c_char,
    _external: c_int,
    bytes: usize,
) {
    let variable = Variable { bytes, places: HashMap::new() };
    symbols().variables.insert(shadow.addr(), variable);
}

/// Gives a managed variable memory that the host can use.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterManagedVar(
    _binary: *mut *mut c_void,
    shadow: Out<*mut c_void>,
    _address: *mut c_char,
    _name: *const c_char,
    _external: c_int,
    bytes: usize,
) {
    let name = "__cudaRegisterManagedVar";
    crate::boundary::call(name, |gpu| shadow.put(gpu.host_alloc(bytes, 1, true)?));
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterHostVar(
    _binary: *mut *mut c_void,
    _name: *const c_char,
    _address: *mut c_void,
    _bytes: usize,
) {
}

cuda! {
    fn cudaGetSymbolAddress(out: Out<*mut c_void>, symbol: *const c_void) |gpu| {
        out.check()?;
        out.put(place(gpu, symbol)?.0)
    }

    fn cudaGetSymbolSize(out: Out<usize>, symbol: *const c_void) |_face| {
        let symbols = symbols();
        out.put(symbols.variables.get(&symbol.addr()).ok_or(INVALID_SYMBOL)?.bytes)
    }

    fn cudaMemcpyToSymbol / cudaMemcpyToSymbol_ptds(
        symbol: *const c_void, src: *const c_void, bytes: usize, offset: usize, kind: c_uint,
    ) |gpu, per_thread| {
        let dst = part(gpu, symbol, offset, bytes)?;
        copy(gpu, gpu.default_stream(per_thread), Plane::line(dst, src, bytes), kind, true)
    }

    fn cudaMemcpyFromSymbol / cudaMemcpyFromSymbol_ptds(
        dst: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: c_uint,
    ) |gpu, per_thread| {
        let src = part(gpu, symbol, offset, bytes)?;
        copy(gpu, gpu.default_stream(per_thread), Plane::line(dst, src, bytes), kind, true)
    }

    fn cudaMemcpyToSymbolAsync / cudaMemcpyToSymbolAsync_ptsz(
        symbol: *const c_void, src: *const c_void, bytes: usize, offset: usize, kind: c_uint,
        handle: Handle,
    ) |gpu, per_thread| {
        let dst = part(gpu, symbol, offset, bytes)?;
        copy(gpu, target(handle, per_thread)?, Plane::line(dst, src, bytes), kind, false)
    }

    fn cudaMemcpyFromSymbolAsync / cudaMemcpyFromSymbolAsync_ptsz(
        dst: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: c_uint,
        handle: Handle,
    ) |gpu, per_thread| {
        let src = part(gpu, symbol, offset, bytes)?;
        copy(gpu, target(handle, per_thread)?, Plane::line(dst, src, bytes), kind, false)
    }
}
