//! What an asynchronous copy does with pageable memory (rule 4).
//!
//! The documents leave it open. A GPU was seen to read up to 1 MiB at the call, ahead of what the
//! stream has to do first, and to take 16 MiB partly then and partly later. So the order of the
//! stream promises nothing for the bytes of the host. The seed picks a [`Way`].

use super::copies::Plane;
use crate::driver::emulated::host_memory::Access;
use crate::driver::emulated::machine::{Execution, Machine};
use crate::driver::emulated::slots::Key;

/// When the bytes of the host's side are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Before the call returns, in the order of the stream.
    Block,
    /// Read at the call, ahead of earlier work of the stream.
    Stage,
    /// When the copy runs, as from page-locked memory.
    Late,
    /// Some at the call, the rest when the copy runs.
    Torn,
}

impl Machine {
    /// Picks the way of one copy.
    pub(super) fn way_of_pageable(&mut self, key: Key, access: Access, plane: &Plane) -> Way {
        // To the host, the call was only ever seen to block. A write that comes later might hit
        // memory which the program has freed.
        if access == Access::Write {
            return Way::Block;
        }
        let idle = self.streams.get(key).is_some_and(|stream| stream.queue.is_empty());
        if self.execution == Execution::Eager && idle {
            return Way::Late;
        }
        match self.rng.below(4) {
            0 => Way::Late,
            1 => Way::Block,
            2 if plane.width > 1 => Way::Torn,
            _ => Way::Stage,
        }
    }
}
