//! What the copies of a batch are in C: two sides each, which are named by an address or by a
//! buffer.

use std::ffi::c_void;

use super::side::Place;
use crate::capi::buffer::pinlane_buffer;
use crate::capi::device_buffer::pinlane_device_buffer;

/// One copy of a batch, between host and device. Set all members that you do not use to 0.
///
/// The host's side is ordinary memory, named by its address, or a part of a page-locked `buffer`.
/// The device's side is the caller's own device memory, named by its address, or a part of a
/// `device_buffer`. The address of a side that is named by its buffer must be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_copy {
    /// The source: host memory in an upload, device memory in a download.
    pub src: *const c_void,
    /// The destination: device memory in an upload, host memory in a download.
    pub dst: *mut c_void,
    /// How much is copied. If it is 0, both addresses may be NULL.
    pub bytes: usize,
    /// The buffer in page-locked memory that is the host's side, or NULL.
    pub buffer: *mut pinlane_buffer,
    /// Where in `buffer` the copy begins.
    pub buffer_offset: usize,
    /// The buffer in device memory that is the device's side, or NULL.
    pub device_buffer: *mut pinlane_device_buffer,
    /// Where in `device_buffer` the copy begins.
    pub device_offset: usize,
}

/// One copy of a batch, between device memory and device memory. Set all members that you do not
/// use to 0.
///
/// A side is the caller's own memory of the stream's device, named by its address, or a part of a
/// buffer; its address must then be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_device_copy {
    /// The address of the source, or NULL.
    pub src: *const c_void,
    /// The address of the destination, or NULL.
    pub dst: *mut c_void,
    /// How much is copied. If it is 0, both addresses may be NULL.
    pub bytes: usize,
    /// The buffer that is the source, or NULL.
    pub src_buffer: *mut pinlane_device_buffer,
    /// Where in `src_buffer` the copy begins.
    pub src_offset: usize,
    /// The buffer that is the destination, or NULL. It is the source of no copy of the batch.
    pub dst_buffer: *mut pinlane_device_buffer,
    /// Where in `dst_buffer` the copy begins.
    pub dst_offset: usize,
}

const _: () = {
    assert!(size_of::<pinlane_copy>() == 56);
    assert!(std::mem::offset_of!(pinlane_copy, bytes) == 16);
    assert!(std::mem::offset_of!(pinlane_copy, buffer) == 24);
    assert!(std::mem::offset_of!(pinlane_copy, device_offset) == 48);
    assert!(size_of::<pinlane_device_copy>() == 56);
    assert!(std::mem::offset_of!(pinlane_device_copy, src_buffer) == 24);
    assert!(std::mem::offset_of!(pinlane_device_copy, dst_offset) == 48);
};

/// Which way a `pinlane_copy` goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl pinlane_copy {
    pub(super) fn host(&self, way: Way) -> Place<pinlane_buffer> {
        Place {
            address: if way == Way::Up { self.src.cast_mut() } else { self.dst },
            buffer: self.buffer,
            offset: self.buffer_offset,
            bytes: self.bytes,
        }
    }

    pub(super) fn device(&self, way: Way) -> Place<pinlane_device_buffer> {
        Place {
            address: if way == Way::Up { self.dst } else { self.src.cast_mut() },
            buffer: self.device_buffer,
            offset: self.device_offset,
            bytes: self.bytes,
        }
    }
}

impl pinlane_device_copy {
    pub(super) fn src(&self) -> Place<pinlane_device_buffer> {
        Place {
            address: self.src.cast_mut(),
            buffer: self.src_buffer,
            offset: self.src_offset,
            bytes: self.bytes,
        }
    }

    pub(super) fn dst(&self) -> Place<pinlane_device_buffer> {
        Place {
            address: self.dst,
            buffer: self.dst_buffer,
            offset: self.dst_offset,
            bytes: self.bytes,
        }
    }
}
