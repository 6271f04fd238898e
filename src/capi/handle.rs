//! Handles: what C programs hold instead of pointers.
//!
//! A handle looks like a pointer and is none. It is looked up in its type's table, which finds what a
//! pointer could not: that it was freed, belongs to another type, or never was a handle.
//!
//! ```text
//!   bit 63       56 55                    32 31                     0
//!      [ type tag  |       generation       |     index in table     ]
//! ```
//!
//! # Invariants
//!
//! * The tag is not 0 and has its top bit set: no handle is NULL, and none is an address that a program
//!   can have on the platforms in use (user addresses end below bit 56).
//! * A slot's generation grows each time the slot is freed, and a slot whose generations are used up is
//!   never used again: a freed handle stays invalid for ever.
//! * The table's lock is held for a look-up only; objects are dropped outside it.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, ErrorKind, Result};
use crate::process::Process;
use crate::sync::Mutex;

const GENERATIONS: u64 = 1 << 24;

/// An opaque type of the C interface, and the Rust object that its handles stand for. Each C type has
/// one kind of ownership: its `pinlane_*_free` is the only way to end it.
pub(super) trait Handle: Sized + 'static {
    type Object: Send + Sync + 'static;
    const NAME: &'static str;
    fn table() -> &'static Table<Self::Object>;
}

pub(super) struct Table<T> {
    tag: u8,
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u64,
    object: Option<Arc<T>>,
}

impl<T> Table<T> {
    /// `number` tells the types apart, and is less than 128.
    pub(super) const fn new(number: u8) -> Self {
        assert!(number < 128);
        let slots = Slots { slots: Vec::new(), free: Vec::new() };
        Table { tag: 0x80 | number, slots: Mutex::new(slots) }
    }

    fn encode(&self, index: u32, generation: u64) -> usize {
        (u64::from(self.tag) << 56 | generation << 32 | u64::from(index)) as usize
    }

    /// The slot and generation that `value` names, if it has this table's tag.
    fn decode(&self, value: usize) -> Option<(usize, u64)> {
        let value = value as u64;
        let tagged = value >> 56 == u64::from(self.tag);
        tagged.then_some((value as u32 as usize, (value >> 32) % GENERATIONS))
    }

    fn insert(&self, object: Arc<T>) -> usize {
        let mut slots = self.slots.lock();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.slots.push(Slot { generation: 0, object: None });
            u32::try_from(slots.slots.len() - 1).expect("fewer than 2^32 handles of a type")
        });
        let slot = &mut slots.slots[index as usize];
        slot.object = Some(object);
        self.encode(index, slot.generation)
    }

    fn get(&self, value: usize) -> Option<Arc<T>> {
        let (index, generation) = self.decode(value)?;
        let slots = self.slots.lock();
        let slot = slots.slots.get(index).filter(|slot| slot.generation == generation)?;
        slot.object.clone()
    }

    #[cfg(test)]
    fn remove(&self, value: usize) -> Option<Arc<T>> {
        self.remove_if(value, |_| Ok(())).expect("nobody refuses")
    }

    /// Removes what `check` accepts. It runs under the lock, so that nobody gets the object meanwhile.
    fn remove_if(
        &self,
        value: usize,
        check: impl FnOnce(&Arc<T>) -> Result<()>,
    ) -> Result<Option<Arc<T>>> {
        let Some((index, generation)) = self.decode(value) else { return Ok(None) };
        let mut slots = self.slots.lock();
        let slot = slots.slots.get_mut(index).filter(|slot| slot.generation == generation);
        let Some(slot) = slot else { return Ok(None) };
        let Some(object) = &slot.object else { return Ok(None) };
        check(object)?;
        let object = slot.object.take();
        slot.generation += 1;
        if slot.generation < GENERATIONS {
            slots.free.push(index as u32);
        }
        Ok(object)
    }
}

