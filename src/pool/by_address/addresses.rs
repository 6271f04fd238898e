//! Which block begins at an address: a map without locks.
//!
//! ```text
//!   bit 47      33 32       20 19        8
//!      [   root   |   middle  |   leaf    ]   2^15, 2^13, 2^12 entries; a leaf covers 1 MiB
//! ```
//!
//! # Invariants
//!
//! * Nodes are made on demand and stay until the map drops. Entries start as null.
//! * Neighbouring blocks have distant entries, so threads that allocate side by side do not write
//!   to one cache line.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::memory::block::Block;

/// Blocks begin at multiples of this.
pub(crate) const GRANULE: usize = 256;

struct Node<T, const N: usize>([AtomicPtr<T>; N]);

type Leaf = Node<Block, { 1 << 12 }>;
type Middle = Node<Leaf, { 1 << 13 }>;
type Root = Node<Middle, { 1 << 15 }>;

#[derive(Default)]
pub(crate) struct Addresses {
    root: AtomicPtr<Root>,
}

/// The caller defines what it points to.
pub(crate) type AddressEntry = AtomicPtr<Block>;

impl Addresses {
    /// The entry of an address, if its leaf has been made.
    #[inline]
    pub(crate) fn get(&self, address: usize) -> Option<&AddressEntry> {
        let [root, middle, leaf] = path(address)?;
        child(child(child(&self.root)?.at(root))?.at(middle)).map(|node| node.at(leaf))
    }

    /// The entry of an address; `None` for addresses that are no multiple of [`GRANULE`], or too
    /// high.
    #[inline]
    pub(crate) fn make(&self, address: usize) -> Option<&AddressEntry> {
        let [root, middle, leaf] = path(address)?;
        Some(made(made(made(&self.root).at(root)).at(middle)).at(leaf))
    }
}

#[inline]
fn path(address: usize) -> Option<[usize; 3]> {
    if address >> 48 != 0 || !address.is_multiple_of(GRANULE) {
        return None;
    }
    // Multiplying by an odd number permutes the entries.
    let leaf = (address >> 8).wrapping_mul(2531) & 0xfff;
    Some([address >> 33, address >> 20 & 0x1fff, leaf])
}

impl<T, const N: usize> Node<T, N> {
    #[inline]
    fn at(&self, index: usize) -> &AtomicPtr<T> {
        &self.0[index]
    }
}

#[inline]
fn child<T>(place: &AtomicPtr<T>) -> Option<&T> {
    // SAFETY: a node stays as long as the map, which `place` is part of, and only shared references
    // to it are made.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

#[inline]
fn made<T, const N: usize>(place: &AtomicPtr<Node<T, N>>) -> &Node<T, N> {
    child(place).unwrap_or_else(|| make(place))
}

#[cold]
fn make<T, const N: usize>(place: &AtomicPtr<Node<T, N>>) -> &Node<T, N> {
    let layout = Layout::new::<Node<T, N>>();
    // SAFETY: the layout is not empty.
    let Some(node) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    // All zeros are null pointers.
    let node = node.cast::<Node<T, N>>();
    let (set, fail) = (Ordering::AcqRel, Ordering::Acquire);
    let node = match place.compare_exchange(ptr::null_mut(), node.as_ptr(), set, fail) {
        Ok(_) => node.as_ptr(),
        Err(theirs) => {
            // SAFETY: allocated above with that layout, and not published.
            unsafe { dealloc(node.as_ptr().cast(), layout) };
            theirs
        }
    };
    // SAFETY: as in `child`.
    unsafe { &*node }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        fn free<T, const N: usize>(
            place: &mut AtomicPtr<Node<T, N>>,
            each: impl Fn(&mut AtomicPtr<T>),
        ) {
            let node = *place.get_mut();
            if node.is_null() {
                return;
            }
            // SAFETY: the node exists, and the map, its only owner, is being dropped.
            unsafe { &mut *node }.0.iter_mut().for_each(each);
            // SAFETY: `make` allocated it with that layout; it is no longer used.
            unsafe { dealloc(node.cast(), Layout::new::<Node<T, N>>()) };
        }
        free(&mut self.root, |middle| free(middle, |leaf| free(leaf, |_| ())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_address_has_an_entry_of_its_own() {
        let map = Addresses::default();
        let addresses: Vec<usize> = [0x7f12_3450_0000, 0x10_0000, (1 << 48) - (8 << 20)]
            .into_iter()
            .flat_map(|begin| (0..3 << 20).step_by(GRANULE).map(move |at| begin + at))
            .collect();
        assert!(map.get(addresses[0]).is_none());
        let places = addresses.iter().map(|&address| {
            let place = map.make(address).expect("an address");
            assert!(place.load(Ordering::Relaxed).is_null());
            assert!(ptr::eq(place, map.get(address).expect("made")));
            ptr::from_ref(place).addr()
        });
        assert_eq!(places.collect::<BTreeSet<_>>().len(), addresses.len());
        for none in [1, 255, addresses[0] + 8, 1 << 48, usize::MAX] {
            assert!(map.make(none).is_none() && map.get(none).is_none());
        }
    }

    #[test]
    fn neighbours_are_on_different_lines() {
        for step in [256, 512, 4096] {
            let map = Addresses::default();
            let line = |at: usize| ptr::from_ref(map.make(at).expect("an address")).addr() / 128;
            assert!((0..200).all(|number| line(number * step) != line((number + 1) * step)));
        }
    }
}
