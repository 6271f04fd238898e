//! The numbers of rows in C.

use std::ffi::c_void;

use bytemuck::Pod;

use crate::batch::Indices;
use crate::capi::memory::range;
use crate::capi::table::Inside;
use crate::capi::{
    Result, check_flags, growing, handle, invalid, layout, pinlane_device_buffer, pointer, unknown,
};
use crate::memory::{DeviceBuf, DeviceSlice};

/// The numbers are `uint32_t`.
pub const PINLANE_INDEX_U32: i32 = 0;
/// The numbers are `int32_t`.
pub const PINLANE_INDEX_I32: i32 = 1;
/// The numbers are `uint64_t`.
pub const PINLANE_INDEX_U64: i32 = 2;
/// The numbers are `int64_t`.
pub const PINLANE_INDEX_I64: i32 = 3;
/// Flag of `pinlane_indices`: no number is repeated, so pinlane does not check. If one is repeated
/// nevertheless, each byte of the written row comes from one of its sources, or the call fails with
/// `PINLANE_STATUS_INVALID_VALUE`.
pub const PINLANE_INDICES_DISTINCT: u32 = 1;

/// The rows of a table that a copy uses, by their numbers, counted from 0. Initialise with
/// `PINLANE_INDICES_INIT`. If a function takes NULL instead, that means all rows in order.
///
/// Numbers in host memory are read and checked at the call. Numbers in a `device_buffer` are read
/// when the copy runs, in stream order: a row whose number is not in the table is not copied. So
/// such numbers, -1 for example, may pad a list, with tables in any memory.
///
/// A row that is read may be named twice. A row that is written may not.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_indices {
    /// `sizeof(pinlane_indices)`.
    pub size: usize,
    /// The type of the numbers: one of `PINLANE_INDEX_*`.
    pub kind: i32,
    /// 0, or `PINLANE_INDICES_DISTINCT`.
    pub flags: u32,
    /// The numbers in host memory, or NULL.
    pub numbers: *const c_void,
    /// The number of numbers. If 0, `numbers` may be NULL.
    pub count: usize,
    /// The device buffer that has the numbers, or NULL. The copy must not write to that buffer.
    pub device_buffer: *mut pinlane_device_buffer,
    /// The offset of the numbers in `device_buffer`, in bytes: a multiple of the size of a number.
    pub device_offset: usize,
}

layout!(pinlane_indices: 48; kind 8, flags 12, numbers 16, count 24, device_buffer 32,
    device_offset 40);
growing!(pinlane_indices_init: pinlane_indices, sizes [48], default { kind: PINLANE_INDEX_U32 });

/// Numbers as C names them. Their buffer is borrowed, if they are in one.
pub(super) struct Numbers {
    name: &'static str,
    /// `None`: all rows, in order.
    given: Option<(pinlane_indices, Option<Inside<pinlane_device_buffer>>)>,
}

impl Numbers {
    /// # Safety
    ///
    /// * `indices` is NULL, misaligned (an error), or points to a struct that is as large as its
    ///   `size` says.
    pub(super) unsafe fn new(name: &'static str, indices: *const pinlane_indices) -> Result<Self> {
        if indices.is_null() {
            return Ok(Numbers { name, given: None });
        }
        // SAFETY: the same precondition.
        let given = unsafe { growing::sized(name, indices) }?;
        check_flags(given.flags, PINLANE_INDICES_DISTINCT)?;
        let buffer = match (given.numbers.is_null(), given.device_buffer.is_null()) {
            (false, false) => {
                let what =
                    format!("{name}: the numbers are both at {:p} and in a buffer", given.numbers);
                return Err(invalid(what, "set the numbers to NULL, or the buffer"));
            }
            (_, true) => None,
            (true, false) => Some(handle::get(given.device_buffer)?),
        };
        Ok(Numbers { name, given: Some((given, buffer)) })
    }

    /// The buffer with the numbers, or NULL.
    pub(super) fn buffer(&self) -> *mut pinlane_device_buffer {
        self.given.as_ref().map_or(std::ptr::null_mut(), |(given, _)| given.device_buffer)
    }

    /// The numbers as Rust takes them, for the time of the call.
    ///
    /// # Safety
    ///
    /// * Numbers in host memory are readable, and not written, during `'a`.
    pub(super) unsafe fn indices<'a>(&'a self) -> Result<Indices<'a>> {
        let Some((given, buffer)) = &self.given else { return Ok((..).into()) };
        let (name, buffer) = (self.name, buffer.as_ref().map(|buffer| &***buffer));
        // SAFETY: the same precondition, in each case.
        let indices = unsafe {
            match given.kind {
                PINLANE_INDEX_U32 => elements::<u32>(name, given, buffer)?,
                PINLANE_INDEX_I32 => elements::<i32>(name, given, buffer)?,
                PINLANE_INDEX_U64 => elements::<u64>(name, given, buffer)?,
                PINLANE_INDEX_I64 => elements::<i64>(name, given, buffer)?,
                kind => return Err(unknown("kind", kind, "use one of PINLANE_INDEX_*")),
            }
        };
        Ok(if given.flags & PINLANE_INDICES_DISTINCT == 0 { indices } else { indices.distinct() })
    }
}

/// # Safety
///
/// * As for [`Numbers::indices`].
unsafe fn elements<'a, N: Pod>(
    name: &str,
    given: &pinlane_indices,
    buffer: Option<&'a DeviceBuf<u8>>,
) -> Result<Indices<'a>>
where
    Indices<'a>: From<&'a [N]> + From<DeviceSlice<'a, N>>,
{
    match buffer {
        Some(buffer) => {
            let bytes = given.count.saturating_mul(size_of::<N>());
            Ok(buffer.slice(range(given.device_offset, bytes)?)?.cast::<N>()?.into())
        }
        None => {
            let numbers = given.numbers.cast::<N>();
            // SAFETY: the precondition.
            Ok(unsafe { pointer::inputs(name, numbers, given.count) }?.into())
        }
    }
}
