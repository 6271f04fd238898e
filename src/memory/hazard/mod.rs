//! The uses of a buffer: on which stream, and until when.
//!
//! Every buffer, pinned or device, owns a [`Hazards`]: the asynchronous operations that may still
//! touch it. Each is a [`Use`]: a stream, a position, a byte range, and read or write. All waits of
//! the crate follow from these lists: the host waits before it touches bytes that the device still
//! uses, and a stream waits for conflicting uses of other streams. Two uses conflict if they have a
//! byte in common and one of them writes. A use has all bytes of its range, or [`Rows`] of it.
//!
//! # Invariants
//!
//! * A use is recorded for **every** operation that may have reached the device, also after an
//!   error.
//! * A use leaves the list in one of three ways:
//!   * Its position is complete.
//!   * It is merged into a use that covers it: same stream, same access, the hull of the ranges,
//!     and a position whose completion implies that of both ([`Fence`]). A later position alone is
//!     no proof: two threads that fence at once may get their positions in another order than
//!     their events.
//!   * A write on the same device waited for it and covers its range, without gaps
//!     ([`supersede`](Hazards::supersede)). A use of another device stays: if the writing device
//!     were lost, nothing would show when the other device is done.
//! * A use is dropped without the lock, because it may be the last owner of its stream.
//! * The list is bounded by what is pending: see [`tidy`](Hazards::tidy).
//! * `users` says, without the lock, whether the list is empty or has uses of one stream only. So
//!   an idle buffer costs one load, and so does a buffer that is used on one stream only: that
//!   stream is FIFO.
//!
//! Recording takes `&self`, because two threads may upload from one buffer at once. Conflicting
//! uses cannot race: a writing operation needs `&mut` on its buffer in Rust, and an exclusive
//! borrow of the handle in C.

mod list;
mod rows;
#[cfg(all(test, feature = "emulated"))]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::Poll;
use crate::error::Result;
use crate::sync::{SpinGuard, SpinLock};
use crate::timeline::{Fence, Timeline};
pub(crate) use list::{Access, Use};
use list::{Few, List, TIDY_ABOVE};
pub(crate) use rows::Rows;

/// Stands for more than one stream. No object has this address.
const SEVERAL: *mut Timeline = std::ptr::dangling_mut();

/// Looking at thousands of buffers, and recording their uses, takes as long as their cache lines
/// take to come from another core. So a buffer puts its hazards 8 bytes before the end of a line:
/// `users` shares that line with fields that are only read, and the uses have the next line.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Hazards {
    /// Null while there are no uses; the stream, while all uses are on one; [`SEVERAL`] otherwise.
    /// The pointer is only compared. The uses keep the stream alive.
    users: AtomicPtr<Timeline>,
    uses: SpinLock<List>,
}

