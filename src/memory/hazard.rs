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
//! * A use leaves the list only when its position is complete, and is dropped without the lock: it may
//!   be the last owner of its stream. Uses may be merged, but only into one that covers them all: same
//!   stream, same access, the hull of the ranges, and a position whose
//!   completion implies theirs ([`Fence`]). A later position alone is no proof: two threads that fence at
//!   once may get their positions in the other order than their events.
//! * Or when a write that waited for it covers its range ([`supersede`](Hazards::supersede)).
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

    fn is_complete(&self) -> bool {
        self.stream.is_complete(self.fence.position)
    }

    fn conflicts(&self, range: &Range<usize>, access: Access) -> bool {
        (self.access == Access::Write || access == Access::Write)
            && self.range.start < range.end
            && range.start < self.range.end
    }

    /// Makes this use stand for another one too, if it is of the same stream and access and the completion
    /// of one of the two implies the other's.
    fn absorb(
        &mut self,
        stream: &Timeline,
        fence: Fence,
        range: &Range<usize>,
        access: Access,
    ) -> bool {
        if self.access != access || !std::ptr::eq(Arc::as_ptr(&self.stream), stream) {
            return false;
        }
        let Some(covering) = self.fence.covering(fence) else { return false };
        self.fence = covering;
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
        true
    }
}

/// Some uses, which stand for all that they absorbed; those of up to four streams take no memory.
#[derive(Default)]
pub(crate) struct Pending {
    few: [Option<Use>; 4],
    more: Vec<Use>,
}

impl Pending {
    fn add(&mut self, new: &Use) {
        for place in &mut self.few {
            let Some(old) = place else {
                *place = Some(new.clone());
                return;
            };
            if old.absorb(&new.stream, new.fence, &new.range, new.access) {
                return;
            }
        }
        self.more.push(new.clone());
    }

    fn is_empty(&self) -> bool {
        self.few[0].is_none()
    }

    fn of<'u>(uses: impl Iterator<Item = &'u Use>) -> Self {
        let mut all = Pending::default();
        uses.for_each(|new| all.add(new));
        all
    }

    fn iter(&self) -> impl Iterator<Item = &Use> {
        self.few.iter().flatten().chain(&self.more)
    }
}

impl IntoIterator for Pending {
    type Item = Use;
    type IntoIter = std::iter::Chain<
        std::iter::Flatten<std::array::IntoIter<Option<Use>, 4>>,
        std::vec::IntoIter<Use>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.few.into_iter().flatten().chain(self.more)
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
    pub(crate) fn note(
        &self,
        stream: &Arc<Timeline>,
        fence: Fence,
        range: &Range<usize>,
        access: Access,
    ) {
        if range.is_empty() {
            return;
        }
        let mut uses = self.lock();
        self.count_user(stream, &uses);
        let twin = |old: &mut Use| old.range == *range && old.absorb(stream, fence, range, access);
        if uses.iter_mut().any(twin) {
            return;
        }
        if uses.len() >= MERGE_ABOVE {
            drop(uses);
            self.forget(Use::is_retired);
            uses = self.lock();
            self.count_user(stream, &uses);
            if uses.len() >= MERGE_ABOVE {
                merge_by_stream(&mut uses);
            }
        }
        let stream = Arc::clone(stream);
        uses.push(Use { stream, fence, range: range.clone(), access });
    }

    /// Forgets the uses on other streams that lie in `range`. A write of it on `stream` has been noted whose
    /// fence lies behind a wait for them: whoever conflicts with them conflicts with it.
    pub(crate) fn supersede(&self, stream: &Arc<Timeline>, range: &Range<usize>) {
        if self.users.load(Ordering::Relaxed) != SEVERAL {
            return;
        }
        let elsewhere = |old: &Use| !Arc::ptr_eq(&old.stream, stream);
        let covered = |old: &Use| range.start <= old.range.start && old.range.end <= range.end;
        self.forget(|old| elsewhere(old) && covered(old));
        self.count_user(stream, &self.lock());
    }

    /// Under the lock; `uses` are what it guards, and `stream` is one of them or about to be.
    fn count_user(&self, stream: &Arc<Timeline>, uses: &[Use]) {
        let pointer = Arc::as_ptr(stream).cast_mut();
        if self.users.load(Ordering::Relaxed) != pointer {
            let alone = uses.iter().all(|old| Arc::ptr_eq(&old.stream, stream));
            self.users.store(if alone { pointer } else { SEVERAL }, Ordering::Release);
        }
    }

