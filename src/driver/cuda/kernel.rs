//! The kernels of `cuda/kernels.h` by their numbers and names, and their parameters.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;

/// A kernel: `pinlane_kernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kernel {
    Fill,
    Checksum,
    ChecksumAligned,
    MoveUp,
    MoveDown,
    MoveOnDevice,
    RowsUp,
    RowsDown,
    RowsOnDevice,
    Busy,
}

impl Kernel {
    /// Whether it runs before kernels of lower priority: one that moves bytes over the bus. It has
    /// few blocks, and most of its time it waits for the bus. The blocks of a kernel that fills the
    /// device and was launched earlier would all come before it.
    pub(super) fn is_urgent(self) -> bool {
        use Kernel::{MoveDown, MoveUp, RowsDown, RowsUp};
        matches!(self, MoveUp | MoveDown | RowsUp | RowsDown)
    }

    /// Their names, in the order of the numbers.
    #[cfg_attr(pinlane_toolkit, allow(dead_code))]
    pub(super) const NAMES: [&CStr; 10] = [
        c"pinlane_kernel_fill",
        c"pinlane_kernel_checksum",
        c"pinlane_kernel_checksum_aligned",
        c"pinlane_kernel_move_up",
        c"pinlane_kernel_move_down",
        c"pinlane_kernel_move_on_device",
        c"pinlane_kernel_rows_up",
        c"pinlane_kernel_rows_down",
        c"pinlane_kernel_rows_on_device",
        c"pinlane_kernel_busy",
    ];
}

/// The address of a kernel's parameter.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Parameter<'a>(*mut c_void, PhantomData<&'a ()>);

// SAFETY: the parameters are plain numbers, which any thread may read.
unsafe impl Send for Parameter<'_> {}

impl<'a> Parameter<'a> {
    pub(super) fn of<T: Sync>(value: &'a T) -> Self {
        Parameter(std::ptr::from_ref(value).cast_mut().cast(), PhantomData)
    }
}