/// The process that made the first handle. In a forked child a table may be locked for ever, by a thread
/// that the child does not have, so nobody looks (soundness rule 14).
static PROCESS: OnceLock<Process> = OnceLock::new();

/// Fails in a child of the process that first used pinlane. Whatever makes a first handle asks.
pub(super) fn check_process(operation: &'static str) -> Result<()> {
    if PROCESS.get_or_init(Process::current).is_current() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ForkedProcess,
        operation,
        "this process was forked after pinlane was first used",
        "use pinlane in the parent only, or exec a new program in the child",
    ))
}

/// A new handle that owns `object`.
pub(super) fn create<H: Handle>(object: H::Object) -> *mut H {
    std::ptr::without_provenance_mut(H::table().insert(Arc::new(object)))
}

/// The object of a handle. It stays alive while the returned `Arc` does, even if another thread frees
/// the handle meanwhile.
pub(super) fn get<H: Handle>(operation: &'static str, handle: *const H) -> Result<Arc<H::Object>> {
    check_process(operation)?;
    H::table().get(handle.addr()).ok_or_else(|| invalid::<H>(operation, handle))
}

/// Ends a handle; NULL is none, which is fine. In a forked child it leaks instead.
pub(super) fn free<H: Handle>(operation: &'static str, handle: *mut H) -> Result<()> {
    free_if(operation, handle, |_| Ok(()))
}

/// As [`free`], unless `check` refuses it. `check` runs under the table's lock: no reference to the object
/// is given out from then on.
pub(super) fn free_if<H: Handle>(
    operation: &'static str,
    handle: *mut H,
    check: impl FnOnce(&Arc<H::Object>) -> Result<()>,
) -> Result<()> {
    if handle.is_null() || check_process(operation).is_err() {
        return Ok(());
    }
    let object = H::table().remove_if(handle.addr(), check)?;
    object.map(drop).ok_or_else(|| invalid::<H>(operation, handle))
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

/// An output parameter: checked before any work, written only on success.
pub(super) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    ///
    /// * `pointer` is NULL, misaligned (both are errors), or valid for writing a `T` until the call
    ///   returns.
    pub(super) unsafe fn new(operation: &'static str, name: &str, pointer: *mut T) -> Result<Self> {
        check_pointer(operation, name, pointer)?;
        NonNull::new(pointer).map(Out).ok_or_else(|| null(operation, name))
    }

    /// As [`new`](Self::new), for an output that the caller may not want.
    ///
    /// # Safety
    ///
    /// * As for [`new`](Self::new).
    pub(super) unsafe fn optional(
        operation: &'static str,
        name: &str,
        pointer: *mut T,
    ) -> Result<Option<Self>> {
        check_pointer(operation, name, pointer)?;
        Ok(NonNull::new(pointer).map(Out))
    }

    pub(super) fn set(self, value: T) {
        // SAFETY: by the precondition of `new` the pointer is valid for writing, and it was found
        // aligned; `self` is consumed, within the call.
        unsafe { self.0.write(value) }
    }
}

/// An input that C passes by pointer, such as an options struct.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or valid for reading a `T`.
pub(super) unsafe fn input<T: Copy>(
    operation: &'static str,
    name: &str,
    pointer: *const T,
) -> Result<T> {
    check_pointer(operation, name, pointer)?;
    let pointer = NonNull::new(pointer.cast_mut()).ok_or_else(|| null(operation, name))?;
    // SAFETY: not NULL and aligned, as just found, so valid for reading by the precondition.
    Ok(unsafe { pointer.read() })
}

/// An input that C passes as an array; none if `count` is 0.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or valid for reading `count` elements during `'a`.
pub(super) unsafe fn inputs<'a, T: Copy>(
    operation: &'static str,
    name: &str,
    pointer: *const T,
    count: usize,
) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_pointer(operation, name, pointer)?;
    if pointer.is_null() {
        return Err(null(operation, name));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::new(
            ErrorKind::InvalidValue,
            operation,
            format!("{name} of {count} elements"),
            "pass how many elements the array has",
        ));
    }
    // SAFETY: aligned, not NULL and no longer than memory can be, as just found, so valid for reading by the
    // precondition.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

