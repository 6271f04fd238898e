//! The caller's producer, as the iterator of host batches that Rust's `Prefetch` takes.
//!
//! ```text
//!   Source, an iterator      next        by one worker at a time
//!     Item                               its drop: release
//!       Described            describe    by any worker
//!         its slices         fill        by the same one
//! ```
//!
//! # Invariants
//!
//! * Code that may call a function of the producer holds a reference to it. When the last reference
//!   drops, `Calls` notes that none will be called any more.

use std::borrow::Cow;
use std::cell::Cell;
use std::error::Error as StdError;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use super::failure::Failure;
use crate::capi::memory;
use crate::capi::status::{PINLANE_STATUS_END, PINLANE_STATUS_OK, call_and_listen};
use crate::capi::{Error, Result, growing, invalid, layout, pointer};
use crate::prefetch::{FillBlock, HostBatch, IntoHostBatch, Slices};
use crate::sync::sanitizer::{self, Tag};
use crate::sync::{Condvar, Mutex};

/// One slice of a batch in host memory. Set all members that you do not use to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_host_slice {
    /// The name by which the consumer finds it, or NULL: its number in the batch, such as "0".
    pub name: *const c_char,
    /// Pageable memory, which does not change until `release`. NULL requests page-locked room,
    /// which `fill` writes.
    pub data: *const c_void,
    /// The size in bytes.
    pub bytes: usize,
    /// The size of an element, or 0: in the device's memory the slice begins at a multiple of it,
    /// and of 256.
    pub element_bytes: usize,
    /// Must be 0.
    pub reserved: u64,
}

layout!(pinlane_host_slice: 40; data 8, element_bytes 24, reserved 32);

/// The functions of the program that make batches, called by threads of pinlane. Initialise with
/// `PINLANE_PRODUCER_INIT`.
///
/// The functions return 0, or their own code when they fail: the consumer gets the status
/// `PRODUCER` in place of the batch, and the code by `pinlane_last_producer_error`. The message
/// contains the message of the function's last failed pinlane call, or that of
/// `pinlane_set_last_error`. Then `next` is called for the next batch.
///
/// The functions may call pinlane and may block. They must not unwind (by a C++ exception or
/// otherwise). They are not called after `pinlane_prefetch_free` has returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_producer {
    /// `sizeof(pinlane_producer)`.
    pub size: usize,
    /// The first argument of every function.
    pub user: *mut c_void,
    /// Begins the next batch: writes to `item` what the other functions get for it. Called by one
    /// thread at a time, but not always by the same. Returns `PINLANE_STATUS_END` if there are no
    /// more batches, and is then not called again.
    pub next: Option<unsafe extern "C" fn(user: *mut c_void, item: *mut *mut c_void) -> i32>,
    /// Describes the batch: writes an array of `count` slices to `slices`, which does not change
    /// until `release`. Called at most once for each batch, for several batches at once.
    pub describe: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            item: *mut c_void,
            slices: *mut *const pinlane_host_slice,
            count: *mut usize,
        ) -> i32,
    >,
    /// Writes the slices without `data`: number `i` to `room[i]`, which is NULL for the others.
    /// `room` has as many elements as there are slices. Called at most once for each batch that has
    /// such slices, for several batches at once. May be NULL if there are none.
    pub fill: Option<
        unsafe extern "C" fn(user: *mut c_void, item: *mut c_void, room: *const *mut c_void) -> i32,
    >,
    /// Ends the batch: its slices may be reused. Called once for each batch that `next` has begun,
    /// even after an error; for several batches at once. May be NULL.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void, item: *mut c_void)>,
}

layout!(pinlane_producer: 48; size 0, user 8, next 16, release 40);
growing!(pinlane_producer_init: pinlane_producer, sizes [48], default {});

/// Whether functions of a producer may still be called.
#[derive(Default)]
pub(super) struct Calls {
    over: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    /// The producer whose function the thread is inside.
    static INSIDE: Cell<*const Calls> = const { Cell::new(ptr::null()) };
}

