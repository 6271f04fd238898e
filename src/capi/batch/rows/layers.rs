//! The tables of layers in C.

use std::ffi::c_void;

use crate::capi::batch::lend::{Named, TwoSides};
use crate::capi::batch::places::Place;
use crate::capi::{layout, pinlane_buffer, pinlane_device_buffer};
use crate::copy::entry::Direction;

/// Two tables: one in host memory and one in device memory. A table is a range of memory that is
/// cut into rows, or blocks, of equal length. Set all members that you do not use to 0.
///
/// The host table is pageable memory, named by its address, a part of a page-locked `buffer`, or
/// memory of a pool, named by `pinned`. The device table is the caller's own device memory, named
/// by its address, or a part of a `device_buffer`. Name each table once: if not by its address, the
/// address must be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_layer {
    /// The source: host memory in an upload, device memory in a download.
    pub src: *const c_void,
    /// The destination: device memory in an upload, host memory in a download.
    pub dst: *mut c_void,
    /// The size of the source. If 0, its address may be NULL.
    pub src_bytes: usize,
    /// The size of the destination. If 0, its address may be NULL.
    pub dst_bytes: usize,
    /// The page-locked buffer with the host table, or NULL.
    pub buffer: *mut pinlane_buffer,
    /// The offset of the table in `buffer`, in bytes.
    pub buffer_offset: usize,
    /// The device buffer with the device table, or NULL.
    pub device_buffer: *mut pinlane_device_buffer,
    /// The offset of the table in `device_buffer`, in bytes.
    pub device_offset: usize,
    /// Memory of a pool with the host table, or NULL. It is copied as by `pinlane_upload_pinned`
    /// and `pinlane_download_pinned`: no call waits for it.
    pub pinned: *mut c_void,
}

layout!(pinlane_layer: 72; src_bytes 16, dst_bytes 24, buffer 32, buffer_offset 40,
    device_buffer 48, device_offset 56, pinned 64);

impl Named for pinlane_layer {
    const WHAT: &'static str = "layer";

    fn sides(&self, direction: Direction) -> TwoSides {
        let (src, dst) = ((self.src, self.src_bytes), (self.dst.cast_const(), self.dst_bytes));
        let ((host, host_bytes), (device, device_bytes)) = match direction {
            Direction::Up => (src, dst),
            Direction::Down => (dst, src),
        };
        (
            Place::new(host, self.buffer, self.buffer_offset, host_bytes).or_pinned(self.pinned),
            Place::new(device, self.device_buffer, self.device_offset, device_bytes),
        )
    }
}
