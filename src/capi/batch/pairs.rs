//! Pairs of page-locked and device memory in C, which are copied in both directions repeatedly.
//!
//! ```text
//!   pinlane_pairs_create    the pairs are checked
//!   pinlane_upload_pairs    all buffers are looked up and borrowed
//!     the first time        a list of the Rust interface is made of them, and kept
//!     Stream::upload_list   the list is checked and laid out by its first copy
//! ```
//!
//! # Invariants
//!
//! * A list names the objects of the buffers' handles, and memory of pools. It is used only while a
//!   call is inside all of these objects, and the caller keeps the pools' memory as long as it
//!   makes copies. A handle never refers to another object, and an object does not move until its
//!   handle is freed. So the memory exists whenever the list is used: after a buffer was freed, its
//!   look-up fails.
//! * Between the calls nothing accesses the memory that the list names, and dropping the list does
//!   not either.
//! * The fields of a buffer that a list refers to are not written, except those that their own
//!   locks guard.

use std::ffi::c_void;
use std::mem::transmute;

use super::lend::{Named, Sides, TwoSides};
use super::places::Place;
use super::{chosen_route, pinlane_batch_options};
use crate::batch::{Downloads, Route, Uploads};
use crate::capi::{
    Out, Result, freeing, handle, handle_type, invalid, layout, pinlane_buffer,
    pinlane_device_buffer, pinlane_status, pinlane_stream, pinlane_ticket, pointer,
};
use crate::copy::entry::Direction;
use crate::stream::Stream;
use crate::ticket::Ticket;

/// Pairs of page-locked memory and device memory, which are copied in either direction as often as
/// needed. Any thread may use it, one at a time.
pub enum pinlane_pairs {}

handle_type!(pinlane_pairs: Pairs, "list of pairs", table 12, shared: false);

/// One pair: a part of a page-locked buffer, or memory of a pool, and a part of a device buffer of
/// the same length. Set all members that you do not use to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_pair {
    /// The page-locked buffer, or NULL.
    pub buffer: *mut pinlane_buffer,
    /// The offset of the pair in `buffer`, in bytes.
    pub buffer_offset: usize,
    /// The device buffer.
    pub device_buffer: *mut pinlane_device_buffer,
    /// The offset of the pair in `device_buffer`, in bytes.
    pub device_offset: usize,
    /// The length of each side. If 0, `pinned` may be NULL, too.
    pub bytes: usize,
    /// Memory of a pool, instead of `buffer`, or NULL. It is copied as by `pinlane_upload_pinned`
    /// and `pinlane_download_pinned`.
    pub pinned: *mut c_void,
}

layout!(pinlane_pair: 48; buffer_offset 8, device_buffer 16, device_offset 24, bytes 32,
    pinned 40);

impl Named for pinlane_pair {
    const WHAT: &'static str = "pair";

    fn sides(&self, _: Direction) -> TwoSides {
        let none = std::ptr::null();
        (
            Place::new(none, self.buffer, self.buffer_offset, self.bytes).or_pinned(self.pinned),
            Place::new(none, self.device_buffer, self.device_offset, self.bytes),
        )
    }
}

/// The object of a list's handle.
pub struct Pairs {
    sides: Sides,
    route: Option<Route>,
    /// Made by the first copy in that direction.
    up: Option<Uploads<'static>>,
    down: Option<Downloads<'static>>,
}

// SAFETY: the sides have handles, which are numbers, and addresses of memory of pools, which any
// thread may name. The lists are `Send`.
unsafe impl Send for Pairs {}
// SAFETY: as above; a shared reference gives access to nothing.
unsafe impl Sync for Pairs {}

impl Pairs {
    /// # Safety
    ///
    /// * Memory of a pool is not given back until this returns.
    unsafe fn new(pairs: &[pinlane_pair], route: Option<Route>) -> Result<Self> {
        let unnamed = |pair: &pinlane_pair| {
            let has_host = !pair.buffer.is_null() || !pair.pinned.is_null();
            pair.device_buffer.is_null() || !has_host && pair.bytes > 0
        };
        if let Some(number) = pairs.iter().position(unnamed) {
            let remedy =
                "set buffer or pinned, and device_buffer; pinlane_copy has copies of other memory";
            return Err(invalid(format!("pair {number} names one side, or none"), remedy));
        }
        let sides = Sides::new(pairs, Direction::Up)?;
        sides.hosts.shared()?;
        let devices = sides.devices.shared()?;
        for (number, place) in sides.devices.places.iter().enumerate() {
            let device = sides.devices.buffer(place).expect("a pair names a device buffer");
            // SAFETY: the precondition.
            unsafe { sides.hosts.check_pinned(number, devices[device].context()) }?;
        }
        Ok(Pairs { sides, route, up: None, down: None })
    }

