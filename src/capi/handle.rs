//! Handles, which C programs hold instead of pointers.
//!
//! A handle looks like a pointer but is a number. It is looked up in the [table](super::table) of
//! its type. Unlike a pointer, the look-up detects a handle that was freed, belongs to another
//! type, or never was one.
//!
//! ```text
//!   bit 63       56 55                    32 31                     0
//!      [ type tag  |       generation       |     index in table     ]
//! ```
//!
//! # Invariants
//!
//! * The tag has its top bit set. So no handle is NULL, and none equals an address that a program
//!   can have on the supported platforms: user addresses end below bit 56.
//! * A freed handle stays invalid forever: the generation of its slot has grown, and no generation
//!   is used twice.

use std::mem::ManuallyDrop;

use super::status::refused;
use super::table::{Alone, Call, Caller, Counted, Entry, Inside, Kind, Miss, is_in_process};
use crate::error::{Error, ErrorKind, Found, Result};

/// Makes an opaque C type a handle of a Rust type. `shared` says how many threads use it: see
/// [`Kind::SHARED`].
macro_rules! handle_type {
    ($handle:ty: $object:ty, $name:literal, table $number:literal, shared: $shared:literal) => {
        impl $crate::capi::table::Kind for $handle {
            type Object = $object;
            const NAME: &'static str = $name;
            const NUMBER: u8 = $number;
            const SHARED: bool = $shared;
            #[inline(always)]
            fn table() -> &'static $crate::capi::table::Table<$handle> {
                static TABLE: $crate::capi::table::Table<$handle> =
                    $crate::capi::table::Table::new();
                &TABLE
            }
        }
    };
}
pub(super) use handle_type;

#[inline(always)]
fn encode<H: Kind>(entry: Entry) -> *mut H {
    std::ptr::without_provenance_mut(entry.bits() as usize)
}

/// The entry that a handle names, if it has its type's tag.
#[inline(always)]
fn decode<H: Kind>(handle: *const H) -> Result<Entry, Miss> {
    match Entry::of::<H>(handle.addr() as u64) {
        Some(entry) => Ok(entry),
        None => Err(Miss::Invalid),
    }
}

/// Fails in a forked child of the process that first used pinlane. Every function that can create
/// the first handle calls it.
#[inline(always)]
pub(super) fn check_process() -> Result<()> {
    if is_in_process() { Ok(()) } else { Err(forked()) }
}

/// The thread of this call. Fails in a forked child of the process that first used pinlane. A call
/// with several handles looks for it once.
#[inline(always)]
pub(super) fn caller() -> Result<Caller> {
    match Caller::checked() {
        Some(caller) => Ok(caller),
        None => Err(forked()),
    }
}

#[cold]
fn forked() -> Error {
    let what = "this process was forked after pinlane was first used";
    let remedy = "use pinlane in the parent only, or exec a new program in the child";
    refused(ErrorKind::ForkedProcess, what, remedy)
}

/// A new handle that owns `object`.
#[inline(always)]
pub(super) fn create<H: Kind>(object: H::Object) -> *mut H {
    create_noted(ManuallyDrop::new(object), [0; 2])
}

/// As [`create`], with numbers that [`notes`] returns.
#[inline(always)]
pub(super) fn create_noted<H: Kind>(object: ManuallyDrop<H::Object>, notes: [usize; 2]) -> *mut H {
    create_noted_by(Caller::this(), object, notes)
}

/// As [`create_noted`], by the thread of the call.
#[inline(always)]
pub(super) fn create_noted_by<H: Kind>(
    caller: Caller,
    object: ManuallyDrop<H::Object>,
    notes: [usize; 2],
) -> *mut H {
    encode(H::table().insert(caller, object, notes))
}

// Look-ups are always inlined, and use no closures, which the compiler may not inline: passing a
// result through memory costs as much as the look-up.

/// The object of a handle, shared with other calls. It stays alive as long as the result, even if
/// another thread frees the handle.
#[inline(always)]
pub(super) fn get<H: Kind>(handle: *const H) -> Result<Inside<H>> {
    enter(caller()?, handle)
}

/// As [`get`], by the thread of the call.
#[inline(always)]
pub(super) fn get_by<H: Kind>(caller: Caller, handle: *const H) -> Result<Inside<H>> {
    enter(caller, handle)
}

