//! Who uses a buffer, on which stream, and until when.
//!
//! Every buffer, pinned or device, owns a [`Hazards`]: the asynchronous operations that may still touch
//! it, each a [`Use`] = (stream, position, byte range, read or write). From it follow all the waits of
//! the crate: the host waits before it touches bytes that the device still uses, and a stream waits for
//! another stream's conflicting use. Two uses conflict when their ranges overlap and one of them writes.
//!
//! # Invariants
//!
//! * A use is recorded for **every** operation that may have reached the device, also after an error.
//! * A use leaves the list only when its position is retired. Uses may be merged, but only into one
//!   that covers them all: same stream, same access, the hull of the ranges, and a position whose
//!   completion implies theirs ([`Fence`]). A later position alone is no proof: two threads that fence at
//!   once may get their positions in the other order than their events.
//! * The list is bounded: past [`MERGE_ABOVE`] entries there is at most one a stream and access, and
//!   one more for each thread that fenced at the same moment.
//! * `users` tells, without the lock, whether the list is empty, or of one stream only: an idle buffer
//!   costs one load, and so does one whose uses are all on the stream that asks, which is FIFO.
//!
//! Recording takes `&self`, because two threads may upload from one buffer at once. Conflicting uses
//! cannot race: a writing operation needs `&mut` on its buffer in Rust, and an exclusive borrow of the
//! handle in C.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::Poll;
use crate::error::Result;
use crate::sync::{Mutex, MutexGuard};
use crate::timeline::{Fence, Timeline};

/// How many uses a buffer keeps apart by range before it merges those of one stream.
const MERGE_ABOVE: usize = 16;

/// What an operation does with the bytes it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// An asynchronous operation that may still touch a buffer.
#[derive(Clone)]
pub(crate) struct Use {
    pub(crate) stream: Arc<Timeline>,
    pub(crate) fence: Fence,
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
}

impl Use {
    pub(crate) fn is_retired(&self) -> bool {
        self.stream.is_retired(self.fence.position)
    }

    fn conflicts(&self, range: &Range<usize>, access: Access) -> bool {
        (self.access == Access::Write || access == Access::Write)
            && self.range.start < range.end
            && range.start < self.range.end
    }

    /// Whether the completion of one of the two implies the other's, so that it can stand for both.
    fn can_absorb(&self, other: &Use) -> bool {
        Arc::ptr_eq(&self.stream, &other.stream)
            && self.access == other.access
            && self.fence.covering(other.fence).is_some()
    }

    /// `other` is one that this use [can absorb](Self::can_absorb).
    fn absorb(&mut self, other: Use) {
        self.fence = self.fence.covering(other.fence).expect("checked by the caller");
        self.range = self.range.start.min(other.range.start)..self.range.end.max(other.range.end);
    }
}

/// In place of one stream; no object has this address.
const SEVERAL: *mut Timeline = std::ptr::dangling_mut();

#[derive(Default)]
pub(crate) struct Hazards {
    /// Null while there are no uses; the stream, while all are on one; [`SEVERAL`] otherwise. Only
    /// compared: the uses keep the stream alive.
    users: AtomicPtr<Timeline>,
    uses: Mutex<Vec<Use>>,
}

