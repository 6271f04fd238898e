//! Kernels, as functions of the host. Their code is for GPUs and is not run. A program may have a
//! stand-in for one, a function of the host that is found by its name:
//!
//! ```c++
//! extern "C" void pinlane_kernel_add(dim3 grid, dim3 block, void** args, size_t shared);
//! extern "C" const size_t pinlane_kernel_add_sizes[];  // of the parameters; ends with 0
//! ```
//!
//! The sizes are needed where neither the mangled name nor the code says them. Without sizes the
//! stand-in runs at the call, when its stream is done.

use std::collections::HashSet;
use std::ffi::{CString, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, RawStream};
use pinlane_emulator::Emulator;

use crate::abi::{Dim3, find};
use crate::{boundary, environment, mangled, own_kernels};

/// The most threads of a block.
pub const MOST_THREADS: u64 = 1024;
/// No kernel has more parameters or longer ones.
const MOST_PARAMETERS: usize = 4096;

type StandIn = unsafe extern "C" fn(Dim3, Dim3, *mut *mut c_void, usize);

/// A kernel, as its launch knows it.
pub struct Kernel {
    /// Mangled, if it is C++.
    pub name: String,
    /// The sizes of its parameters, if its code says them.
    pub sizes: Option<Vec<usize>>,
}

impl Kernel {
    /// What its code or its name says of that.
    fn known_sizes(&self) -> Option<Vec<usize>> {
        self.sizes.clone().or_else(|| mangled::sizes(&self.name))
    }
}

/// How a kernel is launched, as C lays it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Shape {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: usize,
}

/// What a kernel does here.
struct Known {
    function: StandIn,
    sizes: Option<Vec<usize>>,
}

fn symbol_of(name: &str) -> Option<*mut c_void> {
    find(&CString::new(name).ok()?)
}

/// The stand-in for a kernel, by its mangled name or its plain one.
fn stand_in(kernel: &Kernel) -> Option<Known> {
    let name = kernel.name.as_str();
    let plain = mangled::plain_name(name);
    for name_of in [Some(name), plain].into_iter().flatten() {
        let symbol = format!("pinlane_kernel_{name_of}");
        let Some(found) = symbol_of(&symbol) else { continue };
        // SAFETY: a function of this name is of this type (docs/drop-in.md).
        let function = unsafe { std::mem::transmute::<*mut c_void, StandIn>(found) };
        let sizes = symbol_of(&format!("{symbol}_sizes"));
        let sizes = sizes.map(|list| sizes_in(list.cast())).or_else(|| kernel.known_sizes());
        return Some(Known { function, sizes });
    }
    None
}

/// The sizes in a list that ends with 0.
fn sizes_in(list: *const usize) -> Vec<usize> {
    let size = |index: usize| {
        // SAFETY: the list ends with 0, and nothing after that is read.
        unsafe { list.add(index).read() }
    };
    (0..MOST_PARAMETERS).map(size).take_while(|&size| size != 0).collect()
}

/// What the stand-in gets, on some other thread.
struct Arguments {
    list: *mut *mut c_void,
    _owned: Vec<*mut c_void>,
    values: Vec<Box<[u64]>>,
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
        Ok(Arguments { list: owned.as_mut_ptr(), _owned: owned, values })
    }
}

/// Launches a kernel: its stand-in runs when its turn comes.
///
/// # Errors
///
/// `INVALID_CONFIGURATION` for an impossible block or grid; `INVALID_VALUE` where arguments are
/// missing; `NOT_SUPPORTED`, with a finding, if there is no stand-in and the environment asks to
/// stop there; what the machine says of the stream.
pub fn launch(
    gpu: &Emulator,
    kernel: &Kernel,
    shape: Shape,
    args: *mut *mut c_void,
    stream: RawStream,
) -> DriverResult<()> {
    let Shape { grid, block, shared } = shape;
    let sides = [grid.x, grid.y, grid.z, block.x, block.y, block.z];
    let threads = u64::from(block.x) * u64::from(block.y);
    let threads = threads.saturating_mul(block.z.into());
    if sides.contains(&0) || threads > MOST_THREADS {
        return Err(CudaCode::INVALID_CONFIGURATION);
    }
    // SAFETY: the program that launches one of these kernels promises what that demands.
    if let Some(done) = unsafe { own_kernels::launch(gpu, &kernel.name, args, stream) } {
        return done;
    }
    let known = stand_in(kernel);
    let sizes = known.as_ref().map_or_else(|| kernel.known_sizes(), |known| known.sizes.clone());
    say_read(gpu, args, &sizes.unwrap_or_default());
    let Some(known) = known else {
        if stops() {
            let name = mangled::demangled(&kernel.name);
            gpu.unsupported(&format!("kernel {name} has no stand-in, and does not run"));
            return Err(CudaCode::NOT_SUPPORTED);
        }
        remark_once(&kernel.name);
        // SAFETY: it does nothing.
        return unsafe { gpu.launch(stream, interned(&kernel.name), &[], None) };
    };
    let (function, name) = (known.function, interned(&kernel.name));
    let call = move |list: *mut *mut c_void| {
        // SAFETY: the program's own function for this kernel, with the arguments of its launch.
        boundary::as_kernel(|| unsafe { function(grid, block, list, shared) });
    };
    let Some(sizes) = known.sizes else {
        let arguments = Arguments { list: args, _owned: Vec::new(), values: Vec::new() };
        gpu.stream_synchronize(stream)?;
        // SAFETY: a stand-in makes no call that is let through, does not unwind, and touches what
        // its kernel would. The call waits, so that the arguments are still there.
        unsafe { gpu.launch(stream, name, &[], Some(Box::new(move || call(arguments.list())))) }?;
        return gpu.stream_synchronize(stream);
    };
    let arguments = Arguments::copied(args, &sizes)?;
    let words = arguments.values.concat();
    // SAFETY: as above; the arguments are the launch's own.
    unsafe { gpu.launch(stream, name, &words, Some(Box::new(move || call(arguments.list())))) }
}

/// Whether a kernel without a stand-in must not be launched.
fn stops() -> bool {
    static STOPS: LazyLock<bool> =
        LazyLock::new(|| environment::chooses("PINLANE_CUDART_KERNELS", "skip", "stop"));
    *STOPS
}

/// Says that a launch reads its arguments, where an operation may still write to them.
fn say_read(gpu: &Emulator, args: *mut *mut c_void, sizes: &[usize]) {
    if args.is_null() {
        return;
    }
    for (index, &size) in sizes.iter().enumerate() {
        // SAFETY: the list has a pointer for each parameter; so the program that launches a kernel
        // promises.
        let start = unsafe { args.add(index).read() }.addr();
        let argument = start..start.saturating_add(size);
        if Emulator::must_be_said(&argument) {
            gpu.call_begins(argument.clone());
            gpu.call_ends(argument, size, false);
        }
    }
}

/// The plain name of a kernel, for findings.
fn interned(name: &str) -> &'static str {
    kept(mangled::plain_name(name).unwrap_or(name))
}

/// A name that stays until the process ends.
pub fn kept(plain: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&known) = names.get(plain) {
        return known;
    }
    let kept: &'static str = plain.to_owned().leak();
    names.insert(kept);
    kept
}

fn remark_once(name: &str) {
    static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !environment::is_quiet() && said.insert(name.to_owned()) {
        let plain = mangled::plain_name(name).unwrap_or(name);
        eprintln!(
            "pinlane-cudart: the kernel {name} does nothing: there is no pinlane_kernel_{plain}"
        );
    }
}
