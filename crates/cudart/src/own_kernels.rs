//! The kernels of pinlane itself (`cuda/kernels.h`), which a program without a toolkit loads as a
//! module. The machine does what they do, as it does for a program that asks it directly.

use std::ffi::c_void;

use pinlane_driver::{CopyKind, DriverResult, Kernels, MAX_PATTERN, RawStream, RowMove};
use pinlane_emulator::Emulator;

/// `pinlane_pattern`
#[repr(C)]
#[derive(Clone, Copy)]
struct Pattern {
    bytes: [u8; MAX_PATTERN],
    length: u32,
}

/// Launches the kernel of this name. `None` if it is none of these.
///
/// # Safety
///
/// * `args` has the address of each parameter of the kernel, of its type.
/// * The memory that these name is as the method of [`Kernels`] demands.
pub unsafe fn launch(
    gpu: &Emulator,
    name: &str,
    args: *mut *mut c_void,
    stream: RawStream,
) -> Option<DriverResult<()>> {
    let of = |suffix: &str| match suffix {
        "up" => Some(CopyKind::H2D),
        "down" => Some(CopyKind::D2H),
        "on_device" => Some(CopyKind::D2D),
        _ => None,
    };
    let kernel = name.strip_prefix("pinlane_kernel_")?;
    // SAFETY: the parameters have these types, and their memory is as demanded: promised by the
    // caller.
    unsafe {
        if let Some(kind) = kernel.strip_prefix("move_").and_then(of) {
            let [items, count] = parameter::<[u64; 2]>(args, 0);
            return Some(gpu.move_items(stream, kind, items, count as usize, 0));
        }
        if let Some(kind) = kernel.strip_prefix("rows_").and_then(of) {
            return Some(gpu.move_rows(stream, kind, &parameter::<RowMove>(args, 0)));
        }
        match kernel {
            "fill" => {
                let Pattern { bytes: pattern, length } = parameter(args, 2);
                let (dst, bytes) = (parameter(args, 0), parameter::<u64>(args, 1) as usize);
                Some(Kernels::fill(gpu, stream, dst, bytes, &pattern[..length as usize]))
            }
            "checksum" | "checksum_aligned" => {
                let (src, bytes) = (parameter(args, 0), parameter::<u64>(args, 1) as usize);
                Some(gpu.checksum(stream, src, bytes, parameter(args, 2)))
            }
            "busy" => Some(gpu.busy(stream, parameter(args, 0))),
            _ => None,
        }
    }
}

/// A parameter of a launch.
///
/// # Safety
///
/// * `args` has the address of that parameter, of type `T`.
unsafe fn parameter<T: Copy>(args: *mut *mut c_void, index: usize) -> T {
    // SAFETY: promised by the caller. C aligns the value to its type.
    unsafe { args.add(index).read().cast::<T>().read() }
}
