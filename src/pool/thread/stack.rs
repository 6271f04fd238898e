//! A stack of blocks on cache lines of its own.
//!
//! A `Vec` of two pointers has 16 bytes, and the allocator puts the memory of another thread beside
//! them. Then each push and pop of the two threads takes the cache line from the other: 16 threads
//! that took blocks of 1 MiB, of which a shelf holds two, did half as many hits a second.
//!
//! # Invariants
//!
//! * `places` has the layout of [`layout`] and belongs to the stack, unless `limit` is 0.
//! * The first `len` places hold a value, and `len <= limit`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The size of two cache lines, which are fetched together.
const LINES: usize = 128;

/// It never grows: it has room for `limit` values, by default for none.
pub(crate) struct Stack<T> {
    places: NonNull<T>,
    len: usize,
    limit: usize,
    owned: PhantomData<T>,
}

// SAFETY: it owns its values (invariants).
unsafe impl<T: Send> Send for Stack<T> {}

/// Whole pairs of cache lines.
fn layout<T>(limit: usize) -> Layout {
    let places = Layout::array::<T>(limit).and_then(|places| places.align_to(LINES));
    places.expect("a shelf is short").pad_to_align()
}

impl<T> Default for Stack<T> {
    fn default() -> Self {
        Stack { places: NonNull::dangling(), len: 0, limit: 0, owned: PhantomData }
    }
}

impl<T> Stack<T> {
    pub(crate) fn with_limit(limit: usize) -> Self {
        let layout = layout::<T>(limit);
        if layout.size() == 0 {
            return Self::default();
        }
        // SAFETY: the layout has bytes.
        let places = NonNull::new(unsafe { alloc(layout) }.cast());
        let places = places.unwrap_or_else(|| handle_alloc_error(layout));
        Stack { places, limit, ..Self::default() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// The values, the first one pushed first.
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: the first places hold values (second invariant), which stay while `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts(self.places.as_ptr(), self.len) }
    }

    /// Puts a value on top.
    ///
    /// # Panics
    ///
    /// The stack is full.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        assert!(self.len < self.limit);
        // SAFETY: the place is one of the stack's (both invariants), and holds no value.
        unsafe { self.places.add(self.len).write(value) };
        self.len += 1;
    }

    /// Takes the value from the top.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the place held a value (second invariant), and no longer counts as holding one.
        Some(unsafe { self.places.add(self.len).read() })
    }

    /// Takes all values, the first one pushed first.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let mut all: Vec<T> = std::iter::from_fn(|| self.pop()).collect();
        all.reverse();
        all
    }
}

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
        if self.limit > 0 {
            // SAFETY: allocated with this layout (first invariant), and not used again.
            unsafe { dealloc(self.places.as_ptr().cast(), layout::<T>(self.limit)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_last_value_comes_first_and_all_come_in_order() {
        let mut stack = Stack::with_limit(40);
        assert_eq!(stack.pop(), None);
        (1..=40).for_each(|number| stack.push(Box::new(number)));
        assert!(stack.is_full());
        assert_eq!(stack.pop(), Some(Box::new(40)));
        assert!(stack.take_all().into_iter().eq((1..40).map(Box::new)));
        assert_eq!((stack.len(), stack.pop()), (0, None));
        assert!(Stack::<u64>::default().is_full(), "without a limit there is no room");
    }

    #[test]
    #[should_panic(expected = "self.len < self.limit")]
    fn a_full_stack_takes_no_value() {
        let mut stack = Stack::with_limit(2);
        (1..=3).for_each(|number| stack.push(number));
    }

    #[test]
    fn values_are_dropped_with_the_stack() {
        let value = Arc::new(());
        let mut stack = Stack::with_limit(3);
        (0..3).for_each(|_| stack.push(Arc::clone(&value)));
        drop(stack.pop());
        assert_eq!(Arc::strong_count(&value), 3);
        drop(stack);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn two_stacks_share_no_pair_of_cache_lines() {
        let stacks: Vec<Stack<u64>> = (0..64).map(|_| Stack::with_limit(2)).collect();
        let pairs = stacks.iter().map(|stack| stack.places.addr().get() / LINES);
        assert_eq!(pairs.collect::<BTreeSet<_>>().len(), 64);
    }
}
