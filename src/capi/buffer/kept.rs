//! The memory of a buffer that a graph lends: if the buffer is freed meanwhile, the memory stays
//! until no graph has its address.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use crate::memory::PinnedBuf;
use crate::sync::Mutex;

/// What the graphs that lend a buffer share: the buffer's memory, once it has been freed.
#[derive(Default)]
pub struct Kept(Mutex<Option<PinnedBuf<u8>>>);

/// The memory of a buffer. When this drops, it passes to the graphs that keep it, if there are any.
pub struct Keepable {
    /// Taken by `drop` and `into_inner` only.
    buffer: ManuallyDrop<PinnedBuf<u8>>,
    kept: OnceLock<Arc<Kept>>,
}

impl Keepable {
    #[inline(always)]
    pub(super) fn new(buffer: PinnedBuf<u8>) -> Self {
        Keepable { buffer: ManuallyDrop::new(buffer), kept: OnceLock::new() }
    }

    /// Keeps the memory until the result drops.
    pub(super) fn keep(&self) -> Arc<Kept> {
        Arc::clone(self.kept.get_or_init(Arc::default))
    }

    /// Whether a graph keeps the memory.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.get().is_some_and(|kept| Arc::strong_count(kept) > 1)
    }

    /// The memory alone. No graph keeps it.
    pub(super) fn into_inner(self) -> PinnedBuf<u8> {
        let mut this = ManuallyDrop::new(self);
        drop(this.kept.take());
        // SAFETY: taken once: `drop` does not run.
        unsafe { ManuallyDrop::take(&mut this.buffer) }
    }
}

impl Drop for Keepable {
    #[inline(always)]
    fn drop(&mut self) {
        match self.kept.take() {
            // SAFETY: not used afterwards. In place, because moving it would wait for its memory.
            None => unsafe { ManuallyDrop::drop(&mut self.buffer) },
            // SAFETY: not used afterwards.
            Some(kept) => *kept.0.lock() = Some(unsafe { ManuallyDrop::take(&mut self.buffer) }),
        }
    }
}

impl Deref for Keepable {
    type Target = PinnedBuf<u8>;

    #[inline(always)]
    fn deref(&self) -> &PinnedBuf<u8> {
        &self.buffer
    }
}

impl DerefMut for Keepable {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut PinnedBuf<u8> {
        &mut self.buffer
    }
}