impl Hazards {
    fn lock(&self) -> SpinGuard<'_, List> {
        self.uses.lock()
    }

    /// Records an operation. The host or its stream has waited for the uses that conflict with it.
    #[inline]
    pub(crate) fn note(
        &self,
        stream: &Arc<Timeline>,
        fence: Fence,
        range: Range<usize>,
        access: Access,
    ) {
        if range.is_empty() {
            return;
        }
        let mut uses = self.lock();
        let is_alone = self.users.load(Ordering::Relaxed) == Arc::as_ptr(stream).cast_mut();
        if !(is_alone && uses.renew_first(stream, fence, &range, access)) {
            self.note_another(uses, stream, fence, range, access);
        }
    }

    /// As [`note`](Self::note), under the lock.
    #[inline(never)]
    fn note_another<'a>(
        &'a self,
        mut uses: SpinGuard<'a, List>,
        stream: &Arc<Timeline>,
        fence: Fence,
        range: Range<usize>,
        access: Access,
    ) {
        let gone = uses.take_retired_first();
        self.count_user(stream, &uses);
        if !uses.absorb(stream, fence, &range, access) {
            if uses.is_long() {
                drop(uses);
                self.tidy();
                uses = self.lock();
                self.count_user(stream, &uses);
            }
            let stream = Arc::clone(stream);
            uses.push(Use { stream, fence, range, access });
        }
        drop(uses);
        drop(gone);
    }

    /// As [`note`](Self::note), of an operation that uses only these rows of `range`.
    #[cold]
    pub(crate) fn note_rows(
        &self,
        stream: &Arc<Timeline>,
        fence: Fence,
        range: &Range<usize>,
        rows: &Rows,
        access: Access,
    ) {
        debug_assert_eq!(range.len(), rows.span().cast_unsigned());
        let new = Use { stream: Arc::clone(stream), fence, range: range.clone(), access };
        if self.lock().is_long() {
            self.tidy();
        }
        let mut uses = self.lock();
        self.count_user(stream, &uses);
        if !uses.absorb_rows(&new, rows) {
            uses.push_rows(new, *rows);
        }
    }

    /// Makes the list as short as what is pending. Forgets what is known to be complete, and merges
    /// the uses of each stream. If many streams are left, it queries each of them once. So streams
    /// that no caller waits for are forgotten too, and dropped streams end.
    #[cold]
    fn tidy(&self) {
        self.forget(Use::is_retired);
        let mut uses = self.lock();
        uses.merge();
        if uses.len() > TIDY_ABOVE / 2 {
            let asked: Vec<Use> = uses.iter().cloned().collect();
            drop(uses);
            asked.iter().for_each(|user| user.stream.look(user.fence.position));
            self.forget(Use::is_complete);
            drop(asked);
            uses = self.lock();
        }
        uses.fill_gaps();
        uses.finish_tidying();
    }

    /// Forgets the uses that lie in `range` and are on other streams of the same device. The caller
    /// has recorded a write of `range` on `stream`, and that stream waited for those uses first. So
    /// whatever conflicts with them conflicts with the write.
    #[inline]
    pub(crate) fn supersede(&self, stream: &Arc<Timeline>, range: &Range<usize>) {
        if self.users.load(Ordering::Relaxed) == SEVERAL {
            self.supersede_others(stream, range);
        }
    }

    #[inline(never)]
    fn supersede_others(&self, stream: &Arc<Timeline>, range: &Range<usize>) {
        let elsewhere =
            |old: &Use| !old.is_on(stream) && old.stream.raw().device == stream.raw().device;
        let covered = |old: &Use| range.start <= old.range.start && old.range.end <= range.end;
        self.forget(|old| elsewhere(old) && covered(old));
        self.count_user(stream, &self.lock());
    }

    /// Called under the lock, which guards `uses`. `stream` has a use among them, or is about to.
    fn count_user(&self, stream: &Arc<Timeline>, uses: &List) {
        let pointer = Arc::as_ptr(stream).cast_mut();
        if self.users.load(Ordering::Relaxed) != pointer {
            let alone = uses.iter().all(|old| old.is_on(stream));
            self.users.store(if alone { pointer } else { SEVERAL }, Ordering::Release);
        }
    }

    /// The pending uses on other streams that work on `stream` must wait for. There are none unless
    /// the buffer [is used elsewhere](Self::is_used_elsewhere).
    pub(crate) fn conflicts(
        &self,
        range: &Range<usize>,
        rows: Option<&Rows>,
        access: Access,
        stream: &Timeline,
    ) -> Few {
        let mut pending = Few::default();
        let uses = self.lock();
        let elsewhere = uses.conflicts(range, rows, access).filter(|old| !old.is_on(stream));
        elsewhere.for_each(|old| pending.absorb_or_push(old));
        if uses.has_rows() {
            let of_rows = uses.conflicts_of_rows(range, rows, access);
            let elsewhere = of_rows.filter(|old| !old.is_on(stream));
            elsewhere.for_each(|old| pending.absorb_or_push(old));
        }
        let few = uses.len() <= TIDY_ABOVE;
        drop(uses);
        if few && pending.is_empty() {
            // If the stream is alone in using the buffer, it need not check again.
            self.forget(Use::is_retired);
        }
        pending
    }

    /// Blocks until the uses on other streams that work on `stream` must wait for are complete.
    /// Only then reports the first failure.
    pub(crate) fn wait_elsewhere(
        &self,
        range: &Range<usize>,
        rows: Option<&Rows>,
        access: Access,
        stream: &Timeline,
        operation: &'static str,
    ) -> Result<()> {
        wait_for_all(&self.conflicts(range, rows, access, stream), operation)
    }

    /// Blocks until the host may access `range`. Waits for every conflicting use before it reports
    /// the first failure (soundness rule 4). `operation` is the call that waits.
    pub(crate) fn wait(
        &self,
        range: &Range<usize>,
        access: Access,
        operation: &'static str,
    ) -> Result<()> {
        if self.is_idle() {
            return Ok(());
        }
        let result = wait_for_all(&self.pending(range, access), operation);
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

    /// The uses that an access to `range` would have to wait for. Makes no driver call.
    pub(crate) fn pending(&self, range: &Range<usize>, access: Access) -> Few {
        let mut pending = Few::default();
        let uses = self.lock();
        uses.conflicts(range, None, access).for_each(|old| pending.absorb_or_push(old));
        if uses.has_rows() {
            let of_rows = uses.conflicts_of_rows(range, None, access);
            of_rows.for_each(|old| pending.absorb_or_push(old));
        }
        drop(uses);
        pending
    }

    /// Whether no uses are recorded. A recorded use may be complete already. One load.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.users.load(Ordering::Acquire).is_null()
    }

    /// Whether there may be uses on other streams than this one. One load.
    pub(crate) fn is_used_elsewhere(&self, stream: &Timeline) -> bool {
        let users = self.users.load(Ordering::Acquire).cast_const();
        !users.is_null() && !std::ptr::eq(users, stream)
    }

    /// As [`end_complete`](Self::end_complete). Drops what it removes: the caller holds the
    /// streams, or nothing that their ends may need.
    #[inline]
    pub(crate) fn all_complete(&self) -> bool {
        self.end_complete().0
    }

    /// Whether all uses are known to be complete. Removes the complete ones from the list, and
    /// returns them: a stream may end when they are dropped. Makes no driver call.
    #[inline]
    pub(crate) fn end_complete(&self) -> (bool, Few) {
        let ended = if self.is_idle() { Few::default() } else { self.forget(Use::is_complete) };
        (self.is_idle(), ended)
    }

    /// The stream of any one use, complete or not. `None` if there are no uses. Makes no driver
    /// call.
    pub(crate) fn a_stream(&self) -> Option<Arc<Timeline>> {
        if self.is_idle() {
            return None;
        }
        self.lock().iter().next().map(|old| Arc::clone(&old.stream))
    }

    /// Calls `with` for the stream of each use, complete or not, under the lock.
    pub(crate) fn for_streams(&self, mut with: impl FnMut(&Arc<Timeline>)) {
        self.lock().iter().for_each(|old| with(&old.stream));
    }

    /// A stream with a use that is not known to be complete. Makes no driver call.
    pub(crate) fn first_pending_stream(&self) -> Option<Arc<Timeline>> {
        if self.is_idle() {
            return None;
        }
        self.lock().iter().find(|old| !old.is_complete()).map(|old| Arc::clone(&old.stream))
    }

    /// Removes the uses for which `is_gone` is true, and returns them, to be dropped without the
    /// lock. The list keeps its memory.
    fn forget(&self, is_gone: impl Fn(&Use) -> bool) -> Few {
        let mut uses = self.lock();
        let gone = uses.extract(is_gone);
        if uses.is_empty() {
            self.users.store(std::ptr::null_mut(), Ordering::Release);
        }
        gone
    }

    /// All uses that are still pending, when the buffer goes away.
    pub(crate) fn take_pending(&mut self) -> Vec<Use> {
        self.users = AtomicPtr::default();
        let uses = std::mem::take(self.uses.get_mut());
        uses.iter().filter(|old| !old.is_retired()).cloned().collect()
    }
}

/// Blocks until every use is complete. Only then reports the first failure.
fn wait_for_all(uses: &Few, operation: &'static str) -> Result<()> {
    let mut result = Ok(());
    for pending in uses.iter() {
        let waited = pending.stream.wait(pending.fence.position, operation);
        result = result.and(waited);
    }
    result
}

/// Whether every use is complete. A failure counts more than a pending use. Does not block.
fn poll_all(uses: &Few) -> Result<Poll> {
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
