//! The index of the pools' slabs: a search while slabs come and go.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::thread;

use super::by_address::index::{Extent, Index};
use crate::explore;

fn slab(number: usize) -> Extent {
    Extent {
        begin: number * 4096,
        end: (number + 1) * 4096,
        each: 4096,
        blocks: NonNull::dangling(),
    }
}

/// Runs `change` while another thread searches for a slab. If the slab stays, it is found;
/// otherwise it is found intact or not at all.
fn while_another_looks(first: &'static [usize], number: usize, stays: bool, change: fn(&Index)) {
    explore(2, move || {
        let index = Arc::new(Index::default());
        first.iter().for_each(|&number| index.insert(slab(number)));
        let reader = {
            let index = index.clone();
            thread::spawn(move || {
                let found = index.find(number * 4096 + 4095);
                assert!(found == Some(slab(number)) || !stays && found.is_none(), "{found:?}");
            })
        };
        change(&index);
        reader.join().unwrap();
    });
}

#[test]
fn a_slab_that_comes_moves_no_other_out_of_sight() {
    while_another_looks(&[4, 6, 8], 6, true, |index| index.insert(slab(2)));
}

/// The table has no more room.
#[test]
fn a_table_that_grows_keeps_all_slabs_in_sight() {
    while_another_looks(&[4, 6], 6, true, |index| index.insert(slab(2)));
}

#[test]
fn a_slab_that_goes_takes_no_other_with_it() {
    while_another_looks(&[2, 4, 6], 4, true, |index| index.remove(slab(2)));
}

#[test]
fn a_slab_that_goes_and_comes_is_whole() {
    while_another_looks(&[2, 4], 2, false, |index| {
        index.remove(slab(2));
        index.insert(slab(2));
    });
}
