//! The crate's kernels, compiled by `scripts/make-kernels`: machine code of the usual
//! architectures, and PTX, which the driver compiles for any other.

use std::ptr::null_mut;

use super::super::driver_api::{CUlaunchAttribute, CUlaunchConfig, LAUNCH_PRIORITY};
use super::super::kernel::{Kernel, Parameter};
use super::super::words::stream_of;
use super::context::{Device, Loaded, relaxed};
use super::library::Library;
use super::table::Functions;
use pinlane_driver::{DevicePtr, DriverResult, RawStream};

/// `cuda/kernels.fatbin`, aligned as the driver reads it.
#[repr(align(16))]
struct Image<const N: usize>([u8; N]);

static IMAGE: &Image<{ include_bytes!("../../../../cuda/kernels.fatbin").len() }> =
    &Image(*include_bytes!("../../../../cuda/kernels.fatbin"));

impl Library {
    /// The kernels of a device. The first call loads them: 0.1 ms, or a second where the driver has
    /// to compile them.
    fn kernels(&self, stream: RawStream) -> DriverResult<&Loaded> {
        let device = self.device(stream.device)?;
        match device.kernels.get() {
            Some(loaded) => Ok(loaded),
            None => self.load(stream, device),
        }
    }

    #[cold]
    fn load<'a>(&self, stream: RawStream, device: &'a Device) -> DriverResult<&'a Loaded> {
        let mut loaded = Loaded([null_mut(); Kernel::NAMES.len()]);
        self.on(stream.device, |functions| relaxed(functions, || load(functions, &mut loaded)))?;
        // Another thread may have been faster; then one module is loaded twice, and never used.
        Ok(device.kernels.get_or_init(|| loaded))
    }
}

fn load(functions: &Functions, loaded: &mut Loaded) -> u32 {
    let mut module = null_mut();
    // SAFETY: a live place for the module; the image is a fat binary, which says its length.
    let code = unsafe { (functions.load)(&mut module, IMAGE.0.as_ptr().cast()) };
    if code != 0 {
        return code;
    }
    let places = loaded.0.iter_mut().zip(Kernel::NAMES);
    let codes = places.map(|(place, name)| {
        // SAFETY: a live place for the function, a loaded module, a C string.
        unsafe { (functions.kernel)(place, module, name.as_ptr()) }
    });
    codes.into_iter().find(|&code| code != 0).unwrap_or(0)
}

/// Launches a kernel.
///
/// # Safety
///
/// * `stream` is live.
/// * `parameters` are the addresses of the kernel's parameters, of their types; what these name is
///   as the kernel's method demands.
pub(in super::super) unsafe fn launch(
    stream: RawStream,
    kernel: Kernel,
    blocks: u32,
    threads: u32,
    mut parameters: [Parameter; 3],
) -> DriverResult<()> {
    let library = Library::get()?;
    let function = library.kernels(stream)?.0[kernel as usize];
    library.on(stream.device, |functions| {
        let mut priority = CUlaunchAttribute {
            id: LAUNCH_PRIORITY,
            pad: 0,
            priority: if kernel.is_urgent() { greatest_priority(functions) } else { 0 },
            rest: [0; 15],
        };
        let config = CUlaunchConfig {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            stream: stream_of(stream),
            attributes: &raw mut priority,
            // Without it the kernel has the priority of its stream.
            attribute_count: u32::from(priority.priority != 0),
        };
        let parameters = parameters.as_mut_ptr().cast();
        // SAFETY: live stream, a loaded kernel and its parameters: promised by the caller. They,
        // and the attribute, are read before the call returns.
        unsafe { (functions.launch)(&config, function, parameters, null_mut()) }
    })
}

/// The greatest priority of the current device; 0 if it has none.
fn greatest_priority(functions: &Functions) -> i32 {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: live places for both.
    let code = unsafe { (functions.priorities)(&mut least, &mut greatest) };
    if code == 0 { greatest } else { 0 }
}

/// `cuMemsetD8Async` with 0.
///
/// # Safety
///
/// * `stream` is live; `at .. at + bytes` lies in device memory, and is valid until retired.
pub(in super::super) unsafe fn clear(
    stream: RawStream,
    at: DevicePtr,
    bytes: usize,
) -> DriverResult<()> {
    Library::get()?.on(stream.device, |functions| {
        // SAFETY: live stream, valid range: promised by the caller.
        unsafe { (functions.fill)(at, 0, bytes, stream_of(stream)) }
    })
}
