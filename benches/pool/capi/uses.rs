//! Uses of existing buffers, tickets and streams.

use std::hint::black_box;
use std::ptr::{NonNull, null, null_mut};

use super::super::SMALL;
use super::super::common::c::*;
use super::{C_SECOND, Own, SECOND, Subject};

/// The most copies in flight.
const COPIES: usize = 64;
/// `PINLANE_ACCESS_READ`.
const READ: i32 = 1;

pub const ALL: [Subject; 7] = [
    Subject {
        name: "buffer_size",
        method: "pinlane_buffer_size, in turns with PinnedBuf::len; otherwise as capi.alloc_free",
        rust: |_, own, count| {
            (0..count).for_each(|_| _ = black_box(black_box(&own.buffer).len()));
            Ok(())
        },
        c: |_, own, count| {
            let mut bytes = 0;
            for _ in 0..count {
                // SAFETY: the address of a variable.
                assert_eq!(unsafe { pinlane_buffer_size(black_box(own.c_buffer), &mut bytes) }, 0);
            }
            assert_eq!(bytes, SMALL);
            Ok(())
        },
    },
    Subject {
        name: "copy",
        method: "pinlane_device_buffer_upload of 4 KiB without a ticket, and a wait every 64 \
                 copies, in turns with Stream::upload; every thread with a stream and buffers of \
                 its own; otherwise as capi.alloc_free",
        rust: |_, own, count| {
            for number in 0..count {
                own.stream.upload(&own.buffer, &mut own.gpu)?;
                if number % COPIES == 0 {
                    own.stream.synchronize()?;
                }
            }
            Ok(())
        },
        c: |_, own, count| {
            let Own { c_stream: stream, c_buffer: buffer, c_gpu: gpu, .. } = *own;
            for number in 0..count {
                // SAFETY: no ticket is wanted.
                let failed = unsafe {
                    pinlane_device_buffer_upload(stream, buffer, 0, gpu, 0, SMALL, null_mut())
                };
                assert_eq!(failed, 0);
                if number % COPIES == 0 {
                    // SAFETY: takes any handle.
                    assert_eq!(unsafe { pinlane_stream_synchronize(stream) }, 0);
                }
            }
            Ok(())
        },
    },
    Subject {
        name: "buffer_read",
        method: "pinlane_buffer_read of a buffer without device work, in turns with \
                 PinnedBuf::read; otherwise as capi.alloc_free",
        rust: |_, own, count| {
            for _ in 0..count {
                black_box(black_box(&own.buffer).read()?.as_ptr());
            }
            Ok(())
        },
        c: |_, own, count| {
            for _ in 0..count {
                let mut data = null();
                // SAFETY: the address of a variable.
                assert_eq!(unsafe { pinlane_buffer_read(black_box(own.c_buffer), &mut data) }, 0);
                black_box(data);
            }
            Ok(())
        },
    },
    Subject {
        name: "ticket_is_done",
        method: "pinlane_ticket_is_done of work that is complete, in turns with Ticket::is_done; \
                 otherwise as capi.alloc_free",
        rust: |_, own, count| {
            for _ in 0..count {
                assert!(black_box(&own.ticket).is_done()?);
            }
            Ok(())
        },
        c: |_, own, count| {
            for _ in 0..count {
                let mut done = 0;
                // SAFETY: the address of a variable.
                let failed = unsafe { pinlane_ticket_is_done(black_box(own.c_ticket), &mut done) };
                assert_eq!((failed, done), (0, 1));
            }
            Ok(())
        },
    },
    Subject {
        name: "ticket_wait_timeout",
        method: "pinlane_ticket_wait_timeout for work that is complete, in turns with \
                 Ticket::wait_timeout; otherwise as capi.alloc_free",
        rust: |_, own, count| {
            (0..count).try_for_each(|_| black_box(&own.ticket).wait_timeout(SECOND))
        },
        c: |_, own, count| {
            for _ in 0..count {
                // SAFETY: takes any handle.
                let failed =
                    unsafe { pinlane_ticket_wait_timeout(black_box(own.c_ticket), C_SECOND) };
                assert_eq!(failed, 0);
            }
            Ok(())
        },
    },
    Subject {
        name: "foreign",
        method: "pinlane_foreign_begin that reads a page-locked and a device buffer, which have no \
                 other uses, + pinlane_foreign_end without a ticket, in turns with \
                 Stream::foreign; every thread with a stream and buffers of its own; otherwise as \
                 capi.alloc_free",
        rust: |_, own, count| {
            for _ in 0..count {
                // SAFETY: nothing is launched.
                unsafe { own.stream.foreign(&[&own.buffer, &own.gpu], &mut [], |_| ()) }?;
            }
            Ok(())
        },
        c: |_, own, count| {
            let uses = [
                Use { buffer: NonNull::new(own.c_buffer), access: READ, ..Use::default() },
                Use { device_buffer: NonNull::new(own.c_gpu), access: READ, ..Use::default() },
            ];
            for _ in 0..count {
                let mut foreign = null_mut();
                // SAFETY: two uses, the address of a variable, and what was written there.
                let failed = unsafe {
                    pinlane_foreign_begin(own.c_stream, uses.as_ptr(), 2, &mut foreign)
                        | pinlane_foreign_end(foreign, null_mut())
                };
                assert_eq!(failed, 0);
            }
            Ok(())
        },
    },
    Subject {
        name: "copy_by_address",
        method: "pinlane_device_buffer_upload_pinned of 4 KiB that are known by address, in turns \
                 with Stream::upload of the buffer; otherwise as capi.copy",
        rust: |_, own, count| {
            for number in 0..count {
                own.stream.upload(&own.buffer, &mut own.gpu)?;
                if number % COPIES == 0 {
                    own.stream.synchronize()?;
                }
            }
            Ok(())
        },
        c: |_, own, count| {
            let Own { c_stream: stream, c_buffer: buffer, c_gpu: gpu, .. } = *own;
            let mut data = null();
            // SAFETY: the address of a variable.
            assert_eq!(unsafe { pinlane_buffer_read(buffer, &mut data) }, 0);
            for number in 0..count {
                // SAFETY: the buffer is live and is not written; no ticket is wanted.
                let failed = unsafe {
                    pinlane_device_buffer_upload_pinned(stream, data, gpu, 0, SMALL, null_mut())
                };
                assert_eq!(failed, 0);
                if number % COPIES == 0 {
                    // SAFETY: takes any handle.
                    assert_eq!(unsafe { pinlane_stream_synchronize(stream) }, 0);
                }
            }
            Ok(())
        },
    },
];
