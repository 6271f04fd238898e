//! The memory of a list. Thousands of entries are more than an allocator keeps for a program: in
//! fresh pages each time, the page faults would take longer than all other work on the list. So
//! each thread keeps the memory of one list that has been dropped, for its next long list.
//!
//! # Invariants
//!
//! * An entry lives for `'a`, though the memory is typed for `'static`: entries come in and go out
//!   as `Entry<'a>`.
//! * A list that drops does not use what it borrowed: entries have nothing to drop. So this type
//!   implements `Drop` only in a part that has no lifetime, and the borrow checker lets borrows end
//!   before the list does.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::copy::direct::SEVERAL;
use crate::copy::entry::Entry;
use crate::copy::staged::share;
use crate::driver::Ordinal;

/// A list of more entries takes the kept memory: shorter ones are cheap to allocate.
const LONG: usize = 256;
/// The most that a thread keeps: 1 MiB.
const KEPT: usize = (1 << 20) / size_of::<Entry<'_>>();

thread_local! {
    static SPARE: Cell<Vec<Entry<'static>>> = const { Cell::new(Vec::new()) };
}

/// Entries that borrow for `'a`.
#[derive(Default)]
pub(super) struct Entries<'a> {
    memory: Memory,
    borrow: PhantomData<Entry<'a>>,
}

#[derive(Default)]
struct Memory(Vec<Entry<'static>>);

impl<'a> Entries<'a> {
    #[inline]
    pub(super) fn push(&mut self, entry: Entry<'a>) {
        let entries = &mut self.memory.0;
        if entries.len() == entries.capacity() {
            self.memory.grow(1);
        }
        // SAFETY: the types differ in their lifetime only. The entry goes out as one of 'a only
        // (`deref`), and has nothing to drop.
        let entry = unsafe { std::mem::transmute::<Entry<'a>, Entry<'static>>(entry) };
        self.memory.0.push(entry);
    }

    /// As many entries as that, which several threads make if they are many: `entry` gives each by
    /// its number.
    pub(super) fn made(
        device: Ordinal,
        count: usize,
        entry: &(impl Fn(usize) -> Entry<'a> + Sync),
    ) -> Self {
        let mut all = Self::default();
        all.reserve(count);
        let memory = &mut all.memory.0;
        let places = &mut memory.spare_capacity_mut()[..count];
        // SAFETY: as in `push`.
        let entry = |n| unsafe { std::mem::transmute::<Entry<'a>, Entry<'static>>(entry(n)) };
        share::write(device, SEVERAL, places, &entry);
        // SAFETY: each place has been written: `write` returns only then.
        unsafe { memory.set_len(count) };
        all
    }

    /// Makes room for `more` entries.
    pub(super) fn reserve(&mut self, more: usize) {
        if self.memory.0.capacity() - self.len() < more {
            self.memory.grow(more);
        }
    }
}

impl<'a> Deref for Entries<'a> {
    type Target = [Entry<'a>];

    #[inline]
    fn deref(&self) -> &[Entry<'a>] {
        &self.memory.0
    }
}

impl<'a> FromIterator<Entry<'a>> for Entries<'a> {
    fn from_iter<I: IntoIterator<Item = Entry<'a>>>(entries: I) -> Self {
        let (mut all, entries) = (Self::default(), entries.into_iter());
        all.reserve(entries.size_hint().0);
        entries.for_each(|entry| all.push(entry));
        all
    }
}

impl Memory {
    /// Makes room for `more` entries, in the memory that the thread keeps if it is large enough.
    #[cold]
    fn grow(&mut self, more: usize) {
        let count = self.0.len() + more;
        if count > LONG {
            let mut spare = SPARE.try_with(Cell::take).unwrap_or_default();
            if spare.capacity() >= count {
                spare.extend_from_slice(&self.0);
                self.0 = spare;
                return;
            }
        }
        self.0.reserve(more);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if (LONG + 1..=KEPT).contains(&self.0.capacity()) {
            let mut entries = std::mem::take(&mut self.0);
            entries.clear();
            // Without the thread's memory, because the thread ends, it is freed.
            let _ = SPARE.try_with(|spare| spare.set(entries));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_room_for(count: usize) -> Memory {
        let mut memory = Memory::default();
        memory.grow(count);
        memory
    }

    #[test]
    fn a_long_list_gets_the_memory_of_the_one_before() {
        let first = with_room_for(LONG + 100);
        let (place, room) = (first.0.as_ptr(), first.0.capacity());
        drop(first);
        let short = with_room_for(LONG);
        assert_ne!(short.0.as_ptr(), place, "the short one leaves it alone");
        let long = with_room_for(LONG + 50);
        // An allocator may give out the same address, but not more room than was asked for.
        assert_eq!((long.0.as_ptr(), long.0.capacity()), (place, room));
        let other = with_room_for(LONG + 50);
        assert_ne!(other.0.as_ptr(), place, "one at a time");
    }

    #[test]
    fn a_thread_keeps_no_more_than_a_mebibyte() {
        drop(with_room_for(KEPT + 1));
        assert_eq!(SPARE.take().capacity(), 0);
        drop(with_room_for(KEPT));
        assert!((KEPT..=KEPT + 1).contains(&SPARE.take().capacity()));
    }
}
