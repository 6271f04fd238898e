//! Launches of the kernels that nvcc has compiled.

use super::super::kernel::{Kernel, Parameter};
use super::convert::{Address, stream_of};
use super::sys;
use super::thread::call_with_device;
use pinlane_driver::{DevicePtr, DriverResult, RawStream};

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
    let urgent = kernel.is_urgent().into();
    let kernel = sys::pinlane_kernel(kernel as _);
    call_with_device(stream, move || {
        let parameters = parameters.as_mut_ptr().cast();
        // SAFETY: live stream, the kernel's parameters: promised by the caller. They are read
        // before the call returns.
        unsafe {
            let stream = stream_of(stream);
            sys::pinlane_launch_kernel(kernel, blocks, threads, urgent, parameters, stream)
        }
    })
}

/// `cudaMemsetAsync` with 0.
///
/// # Safety
///
/// * `stream` is live; `at .. at + bytes` lies in device memory, and is valid until retired.
pub(in super::super) unsafe fn clear(
    stream: RawStream,
    at: DevicePtr,
    bytes: usize,
) -> DriverResult<()> {
    let at = Address::device(at);
    call_with_device(stream, move || {
        // SAFETY: live stream, valid range: promised by the caller.
        unsafe { sys::cudaMemsetAsync(at.get(), 0, bytes, stream_of(stream)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinlane_driver::{Item, RowMove};
    use std::mem::offset_of;

    /// The C side writes what the Rust side reads.
    #[test]
    fn items_and_kernels_are_those_of_kernels_h() {
        type C = sys::pinlane_item;
        assert_eq!(size_of::<Item>(), size_of::<C>());
        assert_eq!(align_of::<Item>(), align_of::<C>());
        assert_eq!(offset_of!(Item, src), offset_of!(C, src));
        assert_eq!(offset_of!(Item, dst), offset_of!(C, dst));
        assert_eq!(offset_of!(Item, bytes), offset_of!(C, bytes));
        assert_eq!(size_of::<RowMove>(), size_of::<sys::pinlane_rows>());
        assert_eq!(
            size_of::<crate::driver::cuda::launch::Pattern>(),
            size_of::<sys::pinlane_pattern>()
        );
        for (kernel, theirs) in [
            (Kernel::Fill, sys::pinlane_kernel::PINLANE_FILL),
            (Kernel::ChecksumAligned, sys::pinlane_kernel::PINLANE_CHECKSUM_ALIGNED),
            (Kernel::MoveDown, sys::pinlane_kernel::PINLANE_MOVE_DOWN),
            (Kernel::RowsUp, sys::pinlane_kernel::PINLANE_ROWS_UP),
            (Kernel::Busy, sys::pinlane_kernel::PINLANE_BUSY),
        ] {
            assert_eq!(kernel as u32, theirs.0);
        }
    }
}
