//! The handle tables of the C interface, and memory of a pool by its address.

use std::ptr::null;
use std::thread;

use pinlane::Result;

use super::c::*;
use super::{Rig, Row, SMALL, seconds};

pub const ROWS: &[Row] = &[
    ("handles", |_, n| handles(n, false), "tickets of the C interface: made, asked, freed"),
    ("handles.threads", |_, n| handles(n, true), "the same, asked and freed by another thread"),
    ("addresses", addresses, "blocks by address: given, taken back"),
];

/// An emulated device, on its own machine.
fn device() -> Handle {
    // SAFETY: no options, and the address of one variable.
    made(|out| unsafe { pinlane_emulator_create(null(), out, 1) })
}

/// A list of handles, for another thread.
struct Handles(Vec<Handle>);

// SAFETY: handles of the C interface may be used by any thread.
unsafe impl Send for Handles {}

impl Handles {
    fn end(self) {
        for ticket in self.0 {
            let mut done = 0;
            // SAFETY: a ticket and the address of a variable; it is freed once.
            let failed =
                unsafe { pinlane_ticket_is_done(ticket, &mut done) | pinlane_ticket_free(ticket) };
            assert_eq!((failed, done), (0, 1));
        }
    }
}

fn handles(count: usize, elsewhere: bool) -> Result<f64> {
    let device = device();
    // SAFETY: `made` passes the address of a variable.
    let stream = made(|out| unsafe { pinlane_stream_create(device, null(), out) });
    let took = seconds(|| {
        // SAFETY: as above.
        let ticket = |_| made(|out| unsafe { pinlane_stream_record(stream, out) });
        let tickets = Handles((0..count).map(ticket).collect());
        match elsewhere {
            true => thread::spawn(move || tickets.end()).join().expect("no panic"),
            false => tickets.end(),
        }
        Ok(())
    });
    // SAFETY: made here, each freed once.
    assert_eq!(unsafe { pinlane_stream_free(stream) | pinlane_device_free(device) }, 0);
    took
}

fn addresses(_: &Rig, count: usize) -> Result<f64> {
    let device = device();
    // SAFETY: `made` passes the address of a variable.
    let pool = made(|out| unsafe { pinlane_pool_create(device, null(), out) });
    let took = seconds(|| {
        // SAFETY: as above.
        let block = |_| made(|out| unsafe { pinlane_pool_allocate(pool, SMALL, 64, out) });
        let blocks: Vec<Handle> = (0..count).map(block).collect();
        for block in blocks {
            // SAFETY: the pool gave it, and gets it back once.
            assert_eq!(unsafe { pinlane_pool_deallocate(pool, block) }, 0);
        }
        Ok(())
    });
    // SAFETY: made here, each freed once.
    assert_eq!(unsafe { pinlane_pool_free(pool) | pinlane_device_free(device) }, 0);
    took
}
