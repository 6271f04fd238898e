//! The usual calls of the C interface allocate nothing. This is a program of its own because the
//! allocations of the whole process are counted.
#![cfg(all(feature = "capi", feature = "emulated"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

// Naming the crate links the library.
use pinlane as _;

type Handle = *mut c_void;

unsafe extern "C" {
    fn pinlane_emulator_create(options: *const c_void, devices: *mut Handle, count: i32) -> i32;
    fn pinlane_pool_create(device: Handle, options: *const c_void, pool: *mut Handle) -> i32;
    fn pinlane_stream_create(device: Handle, options: *const c_void, stream: *mut Handle) -> i32;
    fn pinlane_stream_native(stream: Handle, native: *mut Handle) -> i32;
    fn pinlane_buffer_alloc(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    fn pinlane_buffer_try_alloc(pool: Handle, bytes: usize, buffer: *mut Handle) -> i32;
    fn pinlane_buffer_write(buffer: Handle, data: *mut Handle) -> i32;
    fn pinlane_buffer_read(buffer: Handle, data: *mut Handle) -> i32;
    fn pinlane_buffer_size(buffer: Handle, bytes: *mut usize) -> i32;
    fn pinlane_buffer_address(buffer: Handle, data: *mut Handle) -> i32;
    fn pinlane_buffer_acquire(buffer: Handle, stream: Handle) -> i32;
    fn pinlane_buffer_free(buffer: Handle) -> i32;
    fn pinlane_pool_allocate(pool: Handle, bytes: usize, align: usize, out: *mut Handle) -> i32;
    fn pinlane_pool_deallocate(pool: Handle, memory: Handle) -> i32;
}

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's preconditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn c_rule_13_hot_calls_allocate_nothing() {
    let (mut device, mut pool, mut stream) = (null_mut(), null_mut(), null_mut());
    // SAFETY: variables, and handles that were written there.
    let made = unsafe {
        pinlane_emulator_create(null(), &mut device, 1)
            | pinlane_pool_create(device, null(), &mut pool)
            | pinlane_stream_create(device, null(), &mut stream)
    };
    assert_eq!(made, 0);
    let calls = || {
        let (mut buffer, mut again, mut data, mut bytes) = (null_mut(), null_mut(), null_mut(), 0);
        // SAFETY: as above; each buffer and each memory is freed once.
        let failed = unsafe {
            pinlane_buffer_alloc(pool, 4096, &mut buffer)
                | pinlane_buffer_write(buffer, &mut data)
                | pinlane_buffer_read(buffer, &mut data)
                | pinlane_buffer_size(buffer, &mut bytes)
                | pinlane_buffer_address(buffer, &mut data)
                | pinlane_buffer_acquire(buffer, stream)
                | pinlane_buffer_free(buffer)
                | pinlane_buffer_try_alloc(pool, 4096, &mut again)
                | pinlane_buffer_free(again)
                | pinlane_stream_native(stream, &mut data)
                | pinlane_pool_allocate(pool, 4096, 64, &mut data)
                | pinlane_pool_deallocate(pool, data)
        };
        assert_eq!((failed, bytes), (0, 4096));
    };
    (0..100).for_each(|_| calls());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..1000).for_each(|_| calls());
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}