/// The object of a handle, for this call alone. Not for types that are `shared`.
#[inline(always)]
pub(super) fn get_mut<H: Kind>(handle: *const H) -> Result<Alone<H>> {
    enter(caller()?, handle)
}

#[inline(always)]
fn enter<H: Kind, const SHARES: bool>(caller: Caller, handle: *const H) -> Result<Call<H, SHARES>> {
    let entry = entry(handle)?;
    match H::table().enter(caller, entry) {
        Ok(object) => Ok(object),
        Err(miss) => Err(missed(miss, handle)),
    }
}

/// As [`get`] or [`get_mut`], for a call that may end on another thread. Not for types that are
/// `shared`.
pub(super) fn get_counted<H: Kind, const SHARES: bool>(
    handle: *const H,
) -> Result<Counted<Call<H, SHARES>>> {
    H::table().enter_counted(caller()?, entry(handle)?).map_err(|miss| missed(miss, handle))
}

/// A shared call that could not become exclusive, and why.
type StillShared<H> = (Counted<Inside<H>>, Error);

/// Makes a shared call exclusive; or gives it back, if others are inside or the handle was freed.
pub(super) fn upgrade<H: Kind>(
    shared: Counted<Inside<H>>,
    handle: *const H,
) -> Result<Counted<Alone<H>>, StillShared<H>> {
    shared.upgrade().map_err(|(shared, miss)| (shared, missed(miss, handle)))
}

/// The numbers that a handle was made with, even while other calls use its object.
#[inline(always)]
pub(super) fn notes<H: Kind>(handle: *const H) -> Result<[usize; 2]> {
    check_process()?;
    let entry = entry(handle)?;
    match H::table().notes(entry) {
        Ok(notes) => Ok(notes),
        Err(miss) => Err(missed(miss, handle)),
    }
}

/// Frees a handle; NULL is a no-op. The object drops when the last call that uses it returns. In a
/// forked child the object leaks.
#[inline(always)]
pub(super) fn free<H: Kind>(handle: *mut H) -> Result<()> {
    // SAFETY: the object is not used again.
    match free_if(handle, |_| true, |object| unsafe { ManuallyDrop::drop(object) }) {
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// As [`free`], if `wanted` accepts the first of the [`notes`]. Otherwise returns false and changes
/// nothing. Usually `drop` drops the object: a hot type gives code that is inlined, unlike the
/// compiler's own.
#[inline(always)]
pub(super) fn free_if<H: Kind>(
    handle: *mut H,
    wanted: impl FnOnce(usize) -> bool,
    drop: impl FnOnce(&mut ManuallyDrop<H::Object>),
) -> Result<bool> {
    if handle.is_null() {
        return Ok(true);
    }
    let Some(caller) = Caller::checked() else { return Ok(true) };
    let removed = match decode(handle) {
        Ok(entry) => H::table().remove_if(caller, entry, wanted, drop),
        Err(miss) => Err(miss),
    };
    match removed {
        Ok(wanted) => Ok(wanted),
        Err(miss) => Err(missed(miss, handle)),
    }
}

#[inline(always)]
fn entry<H: Kind>(handle: *const H) -> Result<Entry> {
    match decode(handle) {
        Ok(entry) => Ok(entry),
        Err(miss) => Err(missed(miss, handle)),
    }
}

#[cold]
fn missed<H: Kind>(miss: Miss, handle: *const H) -> Error {
    match miss {
        Miss::Busy => refused(
            ErrorKind::Busy,
            Found::Numbers(
                |_| format!("a call or a graph uses the {} at this moment", H::NAME),
                [0; 2],
            ),
            "let one thread at a time use a buffer, and call pinlane_graph_lend_buffer if a graph \
             has it",
        ),
        Miss::Invalid => refused(
            ErrorKind::InvalidHandle,
            Found::Numbers(|[handle, _]| invalid::<H>(handle), [handle.addr(), 0]),
            "pass a handle that pinlane gave out and that has not been freed",
        ),
    }
}

fn invalid<H: Kind>(handle: usize) -> String {
    match handle {
        0 => format!("the {} is NULL", H::NAME),
        _ => format!("{handle:#x} is not a {}: it was freed, or never was one", H::NAME),
    }
}

#[cfg(test)]
mod tests;
