//! The object of a buffer's handle.
//!
//! Most buffers own their memory, and no graph lends them. What others have besides is behind one
//! pointer, so that an ordinary buffer is made and dropped without it.

use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use super::{kept, only_read};
use crate::error::Result;
use crate::memory::{Lent, PinnedBuf, Purpose};
use crate::sync::Mutex;

/// What the graphs that lend a buffer share: the buffer's memory, once it has been freed.
#[derive(Default)]
pub struct Kept(Mutex<Option<PinnedBuf<u8>>>);

/// The object of a buffer's handle. When it drops, the memory passes to the graphs that keep it, if
/// there are any.
pub struct HostBuffer {
    /// Taken by `drop` and `into_buffer` only.
    buffer: ManuallyDrop<PinnedBuf<u8>>,
    /// Dropped by `drop` and `into_buffer` only.
    rare: ManuallyDrop<OnceLock<Box<Rare>>>,
}

/// What few buffers have.
struct Rare {
    purpose: Purpose,
    /// Ends the loan, if the memory belongs to the caller.
    lent: Option<Lent>,
    /// Shared with the graphs that lend the buffer.
    kept: Arc<Kept>,
}

impl Rare {
    fn new(purpose: Purpose, lent: Option<Lent>) -> Box<Self> {
        Box::new(Rare { purpose, lent, kept: Arc::default() })
    }
}

impl HostBuffer {
    /// A buffer that owns its memory.
    #[inline(always)]
    pub(in crate::capi) fn new(buffer: PinnedBuf<u8>) -> Self {
        let rare = ManuallyDrop::new(OnceLock::new());
        HostBuffer { buffer: ManuallyDrop::new(buffer), rare }
    }

    /// A buffer that owns its memory, which is only read.
    pub(in crate::capi) fn to_read(buffer: PinnedBuf<u8>) -> Self {
        HostBuffer::with(buffer, Rare::new(Purpose::ToRead, None))
    }

    /// A buffer of the caller's memory.
    pub(super) fn lent_for(purpose: Purpose, buffer: PinnedBuf<u8>, lent: Lent) -> Self {
        HostBuffer::with(buffer, Rare::new(purpose, Some(lent)))
    }

    fn with(buffer: PinnedBuf<u8>, rare: Box<Rare>) -> Self {
        let rare = ManuallyDrop::new(OnceLock::from(rare));
        HostBuffer { buffer: ManuallyDrop::new(buffer), rare }
    }

    /// The buffer, to be read.
    #[inline(always)]
    pub(in crate::capi) fn buffer(&self) -> &PinnedBuf<u8> {
        &self.buffer
    }

    /// The buffer, to be written, by the host or a device. Fails for memory that is only read.
    #[inline(always)]
    pub(in crate::capi) fn writable(&mut self) -> Result<&mut PinnedBuf<u8>> {
        match self.rare.get() {
            Some(rare) if rare.purpose == Purpose::ToRead => Err(only_read()),
            _ => Ok(&mut self.buffer),
        }
    }

    /// The buffer, for work of the caller: what that does is the caller's to say.
    pub(in crate::capi) fn tracked(&mut self) -> &mut PinnedBuf<u8> {
        &mut self.buffer
    }

    /// What ends the loan, if the memory belongs to the caller.
    pub(in crate::capi) fn lent(&self) -> Option<&Lent> {
        self.rare.get()?.lent.as_ref()
    }

    /// The buffer without its handle. Check with [`check_free`](Self::check_free) before.
    pub(in crate::capi) fn into_buffer(self) -> PinnedBuf<u8> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: dropped once: `drop` does not run.
        unsafe { ManuallyDrop::drop(&mut this.rare) };
        // SAFETY: taken once, as above.
        unsafe { ManuallyDrop::take(&mut this.buffer) }
    }

    /// Keeps the memory until the result drops, for a graph that lends the buffer, even if the
    /// buffer is freed meanwhile.
    pub(in crate::capi) fn keep(&self) -> Arc<Kept> {
        Arc::clone(&self.rare.get_or_init(|| Rare::new(Purpose::Any, None)).kept)
    }

    /// Fails if a graph that has lent the buffer has its address, so that the memory cannot leave.
    pub(in crate::capi) fn check_free(&self) -> Result<()> {
        match self.rare.get() {
            Some(rare) if Arc::strong_count(&rare.kept) > 1 => Err(kept()),
            _ => Ok(()),
        }
    }

    /// Drops a buffer that has more than its memory.
    ///
    /// # Safety
    ///
    /// * The buffer is not used afterwards.
    #[cold]
    unsafe fn drop_with(&mut self) {
        // SAFETY: both are taken once, by the precondition.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        // SAFETY: as above.
        let rare = unsafe { ManuallyDrop::take(&mut self.rare) }.into_inner();
        if let Some(rare) = rare {
            let Rare { kept, lent, .. } = *rare;
            *kept.0.lock() = Some(buffer);
            drop(kept); // and the memory, unless a graph keeps it
            drop(lent);
        }
    }

    /// As `drop`, inlined.
    ///
    /// # Safety
    ///
    /// * The buffer is not used afterwards.
    #[inline(always)]
    pub(super) unsafe fn drop_inlined(&mut self) {
        if self.rare.get_mut().is_some() {
            // SAFETY: the same precondition.
            unsafe { self.drop_with() }
        } else {
            // SAFETY: the precondition. In place, because moving it would wait for its memory.
            unsafe { ManuallyDrop::drop(&mut self.buffer) }
        }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: not used afterwards.
        unsafe { self.drop_inlined() }
    }
}