    /// The pending uses on other streams that work on `stream` must be ordered after: none, unless the buffer
    /// [is used elsewhere](Self::is_used_elsewhere).
    pub(crate) fn conflicts(
        &self,
        range: &Range<usize>,
        access: Access,
        stream: &Timeline,
    ) -> Pending {
        let pending = Pending::of(self.lock().iter().filter(|old| {
            old.conflicts(range, access)
                && !std::ptr::eq(Arc::as_ptr(&old.stream), stream)
                && !old.is_retired()
        }));
        if pending.is_empty() {
            // So that one that is alone in using it need not ask again.
            self.forget(Use::is_retired);
        }
        pending
    }

    /// Blocks until every use on other streams is complete that work on `stream` must be ordered after, and only then
    /// reports the first failure.
    pub(crate) fn wait_elsewhere(
        &self,
        range: &Range<usize>,
        access: Access,
        stream: &Timeline,
    ) -> Result<()> {
        wait_for_all(&self.conflicts(range, access, stream))
    }

    /// Blocks until the host may access `range`. Waits for every conflicting use before it reports the
    /// first failure (soundness rule 4).
    pub(crate) fn wait(&self, range: &Range<usize>, access: Access) -> Result<()> {
        if self.is_idle() {
            return Ok(());
        }
        let result = wait_for_all(&self.pending(range, access));
        self.forget(Use::is_retired);
        result
    }

    /// Whether the host may access `range` now. Does not block.
    pub(crate) fn poll(&self, range: &Range<usize>, access: Access) -> Result<Poll> {
        if self.is_idle() {
            return Ok(Poll::Done);
        }
        let result = poll_all(&self.pending(range, access));
        self.forget(Use::is_retired);
        result
    }

    /// The uses that `range` would have to wait for. Makes no driver call.
    pub(crate) fn pending(&self, range: &Range<usize>, access: Access) -> Pending {
        let conflicting = |old: &&Use| old.conflicts(range, access) && !old.is_retired();
        Pending::of(self.lock().iter().filter(conflicting))
    }

    /// Whether there are no uses, as far as is known without looking. One load.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.users.load(Ordering::Acquire).is_null()
    }

    /// Whether there may be uses on other streams than this one. One load.
    pub(crate) fn is_used_elsewhere(&self, stream: &Timeline) -> bool {
        let users = self.users.load(Ordering::Acquire).cast_const();
        !users.is_null() && !std::ptr::eq(users, stream)
    }

    /// Whether all uses are known to be complete; those that are leave the list. Makes no driver call.
    #[inline]
    pub(crate) fn all_complete(&self) -> bool {
        if !self.is_idle() {
            self.forget(Use::is_complete);
        }
        self.is_idle()
    }

    /// The stream of some use, complete or not; `None` if there are no uses. Makes no driver call.
    pub(crate) fn a_stream(&self) -> Option<Arc<Timeline>> {
        if self.is_idle() {
            return None;
        }
        self.lock().first().map(|old| Arc::clone(&old.stream))
    }

    /// A stream with a use that is not known to be complete. Makes no driver call.
    pub(crate) fn first_pending_stream(&self) -> Option<Arc<Timeline>> {
        if self.is_idle() {
            return None;
        }
        self.lock().iter().find(|old| !old.is_complete()).map(|old| Arc::clone(&old.stream))
    }

    /// Drops the uses that `is_gone` names, a few at a time so that it takes no allocation; the list keeps
    /// its capacity.
    fn forget(&self, is_gone: impl Fn(&Use) -> bool) {
        loop {
            let mut gone = <[Option<Use>; 4]>::default();
            let mut uses = self.lock();
            // The place comes first: once all are taken, no further use leaves the list.
            for (place, old) in gone.iter_mut().zip(uses.extract_if(.., |old| is_gone(old))) {
                *place = Some(old);
            }
            if uses.is_empty() {
                self.users.store(std::ptr::null_mut(), Ordering::Release);
            }
            drop(uses);
            if gone.last().is_none_or(Option::is_none) {
                return;
            }
        }
    }

    /// Everything that is still pending, when the buffer goes away.
    pub(crate) fn take_pending(&mut self) -> Vec<Use> {
        let mut uses = std::mem::take(self.uses.get_mut());
        self.users = AtomicPtr::default();
        uses.retain(|old| !old.is_retired());
        uses
    }
}

