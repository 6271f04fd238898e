//! What an asynchronous copy does with pageable memory (rule 4).
//!
//! The documents leave it open. GPUs were seen to read up to 1 MiB at the call, ahead of what the
//! stream has to do first; to take 16 MiB partly then and partly later; and to block on the way to
//! the host. So the order of the stream promises nothing for the bytes of the host. The seed
//! picks a [`Way`]; an eager machine does as GPUs were seen to do:
//!
//! | way | to the device | to the host |
//! |---|---|---|
//! | block | the call returns when the stream is done with it | the same |
//! | stage | the bytes are taken at the call | - |
//! | torn | half of them are taken at the call, the others late | - |
//! | late | as from page-locked memory | as to page-locked memory |
//!
//! A machine that [stages](crate::Builder::stage_pageable) stages every upload and blocks for every
//! download, as a promise.
//!
//! A program that relies on one of them goes wrong with some seed. A stalled stream stalls a call
//! that blocks.
//!
//! Pageable memory may be gone when a copy that is late gets to it: a program may free it too
//! early. So the system is asked to read it: that fails where a load would crash.

use crate::machine::Machine;
use crate::memory::host::{Access, HostUse};
use crate::memory::look::{Look, look};
use crate::schedule::About;
use crate::words::slots::Key;

/// GPUs were seen to read this many bytes at the call.
const AT_ONCE: usize = 1 << 20;

/// When the bytes of the host's side are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Block,
    Stage,
    Torn,
    Late,
}

impl Machine {
    /// The way of the next asynchronous copy of pageable memory on a stream, in lines of `width`
    /// bytes.
    pub(crate) fn pick_way(&self, key: Key, host: &HostUse, width: usize) -> Way {
        if host.access == Access::Write {
            // A late copy can see that the memory is still its own only if nothing else may write
            // there.
            let is_alone = self.is_settled(host) && !self.is_to_be_written(host);
            let is_late = self.takes_liberty_on(key, 2) && is_alone;
            return if is_late { Way::Late } else { Way::Block };
        }
        if self.schedule.is_eager() {
            return if width <= AT_ONCE { Way::Stage } else { Way::Torn };
        }
        match self.draw(key, About::Way).below(4) {
            0 => Way::Late,
            1 => Way::Stage,
            2 if width > 1 => Way::Torn,
            _ => Way::Block,
        }
    }
}

/// Reads pageable memory into `target`, as far as it is there. False if some of it is not.
pub(crate) fn read(host: &HostUse, target: &mut [u8]) -> bool {
    match look(host.ptr.address(), target) {
        Look::Read => true,
        Look::Gone => false,
        Look::Forbidden => {
            // Then a program that frees too early crashes.
            // SAFETY: the caller of the copy keeps the range valid.
            unsafe { std::ptr::copy_nonoverlapping(host.ptr.0, target.as_mut_ptr(), host.bytes) };
            true
        }
    }
}
