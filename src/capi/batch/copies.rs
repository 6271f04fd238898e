//! The copies of a batch in C. Each has two sides, named by an address or by a buffer.

use std::ffi::c_void;

use super::lend::{Named, TwoSides};
use super::places::Place;
use crate::capi::{layout, pinlane_buffer, pinlane_device_buffer};
use crate::copy::entry::Direction;

/// One copy of a batch, between host and device. Set all members that you do not use to 0.
///
/// The host side is pageable memory, named by its address, a part of a page-locked `buffer`, or
/// memory of a pool, named by `pinned`. The device side is the caller's own device memory, named by
/// its address, or a part of a `device_buffer`. Name each side once: if not by its address, the
/// address must be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_copy {
    /// The source: host memory in an upload, device memory in a download.
    pub src: *const c_void,
    /// The destination: device memory in an upload, host memory in a download.
    pub dst: *mut c_void,
    /// The number of bytes to copy. If 0, both addresses may be NULL.
    pub bytes: usize,
    /// The page-locked buffer that is the host side, or NULL.
    pub buffer: *mut pinlane_buffer,
    /// The offset of the copy in `buffer`, in bytes.
    pub buffer_offset: usize,
    /// The device buffer that is the device side, or NULL.
    pub device_buffer: *mut pinlane_device_buffer,
    /// The offset of the copy in `device_buffer`, in bytes.
    pub device_offset: usize,
    /// Memory of a pool that is the host side, or NULL. It is copied as by `pinlane_upload_pinned`
    /// and `pinlane_download_pinned`: no call waits for it.
    pub pinned: *mut c_void,
}

/// One copy of a batch, from device memory to device memory. Set all members that you do not use to
/// 0.
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
    /// The number of bytes to copy. If 0, both addresses may be NULL.
    pub bytes: usize,
    /// The buffer that is the source, or NULL.
    pub src_buffer: *mut pinlane_device_buffer,
    /// The offset of the copy in `src_buffer`, in bytes.
    pub src_offset: usize,
    /// The buffer that is the destination, or NULL. No copy of the batch may have it as its source.
    pub dst_buffer: *mut pinlane_device_buffer,
    /// The offset of the copy in `dst_buffer`, in bytes.
    pub dst_offset: usize,
    /// Must be 0.
    pub reserved: u64,
}

layout!(pinlane_copy: 64; bytes 16, buffer 24, device_offset 48, pinned 56);
layout!(pinlane_device_copy: 64; src_buffer 24, dst_offset 48, reserved 56);

impl Named for pinlane_copy {
    const WHAT: &'static str = "copy";

    fn sides(&self, direction: Direction) -> TwoSides {
        let (host, device) = direction.pair(self.src, self.dst.cast_const());
        (
            Place::new(host, self.buffer, self.buffer_offset, self.bytes).or_pinned(self.pinned),
            Place::new(device, self.device_buffer, self.device_offset, self.bytes),
        )
    }
}

impl pinlane_device_copy {
    pub(super) fn source(&self) -> Place<pinlane_device_buffer> {
        Place::new(self.src, self.src_buffer, self.src_offset, self.bytes)
    }

    pub(super) fn destination(&self) -> Place<pinlane_device_buffer> {
        Place::new(self.dst, self.dst_buffer, self.dst_offset, self.bytes)
    }
}