impl Hazards {
    fn lock(&self) -> MutexGuard<'_, Vec<Use>> {
        self.uses.lock()
    }

    /// Notes an operation. Its conflicts have been waited for, by the host or on the device.
    pub(crate) fn record(&self, new: Use) {
        let stream = Arc::as_ptr(&new.stream).cast_mut();
        let mut uses = self.lock();
        let users = self.users.load(Ordering::Relaxed);
        let users = if users.is_null() || users == stream { stream } else { SEVERAL };
        self.users.store(users, Ordering::Release);
        let twin = uses.iter_mut().find(|old| old.range == new.range && old.can_absorb(&new));
        match twin {
            Some(old) => old.absorb(new),
            None => {
                if uses.len() >= MERGE_ABOVE {
                    uses.retain(|old| !old.is_retired());
                }
                if uses.len() >= MERGE_ABOVE {
                    merge_by_stream(&mut uses);
                }
                uses.push(new);
            }
        }
    }

    /// The pending uses on other streams that work on `stream` must be ordered after.
    pub(crate) fn conflicts(
        &self,
        range: &Range<usize>,
        access: Access,
        stream: &Timeline,
    ) -> Vec<Use> {
        let users = self.users.load(Ordering::Acquire).cast_const();
        if users.is_null() || std::ptr::eq(users, stream) {
            return Vec::new();
        }
        self.lock()
            .iter()
            .filter(|old| {
                old.conflicts(range, access)
                    && !std::ptr::eq(Arc::as_ptr(&old.stream), stream)
                    && !old.is_retired()
            })
            .cloned()
            .collect()
    }

    /// Blocks until the host may access `range`. Waits for every conflicting use before it reports the
    /// first failure (soundness rule 4).
    pub(crate) fn wait(&self, range: &Range<usize>, access: Access) -> Result<()> {
        let result = wait_for_all(&self.pending(range, access));
        self.forget_retired();
        result
    }

    /// Whether the host may access `range` now. Does not block.
    pub(crate) fn poll(&self, range: &Range<usize>, access: Access) -> Result<Poll> {
        let result = poll_all(&self.pending(range, access));
        self.forget_retired();
        result
    }

    fn pending(&self, range: &Range<usize>, access: Access) -> Vec<Use> {
        if self.is_idle() {
            return Vec::new();
        }
        let conflicting = |old: &&Use| old.conflicts(range, access) && !old.is_retired();
        self.lock().iter().filter(conflicting).cloned().collect()
    }

    fn forget_retired(&self) {
        if !self.is_idle() {
            let mut uses = self.lock();
            uses.retain(|old| !old.is_retired());
            if uses.is_empty() {
                self.users.store(std::ptr::null_mut(), Ordering::Release);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.users.load(Ordering::Acquire).is_null()
    }

    /// Everything that is still pending, when the buffer goes away.
    pub(crate) fn take_pending(&mut self) -> Vec<Use> {
        let mut uses = std::mem::take(self.uses.get_mut());
        uses.retain(|old| !old.is_retired());
        uses
    }
}

/// Blocks until every use is complete, and only then reports the first failure.
pub(crate) fn wait_for_all(uses: &[Use]) -> Result<()> {
    let mut result = Ok(());
    for pending in uses {
        let waited = pending.stream.wait(pending.fence.position);
        result = result.and(waited);
    }
    result
}

/// Whether every use is complete; a failure outweighs a use that is pending. Does not block.
pub(crate) fn poll_all(uses: &[Use]) -> Result<Poll> {
    let mut result = Ok(Poll::Done);
    for pending in uses {
        match pending.stream.poll(pending.fence.position) {
            Ok(Poll::Done) => {}
            Ok(Poll::NotReady) => result = result.map(|_| Poll::NotReady),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

fn merge_by_stream(uses: &mut Vec<Use>) {
    let mut merged: Vec<Use> = Vec::new();
    for new in uses.drain(..) {
        match merged.iter_mut().find(|old| old.can_absorb(&new)) {
            Some(old) => old.absorb(new),
            None => merged.push(new),
        }
    }
    *uses = merged;
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use super::*;
    use crate::device::Device;

    fn stream() -> Arc<Timeline> {
        Device::emulated().and_then(|device| device.stream()).expect("no faults").timeline
    }

    fn read(stream: &Arc<Timeline>, position: u64, covers: u64, range: Range<usize>) -> Use {
        let fence = Fence { position, covers };
        Use { stream: stream.clone(), fence, range, access: Access::Read }
    }

    fn positions(hazards: &Hazards) -> Vec<u64> {
        let mut positions: Vec<_> = hazards.lock().iter().map(|u| u.fence.position).collect();
        positions.sort_unstable();
        positions
    }

    /// Two threads have read the buffer, each fenced before it saw the other's position: whoever waits
    /// must wait for both events, for the one with the later position may be the earlier one.
    #[test]
    fn uses_fenced_at_once_are_not_merged() {
        let (hazards, stream) = (Hazards::default(), stream());
        hazards.record(read(&stream, 0, 0, 0..8));
        hazards.record(read(&stream, 1, 0, 0..8));
        assert_eq!(positions(&hazards), [0, 1]);
        hazards.record(read(&stream, 2, 2, 0..8));
        assert_eq!(positions(&hazards), [1, 2], "the third covers the first");

        let hazards = Hazards::default();
        hazards.record(read(&stream, 1, 0, 0..8));
        hazards.record(read(&stream, 0, 0, 0..8));
        assert_eq!(positions(&hazards), [0, 1], "whichever is recorded first");
    }

    #[test]
    fn a_full_list_is_merged_but_for_uses_fenced_at_once() {
        let (hazards, stream, other) = (Hazards::default(), stream(), stream());
        for position in 0..100 {
            let start = position as usize;
            hazards.record(read(&stream, position, position.saturating_sub(1), start..start + 1));
            hazards.record(read(&other, position, position, start..start + 1));
            assert!(hazards.lock().len() <= MERGE_ABOVE + 1);
        }
        let uses = hazards.lock();
        for stream in [&stream, &other] {
            let ours = || uses.iter().filter(|u| Arc::ptr_eq(&u.stream, stream));
            let is_known = |byte: usize| ours().any(|u| u.range.contains(&byte));
            assert!((0..100).all(is_known), "no range is forgotten");
            assert_eq!(ours().map(|u| u.fence.position).max(), Some(99));
        }
    }
}
