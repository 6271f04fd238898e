//! What the program may do to pages of its view of a block ([`Area`]).

use std::ops::Range;

use crate::memory::area::{Area, OPEN};

pub(super) use crate::memory::area::PAGE;

/// What the program may do to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    All,
    Read,
    None,
}

/// Sets what the program may do to the pages that overlap the range.
pub(super) fn protect(area: &Area, range: Range<usize>, access: Access) {
    let protection = match access {
        Access::All => OPEN,
        Access::Read => libc::PROT_READ,
        Access::None => libc::PROT_NONE,
    };
    let done = area.protect(range, protection);
    // The system may refuse more mappings. Then the pages stay open and some accesses are missed.
    // That is safe as long as pages can be opened, which needs no new mappings.
    debug_assert!(done || access != Access::All, "pages cannot be opened");
}

/// Opens all pages of a view that no machine watches any more. False if they are not mapped: a
/// pool's pages are not mapped in a forked child.
pub(super) fn open_all(start: usize, bytes: usize) -> bool {
    let at = std::ptr::without_provenance_mut(start);
    // SAFETY: the mapping is a view's, or is not there: a view is taken off the list before it is
    // unmapped.
    unsafe { libc::mprotect(at, bytes, OPEN) == 0 }
}
