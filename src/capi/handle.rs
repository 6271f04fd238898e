//! Handles: what C programs hold instead of pointers.
//!
//! A handle looks like a pointer and is none. It is looked up in its type's [table](super::table),
//! which finds what a pointer could not: that it was freed, belongs to another type, or never was a
//! handle.
//!
//! ```text
//!   bit 63       56 55                    32 31                     0
//!      [ type tag  |       generation       |     index in table     ]
//! ```
//!
//! # Invariants
//!
//! * The tag is not 0 and has its top bit set: no handle is NULL, and none is an address that a
//!   program can have on the platforms in use (user addresses end below bit 56).
//! * A freed handle stays invalid for ever: its slot's generation has grown, and is never used
//!   again.

use std::sync::OnceLock;

use super::table::{Alone, Entry, Inside, Miss, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::process::Process;
use crate::sync::Apart;

/// An opaque type of the C interface, and the Rust object that its handles stand for. Each C type
/// has one kind of ownership: its `pinlane_*_free` is the only way to end it.
pub(super) trait Handle: Sized + 'static {
    type Object: Send + Sync + 'static;
    const NAME: &'static str;
    fn table() -> &'static Table<Self::Object>;
}

#[inline(always)]
fn encode<H: Handle>(entry: Entry) -> *mut H {
    let tag = 0x80 | u64::from(H::table().number());
    let value = tag << 56 | u64::from(entry.generation) << 32 | u64::from(entry.index);
    std::ptr::without_provenance_mut(value as usize)
}

/// The entry that a handle names, if it has its type's tag.
#[inline(always)]
fn decode<H: Handle>(handle: *const H) -> Option<Entry> {
    let value = handle.addr() as u64;
    let tagged = value >> 56 == (0x80 | u64::from(H::table().number()));
    let (generation, index) = ((value >> 32) as u32 & 0x00ff_ffff, value as u32);
    tagged.then_some(Entry { index, generation })
}

/// The process that made the first handle. In a forked child some threads' calls stand still for
/// ever, perhaps with a lock, so nobody looks (soundness rule 14).
static PROCESS: Apart<OnceLock<Process>> = Apart(OnceLock::new());

/// Fails in a child of the process that first used pinlane. Whatever makes a first handle asks.
#[inline(always)]
pub(super) fn check_process(operation: &'static str) -> Result<()> {
    if PROCESS.get_or_init(Process::current).is_current() {
        return Ok(());
    }
    Err(forked(operation))
}

#[cold]
fn forked(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::ForkedProcess,
        operation,
        "this process was forked after pinlane was first used",
        "use pinlane in the parent only, or exec a new program in the child",
    )
}

/// A new handle that owns `object`.
#[inline(always)]
pub(super) fn create<H: Handle>(object: H::Object) -> *mut H {
    create_noted(object, [0; 2])
}

/// As [`create`], with numbers that [`notes`] gives.
#[inline(always)]
pub(super) fn create_noted<H: Handle>(object: H::Object, notes: [usize; 2]) -> *mut H {
    encode(H::table().insert(object, notes))
}

// What is on the way of every call is inlined always: passed through memory, what `get` gives costs
// as much again as the look-up.

/// The object of a handle, shared with other calls. It stays alive while what is returned does,
/// even if another thread frees the handle meanwhile.
#[inline(always)]
pub(super) fn get<H: Handle>(
    operation: &'static str,
    handle: *const H,
) -> Result<Inside<H::Object>> {
    check_process(operation)?;
    let found = decode(handle).ok_or(Miss::Invalid).and_then(|entry| H::table().enter(entry));
    found.map_err(|miss| missed(miss, operation, handle))
}

/// The object of a handle, for this call alone. Not for types whose objects many threads use at
/// once.
#[inline]
pub(super) fn get_mut<H: Handle>(
    operation: &'static str,
    handle: *const H,
) -> Result<Alone<H::Object>> {
    check_process(operation)?;
    let entry = decode(handle).ok_or(Miss::Invalid);
    let found = entry.and_then(|entry| H::table().enter_exclusive(entry));
    found.map_err(|miss| missed(miss, operation, handle))
}

/// The numbers that a handle was made with, whoever uses its object.
#[inline]
pub(super) fn notes<H: Handle>(operation: &'static str, handle: *const H) -> Result<[usize; 2]> {
    check_process(operation)?;
    let found = decode(handle).and_then(|entry| H::table().notes(entry));
    found.ok_or_else(|| missed(Miss::Invalid, operation, handle))
}

/// Ends a handle; NULL is none, which is fine. In a forked child it leaks instead. The object drops
/// when the last call that uses it returns.
#[inline]
pub(super) fn free<H: Handle>(operation: &'static str, handle: *mut H) -> Result<()> {
    if handle.is_null() || check_process(operation).is_err() {
        return Ok(());
    }
    let entry = decode(handle).ok_or(Miss::Invalid);
    let freed = entry.and_then(|entry| H::table().remove(entry));
    freed.map_err(|miss| missed(miss, operation, handle))
}

#[cold]
fn missed<H: Handle>(miss: Miss, operation: &'static str, handle: *const H) -> Error {
    match miss {
        Miss::Invalid => invalid(operation, handle),
        Miss::Busy => busy(operation),
    }
}

#[cold]
fn busy(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Busy,
        operation,
        "another thread uses the buffer at this moment",
        "let one thread at a time use a buffer, or hold a lock of your own",
    )
}

#[cold]
fn invalid<H: Handle>(operation: &'static str, handle: *const H) -> Error {
    let context = if handle.is_null() {
        format!("the {} is NULL", H::NAME)
    } else {
        format!("{handle:p} is no {}: freed already, or never one", H::NAME)
    };
    Error::new(
        ErrorKind::InvalidHandle,
        operation,
        context,
        "pass a handle that pinlane gave out and that has not been freed",
    )
}

#[cfg(test)]
mod tests;