/// Blocks until every use is complete, and only then reports the first failure.
fn wait_for_all(uses: &Pending) -> Result<()> {
    let mut result = Ok(());
    for pending in uses.iter() {
        let waited = pending.stream.wait(pending.fence.position);
        result = result.and(waited);
    }
    result
}

/// Whether every use is complete; a failure outweighs a use that is pending. Does not block.
fn poll_all(uses: &Pending) -> Result<Poll> {
    let mut result = Ok(Poll::Done);
    for pending in uses.iter() {
        match pending.stream.poll(pending.fence.position) {
            Ok(Poll::Done) => {}
            Ok(Poll::NotReady) => result = result.map(|_| Poll::NotReady),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

fn merge_by_stream(uses: &mut Vec<Use>) {
    let mut merged = 0;
    for next in 0..uses.len() {
        let (old, new) = uses.split_at_mut(next);
        let new = &new[0];
        let twin = |old: &mut Use| old.absorb(&new.stream, new.fence, &new.range, new.access);
        if !old[..merged].iter_mut().any(twin) {
            uses.swap(merged, next);
            merged += 1;
        }
    }
    // Each has been absorbed by a use that keeps its stream alive.
    uses.truncate(merged);
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use super::*;
    use crate::device::Device;

    fn stream() -> Arc<Timeline> {
        Device::emulated().and_then(|device| device.stream()).expect("no faults").timeline
    }

    fn read(
        hazards: &Hazards,
        stream: &Arc<Timeline>,
        position: u64,
        covers: u64,
        range: Range<usize>,
    ) {
        hazards.note(stream, Fence { position, covers }, &range, Access::Read);
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
        read(&hazards, &stream, 0, 0, 0..8);
        read(&hazards, &stream, 1, 0, 0..8);
        assert_eq!(positions(&hazards), [0, 1]);
        read(&hazards, &stream, 2, 2, 0..8);
        assert_eq!(positions(&hazards), [1, 2], "the third covers the first");

        let hazards = Hazards::default();
        read(&hazards, &stream, 1, 0, 0..8);
        read(&hazards, &stream, 0, 0, 0..8);
        assert_eq!(positions(&hazards), [0, 1], "whichever is recorded first");
    }

    #[test]
    fn a_full_list_is_merged_but_for_uses_fenced_at_once() {
        let (hazards, stream, other) = (Hazards::default(), stream(), stream());
        for position in 0..100 {
            let start = position as usize;
            read(&hazards, &stream, position, position.saturating_sub(1), start..start + 1);
            read(&hazards, &other, position, position, start..start + 1);
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

    /// As the pool uses it: the same list for one buffer after another.
    #[test]
    fn a_list_is_idle_again_when_all_is_complete() {
        let (hazards, stream, other) = (Hazards::default(), stream(), stream());
        assert!(hazards.is_idle() && hazards.all_complete());
        assert!(hazards.a_stream().is_none() && hazards.first_pending_stream().is_none());
        for _ in 0..3 {
            for (at, stream) in [&stream, &other, &stream].into_iter().enumerate() {
                let submission = stream.submit("test", |_, _| Ok(())).expect("no faults");
                hazards.note(stream, submission.fence, &(at..at + 1), Access::Write);
            }
            assert!(!hazards.is_idle() && !hazards.all_complete());
            stream.advance().expect("no faults");
            assert!(!hazards.all_complete());
            let pending = hazards.first_pending_stream().expect("one is");
            assert!(Arc::ptr_eq(&pending, &other));
            assert_eq!(positions(&hazards).len(), 1);
            other.advance().expect("no faults");
            assert!(hazards.all_complete() && hazards.is_idle());
            assert!(hazards.lock().capacity() > 0, "kept");
        }
    }

    #[test]
    fn no_bytes_are_no_use() {
        let (hazards, stream) = (Hazards::default(), stream());
        read(&hazards, &stream, 0, 0, 4..4);
        assert!(hazards.is_idle());
    }
}
