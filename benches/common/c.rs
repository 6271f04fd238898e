//! The functions of the C interface that benchmarks call.

use std::ffi::c_void;
use std::ptr::{self, null_mut};

/// A handle of the C interface.
pub type Handle = *mut c_void;

unsafe extern "C" {
    pub fn pinlane_emulator_create(options: *const c_void, devices: *mut Handle, count: i32)
    -> i32;
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
    pub fn pinlane_pool_allocate_timeout(
        pool: Handle,
        bytes: usize,
        align: usize,
        nanoseconds: u64,
        memory: *mut Handle,
    ) -> i32;
    pub fn pinlane_pool_deallocate(pool: Handle, memory: Handle) -> i32;
    pub fn pinlane_buffer_alloc(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_buffer_alloc_zeroed(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_buffer_try_alloc(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_buffer_size(buffer: Handle, bytes: *mut usize) -> i32;
    pub fn pinlane_buffer_read(buffer: Handle, data: *mut *const c_void) -> i32;
    pub fn pinlane_buffer_free(buffer: Handle) -> i32;
    pub fn pinlane_device_buffer_alloc(device: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    pub fn pinlane_device_buffer_free(buffer: Handle) -> i32;
    pub fn pinlane_stream_create(
        device: Handle,
        options: *const c_void,
        stream: *mut Handle,
    ) -> i32;
    pub fn pinlane_stream_record(stream: Handle, ticket: *mut Handle) -> i32;
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
    pub fn pinlane_device_buffer_upload_pinned(
        stream: Handle,
        source: *const c_void,
        destination: Handle,
        destination_offset: usize,
        bytes: usize,
        ticket: *mut Handle,
    ) -> i32;
    pub fn pinlane_foreign_begin(
        stream: Handle,
        uses: *const Use,
        count: usize,
        foreign: *mut Handle,
    ) -> i32;
    pub fn pinlane_foreign_end(foreign: Handle, ticket: *mut Handle) -> i32;
    pub fn pinlane_ticket_is_done(ticket: Handle, done: *mut i32) -> i32;
    pub fn pinlane_ticket_wait_timeout(ticket: Handle, nanoseconds: u64) -> i32;
    pub fn pinlane_ticket_free(ticket: Handle) -> i32;
}

/// `pinlane_use`.
#[repr(C)]
#[derive(Default)]
pub struct Use {
    pub buffer: Option<ptr::NonNull<c_void>>,
    pub device_buffer: Option<ptr::NonNull<c_void>>,
    pub access: i32,
    pub flags: u32,
    pub reserved: u64,
}

/// A handle that a C function made.
pub fn made(make: impl FnOnce(*mut Handle) -> i32) -> Handle {
    let mut handle = null_mut();
    assert_eq!(make(&mut handle), 0);
    handle
}
