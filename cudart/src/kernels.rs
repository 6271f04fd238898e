//! Kernels. Their code is for GPUs and is not run. A program may have a stand-in for one, a
//! function of the host that is found by its name:
//!
//! ```c++
//! extern "C" void pinlane_kernel_add(dim3 grid, dim3 block, void** args, size_t shared);
//! extern "C" const size_t pinlane_kernel_add_sizes[];  // of the parameters; ends with 0
//! ```
//!
//! The sizes are needed where the mangled name does not say them. Without sizes the stand-in runs
//! at the call, when its stream is done.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use pinlane::CudaCode;
use pinlane::driver::DriverResult;
use pinlane::driver::emulated::Face;

use crate::abi::{Dim3, Handle, In, Out, stream};
use crate::symbols::symbols;
use crate::{boundary, machine, mangled};

/// `cudaErrorInvalidDeviceFunction`, `cudaErrorInvalidConfiguration`, and the one for a missing
/// configuration.
const INVALID_FUNCTION: CudaCode = CudaCode(98);
const INVALID_CONFIGURATION: CudaCode = CudaCode(9);
const MISSING_CONFIGURATION: CudaCode = CudaCode(52);

const MOST_THREADS: u64 = 1024;
/// No kernel has more parameters, nor longer ones.
const MOST_PARAMETERS: usize = 4096;

type StandIn = unsafe extern "C" fn(Dim3, Dim3, *mut *mut c_void, usize);

/// How a kernel is launched.
#[derive(Clone, Copy)]
struct Launch {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
}

thread_local! {
    /// `<<<...>>>` pushes, and the stub that it calls pops.
    static PUSHED: RefCell<Vec<Launch>> = const { RefCell::new(Vec::new()) };
}

/// What a kernel does here.
struct Known {
    function: StandIn,
    sizes: Option<Vec<usize>>,
}