fn check_pointer<T>(operation: &'static str, name: &str, pointer: *const T) -> Result<()> {
    if pointer.is_aligned() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidValue,
        operation,
        format!("{name} ({pointer:p}) is not aligned to {} bytes", align_of::<T>()),
        "pass the address of a variable of the right type",
    ))
}

#[cold]
pub(super) fn null(operation: &'static str, name: &str) -> Error {
    Error::new(
        ErrorKind::InvalidValue,
        operation,
        format!("{name} is NULL"),
        "pass the address of a variable",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_stays_invalid_when_its_slot_is_used_again() {
        let table = Table::new(100);
        let first = table.insert(Arc::new(1));
        assert_eq!(table.get(first).as_deref(), Some(&1));
        assert_eq!(table.remove(first).as_deref(), Some(&1));
        let second = table.insert(Arc::new(2));
        assert_eq!(first as u32, second as u32, "the slot is used again");
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second).as_deref(), Some(&2));
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_retired() {
        let table = Table::new(100);
        let first = table.insert(Arc::new(0));
        table.slots.lock().slots[0].generation = GENERATIONS - 1;
        let last = table.encode(0, GENERATIONS - 1);
        assert!(table.remove(last).is_some());
        assert_eq!(table.insert(Arc::new(1)) as u32, 1, "slot 0 is not used again");
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(last), None);
    }

    #[test]
    fn handles_of_other_types_and_addresses_are_no_handles() {
        let (ours, theirs) = (Table::new(1), Table::new(2));
        let handle = ours.insert(Arc::new(1));
        theirs.insert(Arc::new(2));
        assert_eq!(theirs.get(handle), None);
        let local = 0;
        assert_eq!(ours.get(std::ptr::from_ref(&local).addr()), None);
        assert_eq!(ours.get(0), None);
        assert_eq!(ours.get(usize::MAX), None);
    }

    /// Soundness rule 16: of several threads that free one handle, one does.
    #[test]
    fn a_handle_is_freed_once_by_whoever_comes_first() {
        let table = Table::new(100);
        for round in 0..500 {
            let object = Arc::new(round);
            let handle = table.insert(object.clone());
            let freed: usize = std::thread::scope(|scope| {
                let free = || {
                    // One that has found the object keeps it alive, whoever frees the handle.
                    let found = table.get(handle);
                    assert!(found.is_none_or(|found| *found == round));
                    usize::from(table.remove(handle).is_some())
                };
                let threads = [(); 4].map(|()| scope.spawn(free));
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            });
            assert_eq!((freed, Arc::strong_count(&object)), (1, 1));
            assert_eq!(table.get(handle), None);
        }
    }

    struct Nested;

    static NESTED: Table<Outer> = Table::new(101);

    /// Holds the handle of another of its kind, which its drop frees.
    struct Outer(Option<usize>);

    impl Drop for Outer {
        fn drop(&mut self) {
            if let Some(inner) = self.0 {
                assert!(NESTED.remove(inner).is_some());
            }
        }
    }

    impl Handle for Nested {
        type Object = Outer;
        const NAME: &'static str = "nested object";
        fn table() -> &'static Table<Outer> {
            &NESTED
        }
    }

    #[test]
    fn objects_are_dropped_outside_the_lock() {
        let inner = create::<Nested>(Outer(None));
        let outer = create::<Nested>(Outer(Some(inner.addr())));
        free("test", outer).expect("a live handle");
        for handle in [inner, outer] {
            let error = free("test", handle).expect_err("freed already");
            assert_eq!(error.kind(), ErrorKind::InvalidHandle);
        }
        free("test", std::ptr::null_mut::<Nested>()).expect("freeing nothing is fine");
    }
}