impl Calls {
    /// Blocks until none is called any more.
    pub(super) fn wait_for_last(&self) {
        let mut over = self.over.lock();
        while !*over {
            over = self.changed.wait(over);
        }
        sanitizer::acquire(sanitizer::of(self));
    }

    /// Whether the calling thread is inside one of them.
    pub(super) fn is_calling_thread(&self) -> bool {
        INSIDE.get() == ptr::from_ref(self)
    }
}

struct Producer {
    functions: pinlane_producer,
    calls: Arc<Calls>,
    tag: Tag,
}

// SAFETY: the functions may be called with `user` on any thread, by the precondition of `Source`.
unsafe impl Send for Producer {}
// SAFETY: as above; only `Source` calls `next`, by one thread at a time.
unsafe impl Sync for Producer {}

impl Drop for Producer {
    fn drop(&mut self) {
        *self.calls.over.lock() = true;
        self.calls.changed.notify_all();
    }
}

impl Producer {
    /// Calls one of the functions, named `name`. It is ordered after the previous call for the same
    /// object.
    fn call(
        &self,
        function: &'static str,
        about: Tag,
        call: impl FnOnce() -> i32,
    ) -> Result<(), Failure> {
        sanitizer::acquire(about.part(0));
        let before = INSIDE.replace(Arc::as_ptr(&self.calls));
        let (code, said) = call_and_listen(call);
        INSIDE.set(before);
        sanitizer::release(about.part(0));
        sanitizer::release(sanitizer::of(&*self.calls));
        match code {
            PINLANE_STATUS_OK => Ok(()),
            code => Err(Failure { function, code, said }),
        }
    }
}

/// The iterator that the workers pull from.
pub(super) struct Source(Arc<Producer>);

impl Source {
    /// # Safety
    ///
    /// * The functions may be called as `pinlane_producer` says until `calls` are over: with
    ///   `user`, on any thread. They do not unwind.
    pub(super) unsafe fn new(functions: pinlane_producer, calls: Arc<Calls>) -> Result<Self> {
        if functions.next.is_none() || functions.describe.is_none() {
            return Err(pointer::null("the producer's next or describe", "pass a function"));
        }
        Ok(Source(Arc::new(Producer { functions, calls, tag: Tag::new() })))
    }
}

impl Iterator for Source {
    type Item = Pulled;

    fn next(&mut self) -> Option<Pulled> {
        let pinlane_producer { user, next, .. } = self.0.functions;
        let (next, mut item) = (next?, ptr::null_mut());
        // SAFETY: the precondition of `Source::new`; a worker has this iterator alone.
        match self.0.call("next", self.0.tag, || unsafe { next(user, &raw mut item) }) {
            Ok(()) => {
                let tag = Tag::new();
                sanitizer::release(tag.part(0));
                Some(Pulled(Ok(Item { producer: self.0.clone(), item, tag })))
            }
            Err(Failure { code: PINLANE_STATUS_END, .. }) => None,
            Err(failure) => Some(Pulled(Err(failure))),
        }
    }
}

/// A batch that `next` has begun; its drop releases it.
struct Item {
    producer: Arc<Producer>,
    item: *mut c_void,
    tag: Tag,
}

// SAFETY: the item is only passed to the producer's functions, which take it on any thread, by the
// precondition of `Source::new`.
unsafe impl Send for Item {}

impl Drop for Item {
    fn drop(&mut self) {
        let pinlane_producer { user, release, .. } = self.producer.functions;
        if let Some(release) = release {
            let call = || {
                // SAFETY: the precondition of `Source::new`; an item drops once.
                unsafe { release(user, self.item) };
                PINLANE_STATUS_OK
            };
            let _ = self.producer.call("release", self.tag, call);
        }
    }
}

/// The result of `next`.
pub(super) struct Pulled(Result<Item, Failure>);

