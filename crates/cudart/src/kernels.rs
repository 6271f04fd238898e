//! Kernels, as the program's constructors register them and its code launches them. What they do
//! here is in `stand_ins.rs`.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{Callers, Emulator};

use crate::abi::{Dim3, Handle, In, Out};
use crate::driver::contexts::stream;
use crate::driver::modules::{self, Function};
use crate::stand_ins::{self, Kernel, MOST_THREADS, Shape};
use crate::symbols::symbols;

/// The one for a missing configuration.
const MISSING_CONFIGURATION: CudaCode = CudaCode(52);

/// A launch and its stream; `cudaLaunchConfig_t`, without the attributes at its end.
#[repr(C)]
#[derive(Clone, Copy)]
struct Launch {
    shape: Shape,
    stream: Handle,
}

thread_local! {
    /// `<<<...>>>` pushes, and the stub that it calls pops. With each launch, where it is.
    static PUSHED: RefCell<Vec<(Launch, Callers)>> = const { RefCell::new(Vec::new()) };
    /// The callers of the launch that was popped last: the stub has no line of the program.
    static POPPED: Cell<Callers> = const { Cell::new(Callers::NONE) };
}

fn launch(
    gpu: &Emulator,
    kernel: *const c_void,
    how: Launch,
    args: *mut *mut c_void,
    per_thread: bool,
) -> DriverResult<()> {
    let popped = POPPED.try_with(Cell::take).unwrap_or_default();
    if popped != Callers::NONE {
        popped.exchange();
    }
    let kernel = known(kernel)?;
    let stream = stream(gpu, how.stream, per_thread)?;
    stand_ins::launch(gpu, &kernel, how.shape, args, stream)
}

/// A kernel that is registered, or in a library.
fn known(kernel: *const c_void) -> DriverResult<Kernel> {
    if let Some(name) = symbols().kernels.get(&kernel.addr()) {
        return Ok(Kernel { name: name.clone(), sizes: None });
    }
    let found = modules::function(kernel.addr());
    found.map(Function::kernel).map_err(|_| CudaCode::INVALID_DEVICE_FUNCTION)
}

fn check(kernel: *const c_void) -> DriverResult<()> {
    known(kernel).map(drop)
}

/// `cudaFuncAttributes`: the fields that are filled in.
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

cuda! {
    fn __cudaPushCallConfiguration(
        grid: Dim3, block: Dim3, shared: usize, stream: Handle,
    ) |_face| {
        let launch = Launch { shape: Shape { grid, block, shared }, stream };
        let launch = (launch, Callers::current());
        let pushed = PUSHED.try_with(|pushed| pushed.borrow_mut().push(launch));
        pushed.map_err(|_| CudaCode::UNKNOWN)
    }

    fn __cudaPopCallConfiguration(
        grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<Handle>,
    ) |_face| {
        let how = PUSHED.try_with(|pushed| pushed.borrow_mut().pop()).ok().flatten();
        let (how, callers) = how.ok_or(MISSING_CONFIGURATION)?;
        let _ = POPPED.try_with(|popped| popped.set(callers));
        grid.put(how.shape.grid)?;
        block.put(how.shape.block)?;
        shared.put(how.shape.shared)?;
        stream.put(how.stream)
    }

    // A kernel's handle is the address of its shadow here.
    fn [
        cudaLaunchKernel / cudaLaunchKernel_ptsz,
        __cudaLaunchKernel / __cudaLaunchKernel_ptsz,
        cudaLaunchCooperativeKernel / cudaLaunchCooperativeKernel_ptsz
    ](
        kernel: *const c_void, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared: usize,
        stream: Handle,
    ) |gpu, per_thread| {
        let how = Launch { shape: Shape { grid, block, shared }, stream };
        launch(gpu, kernel, how, args, per_thread)
    }

    fn cudaLaunchKernelExC / cudaLaunchKernelExC_ptsz(
        config: In<Launch>, kernel: *const c_void, args: *mut *mut c_void,
    ) |gpu, per_thread| {
        let how = config.get()?;
        launch(gpu, kernel, how, args, per_thread)
    }

    fn [__cudaGetKernel, cudaGetKernel, cudaGetFuncBySymbol](
        out: Out<Handle>, kernel: *const c_void,
    ) |_face| {
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

    fn [cudaFuncSetAttribute, cudaKernelSetAttributeForDevice](
        kernel: *const c_void, _attribute: c_int, _value: c_int,
    ) |_face| {
        check(kernel)
    }

    fn cudaFuncSetCacheConfig(kernel: *const c_void, _config: c_int) |_face| {
        check(kernel)
    }

    // Shared memory and flags do not count.
    fn [
        cudaOccupancyMaxActiveBlocksPerMultiprocessor,
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    ](
        out: Out<c_int>, kernel: *const c_void, threads: c_int,
    ) |_face| {
        out.check()?;
        check(kernel)?;
        out.put(resident(threads)?)
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        out: Out<usize>, kernel: *const c_void, _blocks: c_int, _threads: c_int,
    ) |_face| {
        check(kernel)?;
        out.put(48 << 10)
    }

    fn cudaFuncGetName(out: Out<*const c_char>, kernel: *const c_void) |_face| {
        let symbols = symbols();
        let name = symbols.kernels.get(&kernel.addr()).ok_or(CudaCode::INVALID_DEVICE_FUNCTION)?;
        let name = CString::new(name.as_str()).map_err(|_| CudaCode::UNKNOWN)?;
        // Programs keep it: it stays until the process ends.
        out.put(name.into_raw())
    }
}

/// How many blocks of so many threads run on a multiprocessor at once.
pub fn resident(threads: c_int) -> DriverResult<c_int> {
    match threads {
        ..=0 => Err(CudaCode::INVALID_VALUE),
        _ if threads as u64 > MOST_THREADS => Ok(0),
        _ => Ok((2048 / threads).min(32)),
    }
}