fn find(symbol: &str) -> Option<*mut c_void> {
    let name = CString::new(symbol).ok()?;
    // SAFETY: the name ends with a NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The stand-in for a kernel, by its mangled name or its plain one.
fn stand_in(name: &str) -> Option<Known> {
    let plain = mangled::plain_name(name);
    for name_of in [Some(name), plain].into_iter().flatten() {
        let symbol = format!("pinlane_kernel_{name_of}");
        let Some(found) = find(&symbol) else { continue };
        // SAFETY: a function of this name is of this type (docs/drop-in.md).
        let function = unsafe { std::mem::transmute::<*mut c_void, StandIn>(found) };
        let sizes = find(&format!("{symbol}_sizes"));
        let sizes = sizes.map(|list| sizes_in(list.cast())).or_else(|| mangled::sizes(name));
        return Some(Known { function, sizes });
    }
    None
}

/// The sizes in a list that ends with 0.
fn sizes_in(list: *const usize) -> Vec<usize> {
    let size = |index: usize| {
        // SAFETY: the list ends with 0, and none is read behind that.
        unsafe { list.add(index).read() }
    };
    (0..MOST_PARAMETERS).map(size).take_while(|&size| size != 0).collect()
}

/// What the stand-in gets, on some other thread.
struct Arguments {
    list: *mut *mut c_void,
    _owned: Vec<*mut c_void>,
    _values: Vec<Box<[u64]>>,
}

// SAFETY: the pointers lead to what the same object owns, or are used while the call waits.
unsafe impl Send for Arguments {}

impl Arguments {
    fn list(&self) -> *mut *mut c_void {
        self.list
    }

    /// The values as they are now.
    fn copied(args: *mut *mut c_void, sizes: &[usize]) -> DriverResult<Self> {
        if !sizes.is_empty() && args.is_null() {
            return Err(CudaCode::INVALID_VALUE);
        }
        let copy = |(index, &size): (usize, &usize)| {
            let mut value = vec![0_u64; size.div_ceil(8)].into_boxed_slice();
            // SAFETY: the list has a pointer for each parameter, to a value of its size; so the
            // program that launches a kernel promises.
            unsafe {
                let from = args.add(index).read().cast::<u8>();
                std::ptr::copy_nonoverlapping(from, value.as_mut_ptr().cast(), size);
            }
            value
        };
        let mut values: Vec<Box<[u64]>> = sizes.iter().enumerate().map(copy).collect();
        let mut owned: Vec<_> = values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
        Ok(Arguments { list: owned.as_mut_ptr(), _owned: owned, _values: values })
    }
}

fn launch(
    face: &Face,
    kernel: usize,
    how: Launch,
    args: *mut *mut c_void,
    per_thread: bool,
) -> DriverResult<()> {
    let Launch { grid, block, shared, .. } = how;
    let name = symbols().kernels.get(&kernel).cloned().ok_or(INVALID_FUNCTION)?;
    let sides = [grid.x, grid.y, grid.z, block.x, block.y, block.z];
    let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
    if sides.contains(&0) || threads > MOST_THREADS {
        return Err(INVALID_CONFIGURATION);
    }
    let stream = stream(face, "cudaLaunchKernel", how.stream, per_thread)?;
    let Some(known) = stand_in(&name) else {
        remark_once(&name);
        // SAFETY: it does nothing.
        return unsafe { face.launch(stream, None) };
    };
    let function = known.function;
    let call = move |list: *mut *mut c_void| {
        // SAFETY: the program's own function for this kernel, with the arguments of its launch.
        boundary::as_kernel(|| unsafe { function(grid, block, list, shared) });
    };
    let driver = face.emulator().driver();
    let Some(sizes) = known.sizes else {
        let arguments = Arguments { list: args, _owned: Vec::new(), _values: Vec::new() };
        // SAFETY: the machine checks the handle.
        unsafe { driver.stream_synchronize(stream) }?;
        // SAFETY: a stand-in makes no call that is let through, does not unwind, and touches what
        // its kernel would. The call waits, so that the arguments are still there.
        unsafe { face.launch(stream, Some(Box::new(move || call(arguments.list())))) }?;
        // SAFETY: the machine checks the handle.
        return unsafe { driver.stream_synchronize(stream) };
    };
    let arguments = Arguments::copied(args, &sizes)?;
    // SAFETY: as above; the arguments are the launch's own.
    unsafe { face.launch(stream, Some(Box::new(move || call(arguments.list())))) }
}

fn remark_once(name: &str) {
    static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !machine::is_quiet() && said.insert(name.to_owned()) {
        let plain = mangled::plain_name(name).unwrap_or(name);
        eprintln!(
            "pinlane-cudart: the kernel {name} does nothing: there is no pinlane_kernel_{plain}"
        );
    }
}

fn check(kernel: *const c_void) -> DriverResult<()> {
    let known = symbols().kernels.contains_key(&kernel.addr());
    if known { Ok(()) } else { Err(INVALID_FUNCTION) }
}

/// `cudaLaunchConfig_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
}

/// `cudaFuncAttributes`, as far as it says something.
#[repr(C)]
struct Attributes {
    shared: usize,
    constant: usize,
    local: usize,
    most_threads: c_int,
    registers: c_int,
    ptx: c_int,
    binary: c_int,
    cache: c_int,
    most_shared: c_int,
    carveout: c_int,
    rest: [c_int; 22],
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
) -> c_uint {
    let how = Launch { grid, block, shared, stream };
    let pushed = PUSHED.try_with(|pushed| pushed.borrow_mut().push(how));
    c_uint::from(pushed.is_err())
}

