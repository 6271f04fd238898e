//! The functions of the C interface that benchmarks call.

use std::ffi::c_void;
use std::ptr::null_mut;

/// A handle of the C interface.
pub type Handle = *mut c_void;

unsafe extern "C" {
    pub fn pinlane_device_open_or_emulated(device: *mut Handle) -> i32;
    pub fn pinlane_device_live_streams(device: Handle, count: *mut usize) -> i32;
    pub fn pinlane_device_free(device: Handle) -> i32;
    pub fn pinlane_pool_create(device: Handle, options: *const c_void, pool: *mut Handle) -> i32;
    pub fn pinlane_pool_free(pool: Handle) -> i32;
    pub fn pinlane_pool_allocate(
        pool: Handle,
        bytes: usize,
        align: usize,
        memory: *mut Handle,
    ) -> i32;
    pub fn pinlane_pool_deallocate(pool: Handle, memory: Handle) -> i32;
    pub fn pinlane_buffer_alloc(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_buffer_alloc_zeroed(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_buffer_try_alloc(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_buffer_size(buffer: Handle, bytes: *mut usize) -> i32;
    pub fn pinlane_buffer_free(buffer: Handle) -> i32;
    pub fn pinlane_device_buffer_alloc(device: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_device_buffer_free(buffer: Handle) -> i32;
    pub fn pinlane_stream_create(
        device: Handle,
        options: *const c_void,
        stream: *mut Handle,
    ) -> i32;
    pub fn pinlane_stream_synchronize(stream: Handle) -> i32;
    pub fn pinlane_stream_free(stream: Handle) -> i32;
    pub fn pinlane_device_buffer_upload(
        stream: Handle,
        source: Handle,
        source_offset: usize,
        destination: Handle,
        destination_offset: usize,
        bytes: usize,
        ticket: *mut Handle,
    ) -> i32;
}

/// A handle that a C function made.
pub fn made(make: impl FnOnce(*mut Handle) -> i32) -> Handle {
    let mut handle = null_mut();
    assert_eq!(make(&mut handle), 0);
    handle
}