impl IntoHostBatch for Pulled {
    type Batch = Described;

    fn into_batch(self) -> Result<Described, Box<dyn StdError + Send + Sync>> {
        let item = self.0?;
        let pinlane_producer { user, describe, fill, .. } = item.producer.functions;
        let (mut slices, mut count) = (ptr::null(), 0);
        if let Some(describe) = describe {
            // SAFETY: the precondition of `Source::new`; the item is live, and described once.
            let call = || unsafe { describe(user, item.item, &raw mut slices, &raw mut count) };
            item.producer.call("describe", item.tag, call)?;
        }
        // The boundary does not name a C function here, so the error names the producer's.
        let of_describe = |error: Error| error.of_operation("the producer's describe");
        // SAFETY: `describe` wrote an array of `count` slices, which stays until `release`.
        let described = unsafe { pointer::inputs("slices", slices, count) }.map_err(of_describe)?;
        for (number, slice) in described.iter().enumerate() {
            slice.check(number, fill.is_some()).map_err(of_describe)?;
        }
        Ok(Described { item, slices, count })
    }
}

impl pinlane_host_slice {
    fn check(&self, number: usize, can_fill: bool) -> Result<()> {
        if self.reserved != 0 {
            let what = format!("slice {number}: reserved is not 0");
            return Err(invalid(what, "set all members that you do not use to 0"));
        }
        if self.is_room() && !can_fill {
            let what = format!("slice {number} has no data, and the producer has no fill");
            return Err(invalid(what, "set data, or the producer's fill"));
        }
        memory::check_memory(if self.is_room() { ptr::dangling() } else { self.data }, self.bytes)
            .map(drop)
    }

    fn is_room(&self) -> bool {
        self.data.is_null() && self.bytes > 0
    }

    /// # Safety
    ///
    /// * `name` is NULL, or points to a string that does not change during `'a`.
    unsafe fn name<'a>(&self, number: usize) -> Cow<'a, str> {
        const NUMBERS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
        if self.name.is_null() {
            return NUMBERS.get(number).map_or_else(|| number.to_string().into(), |&n| n.into());
        }
        // SAFETY: the precondition.
        unsafe { CStr::from_ptr(self.name) }.to_string_lossy()
    }
}

/// A batch with its slices, which were checked.
pub(super) struct Described {
    item: Item,
    slices: *const pinlane_host_slice,
    count: usize,
}

impl Described {
    fn slices(&self) -> &[pinlane_host_slice] {
        // SAFETY: `into_batch` has read the same array, which does not change until the item drops.
        unsafe { pointer::inputs("slices", self.slices, self.count) }.unwrap_or_default()
    }
}

impl HostBatch for Described {
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        for (number, slice) in self.slices().iter().enumerate() {
            // SAFETY: the array of `describe` does not change until the item drops.
            let name = unsafe { slice.name(number) };
            let source = if slice.is_room() {
                None
            } else {
                // SAFETY: as above; `check` found that the memory can be that long.
                unsafe { memory::source(slice.data, slice.bytes) }.ok()
            };
            slices.push(&name, slice.bytes, slice.element_bytes, source);
        }
    }

    fn fill(&mut self, block: &mut FillBlock<'_>) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let pinlane_producer { user, fill, .. } = self.item.producer.functions;
        let Some(fill) = fill else { return Ok(()) };
        let rooms = self.slices().iter().enumerate().map(|(number, slice)| match slice.is_room() {
            true => block.bytes_of(number).as_mut_ptr().cast(),
            false => ptr::null_mut(),
        });
        let rooms: Vec<*mut c_void> = rooms.collect();
        // SAFETY: the precondition of `Source::new`. The rooms are disjoint parts of `block`, which
        // no other code accesses until this returns.
        let call = || unsafe { fill(user, self.item.item, rooms.as_ptr()) };
        Ok(self.item.producer.call("fill", self.item.tag, call)?)
    }
}