cuda! {
    fn __cudaPopCallConfiguration(
        grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<Handle>,
    ) |_face| {
        let how = PUSHED.try_with(|pushed| pushed.borrow_mut().pop()).ok().flatten();
        let how = how.ok_or(MISSING_CONFIGURATION)?;
        grid.put(how.grid)?;
        block.put(how.block)?;
        shared.put(how.shared)?;
        stream.put(how.stream)
    }

    fn cudaLaunchKernel / cudaLaunchKernel_ptsz(
        kernel: *const c_void, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared: usize,
        stream: Handle,
    ) |face, per_thread| {
        let how = Launch { grid, block, shared, stream };
        launch(face, kernel.addr(), how, args, per_thread)
    }

    /// A kernel's handle is the address of its shadow here.
    fn __cudaLaunchKernel / __cudaLaunchKernel_ptsz(
        kernel: *const c_void, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared: usize,
        stream: Handle,
    ) |face, per_thread| {
        let how = Launch { grid, block, shared, stream };
        launch(face, kernel.addr(), how, args, per_thread)
    }

    fn cudaLaunchCooperativeKernel / cudaLaunchCooperativeKernel_ptsz(
        kernel: *const c_void, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared: usize,
        stream: Handle,
    ) |face, per_thread| {
        let how = Launch { grid, block, shared, stream };
        launch(face, kernel.addr(), how, args, per_thread)
    }

    fn cudaLaunchKernelExC / cudaLaunchKernelExC_ptsz(
        config: In<Config>, kernel: *const c_void, args: *mut *mut c_void,
    ) |face, per_thread| {
        let Config { grid, block, shared, stream } = config.get()?;
        let how = Launch { grid, block, shared, stream };
        launch(face, kernel.addr(), how, args, per_thread)
    }

    fn __cudaGetKernel(out: Out<Handle>, kernel: *const c_void) |_face| {
        check(kernel)?;
        out.put(kernel.addr())
    }

    fn cudaGetKernel(out: Out<Handle>, kernel: *const c_void) |_face| {
        check(kernel)?;
        out.put(kernel.addr())
    }

    fn cudaGetFuncBySymbol(out: Out<Handle>, kernel: *const c_void) |_face| {
        check(kernel)?;
        out.put(kernel.addr())
    }

    fn cudaFuncGetAttributes(out: Out<Attributes>, kernel: *const c_void) |_face| {
        out.check()?;
        check(kernel)?;
        out.put(Attributes {
            shared: 0,
            constant: 0,
            local: 0,
            most_threads: MOST_THREADS as c_int,
            registers: 32,
            ptx: 90,
            binary: 90,
            cache: 0,
            most_shared: 48 << 10,
            carveout: -1,
            rest: [0; 22],
        })
    }

    fn cudaFuncSetAttribute(kernel: *const c_void, _attribute: c_int, _value: c_int) |_face| {
        check(kernel)
    }

    fn cudaFuncSetCacheConfig(kernel: *const c_void, _config: c_int) |_face| {
        check(kernel)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<c_int>, kernel: *const c_void, threads: c_int, _shared: usize,
    ) |_face| {
        blocks(out, kernel, threads)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<c_int>, kernel: *const c_void, threads: c_int, _shared: usize, _flags: c_uint,
    ) |_face| {
        blocks(out, kernel, threads)
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        out: Out<usize>, kernel: *const c_void, _blocks: c_int, _threads: c_int,
    ) |_face| {
        check(kernel)?;
        out.put(48 << 10)
    }

    fn cudaFuncGetName(out: Out<*const c_char>, kernel: *const c_void) |_face| {
        let symbols = symbols();
        let name = symbols.kernels.get(&kernel.addr()).ok_or(INVALID_FUNCTION)?;
        let name = CString::new(name.as_str()).map_err(|_| CudaCode::UNKNOWN)?;
        // Programs keep it: it stays until the process ends.
        out.put(name.into_raw())
    }
}

fn blocks(out: Out<c_int>, kernel: *const c_void, threads: c_int) -> DriverResult<()> {
    out.check()?;
    check(kernel)?;
    if threads <= 0 {
        return Err(CudaCode::INVALID_VALUE);
    }
    out.put(if threads as u64 > MOST_THREADS { 0 } else { (2048 / threads).min(32) })
}