    /// # Safety
    ///
    /// * Memory of a pool was not given back since the list was made, and is not until this
    ///   returns. The host does not write to it until the copies are complete.
    unsafe fn upload(&mut self, stream: &Stream) -> Result<Ticket> {
        let Pairs { sides, route, up, .. } = self;
        if up.is_none() {
            // SAFETY: the precondition; no other memory is named by its address.
            *up = Some(unsafe {
                sides.up(stream, |pairs| {
                    let list = pairs.collect::<Result<Uploads<'_>>>()?.route(*route);
                    // SAFETY: only the lifetime differs. The list is used only below: after
                    // `shared` and `exclusive` of the same handles, so while a call is inside the
                    // same objects (the invariants), and while the caller has the memory of pools
                    // (the precondition).
                    Ok(transmute::<Uploads<'_>, Uploads<'static>>(list))
                })
            }?);
        }
        let (_sources, _destinations) = (sides.hosts.shared()?, sides.devices.exclusive()?);
        stream.upload_list(up.as_mut().expect("made above"))
    }

    /// # Safety
    ///
    /// * As for [`upload`](Self::upload), and the host does not read that memory either.
    unsafe fn download(&mut self, stream: &Stream) -> Result<Ticket> {
        let Pairs { sides, route, down, .. } = self;
        if down.is_none() {
            // SAFETY: the precondition; no other memory is named by its address.
            *down = Some(unsafe {
                sides.down(stream, |pairs| {
                    let list = pairs.collect::<Result<Downloads<'_>>>()?.route(*route);
                    // SAFETY: as in `upload`.
                    Ok(transmute::<Downloads<'_>, Downloads<'static>>(list))
                })
            }?);
        }
        let (_destinations, _sources) = (sides.hosts.exclusive()?, sides.devices.shared()?);
        stream.download_list(down.as_mut().expect("made above"))
    }
}

/// Makes a list of the `count` pairs of `pairs` and writes it to `list`. The caller frees it with
/// `pinlane_pairs_free`. `options` choose a route, as for `pinlane_upload_batch`, and may be NULL;
/// `pairs` may be NULL if `count` is 0. The array may be freed when the call returns. Does not
/// block, and enqueues nothing.
///
/// The first copy in a direction checks the list and lays out what the kernel reads (24 bytes of
/// page-locked memory a pair, and as many for every 16 KiB of a longer one); the others only
/// enqueue. Between the copies the buffers can be used as usual. They can also be freed as usual:
/// copies of the list then fail. `pinned` memory has no handle, so pinlane cannot find that it was
/// freed: after that, only free the list.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if a
/// pointer is NULL, a pair does not name two sides, or names one twice, or `pinned` memory does not
/// belong to a pool, and for options of an unknown size, route or flag.
///
/// # Safety
///
/// - `pairs` is NULL or points to an array of `count` elements.
/// - `pinned` memory is not freed before the call returns.
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `list` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pairs_create(
    pairs: *const pinlane_pair,
    count: usize,
    options: *const pinlane_batch_options,
    list: *mut *mut pinlane_pairs,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `list`.
    unsafe { Out::new("list", list) }.create("pinlane_pairs_create", || {
        // SAFETY: the caller's precondition on `options`.
        let route = unsafe { chosen_route(options) }?;
        // SAFETY: the caller's precondition on `pairs`.
        let pairs = unsafe { pointer::inputs("pairs", pairs, count) }?;
        // SAFETY: the caller's precondition on pinned memory.
        unsafe { Pairs::new(pairs, route) }
    })
}

/// Copies the page-locked side of every pair to its device side, which is memory of the stream's
/// device. Does not block. Ordered on `stream`, and after conflicting uses of the buffers on other
/// streams. The copies have no order among themselves. `ticket`, for all of them, may be NULL.
///
/// Statuses: `INVALID_HANDLE`, also if a buffer of a pair was freed; `BUSY`, `WRONG_DEVICE`,
/// `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`; `INVALID_VALUE` if the device sides of two
/// pairs overlap; `UNSUPPORTED` if the route of the list is not possible: nothing was enqueued.
/// `CUDA`, `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be page-locked for what the
/// kernel reads: the contents of all device sides are unspecified.
///
/// # Safety
///
/// - `pinned` memory of the list was not freed since the list was made, and is not freed before the
///   call returns. It is not written until the copies are complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_pairs(
    stream: *const pinlane_stream,
    pairs: *mut pinlane_pairs,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_pairs", stream, |stream| {
        let mut pairs = handle::get_mut(pairs)?;
        // SAFETY: the caller's precondition on pinned memory.
        unsafe { pairs.upload(stream) }
    })
}

/// As `pinlane_upload_pairs`, from the device side of every pair to its page-locked side:
/// `pinlane_buffer_read` waits for the copies.
///
/// Statuses: as for `pinlane_upload_pairs`; `INVALID_VALUE` if the page-locked sides of two pairs
/// overlap.
///
/// # Safety
///
/// - `pinned` memory of the list was not freed since the list was made, and is not freed before the
///   call returns. It is not accessed until the copies are complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_pairs(
    stream: *const pinlane_stream,
    pairs: *mut pinlane_pairs,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download_pairs", stream, |stream| {
        let mut pairs = handle::get_mut(pairs)?;
        // SAFETY: the caller's precondition on pinned memory.
        unsafe { pairs.download(stream) }
    })
}

/// Frees the list; NULL is a no-op. Returns at once, even in the middle of a copy. Does not change
/// the buffers.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a list of pairs.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_pairs_free(pairs: *mut pinlane_pairs) -> pinlane_status {
    freeing("pinlane_pairs_free", || handle::free(pairs))
}
