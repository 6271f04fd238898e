//! Making and freeing buffers.

use std::hint::black_box;
use std::ptr::null_mut;

use super::super::SMALL;
use super::super::common::c::*;
use super::{C_SECOND, SECOND, Subject};

pub const ALL: [Subject; 4] = [
    Subject {
        name: "alloc_free",
        method: "pinlane_buffer_alloc + pinlane_buffer_free of 4 KiB, an operation of a thread, in \
                 turns with PinnedPool::alloc + drop; loops of 20 ms at least, mean over the \
                 threads, median",
        rust: |both, _, count| {
            (0..count).try_for_each(|_| both.pool.alloc::<u8>(SMALL).map(|it| drop(black_box(it))))
        },
        c: |both, _, count| {
            for _ in 0..count {
                let mut buffer = null_mut();
                // SAFETY: the address of a variable, and the handle that was written there.
                let failed = unsafe {
                    pinlane_buffer_alloc(both.c_pool, SMALL, &mut buffer)
                        | pinlane_buffer_free(black_box(buffer))
                };
                assert_eq!(failed, 0);
            }
            Ok(())
        },
    },
    Subject {
        name: "pool_allocate",
        method: "pinlane_pool_allocate + pinlane_pool_deallocate of 4 KiB, otherwise as \
                 capi.alloc_free, also the reference",
        rust: |both, _, count| {
            (0..count).try_for_each(|_| both.pool.alloc::<u8>(SMALL).map(|it| drop(black_box(it))))
        },
        c: |both, _, count| {
            for _ in 0..count {
                let mut memory = null_mut();
                // SAFETY: the address of a variable, and the memory that was written there.
                let failed = unsafe {
                    pinlane_pool_allocate(both.c_pool, SMALL, 64, &mut memory)
                        | pinlane_pool_deallocate(both.c_pool, black_box(memory))
                };
                assert_eq!(failed, 0);
            }
            Ok(())
        },
    },
    Subject {
        name: "pool_allocate_timeout",
        method: "pinlane_pool_allocate_timeout, which need not wait, + pinlane_pool_deallocate, in \
                 turns with PinnedPool::alloc_timeout + drop; otherwise as capi.alloc_free",
        rust: |both, _, count| {
            let alloc = || both.pool.alloc_timeout::<u8>(SMALL, SECOND);
            (0..count).try_for_each(|_| alloc().map(|it| drop(black_box(it))))
        },
        c: |both, _, count| {
            for _ in 0..count {
                let mut memory = null_mut();
                // SAFETY: the address of a variable, and the memory that was written there.
                let failed = unsafe {
                    pinlane_pool_allocate_timeout(both.c_pool, SMALL, 64, C_SECOND, &mut memory)
                        | pinlane_pool_deallocate(both.c_pool, black_box(memory))
                };
                assert_eq!(failed, 0);
            }
            Ok(())
        },
    },
    Subject {
        name: "try_alloc_fails",
        method: "pinlane_buffer_try_alloc of a pool without memory, in turns with \
                 PinnedPool::try_alloc; otherwise as capi.alloc_free",
        rust: |both, _, count| {
            (0..count).for_each(|_| assert!(black_box(both.empty.try_alloc::<u8>(SMALL)).is_err()));
            Ok(())
        },
        c: |both, _, count| {
            const NOT_READY: i32 = 4;
            for _ in 0..count {
                let mut none = null_mut();
                // SAFETY: the address of a variable.
                let status = unsafe { pinlane_buffer_try_alloc(both.c_empty, SMALL, &mut none) };
                assert_eq!(status, NOT_READY);
            }
            Ok(())
        },
    },
];
