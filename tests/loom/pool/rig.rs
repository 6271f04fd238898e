//! A pool of a few blocks, and buffers that detect if two have the same block.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;

use super::books::queue::Waiter;
use super::classes::{PAGE, Size};
use super::core::Core;
use super::keeper::grow::SlabMemory;
use super::keeper::take::{Patience, Waiting};
use super::options::Options;
use super::thread::local;
use crate::context::Context;
use crate::memory::block::BlockRef;
use crate::timeline::Timeline;

const SIZE: Size = Size { bytes: PAGE, align: PAGE };

pub struct Pool {
    core: Arc<Core>,
    context: Arc<Context>,
    blocks: usize,
    /// By the number of the block in the slab.
    contents: Arc<Contents>,
    first: usize,
}

/// The contents of a pool's blocks: how often each was accessed.
struct Contents(Vec<UnsafeCell<u64>>);

// SAFETY: the model checker reports two threads that access one of them at once.
unsafe impl Sync for Contents {}
// SAFETY: as above.
unsafe impl Send for Contents {}

/// A request in the queue; dropping it withdraws it.
pub struct Pending(Waiting);

/// A buffer.
pub struct Buffer {
    block: ManuallyDrop<BlockRef>,
    contents: Arc<Contents>,
    index: usize,
}

impl Pool {
    /// `cached` says whether threads keep blocks.
    pub fn new(blocks: usize, cached: bool) -> Arc<Pool> {
        let context = Arc::new(Context::default());
        let thread_cache_bytes = if cached { blocks * PAGE } else { 0 };
        let max_bytes = blocks * PAGE;
        let options = Options { max_bytes, thread_cache_bytes, watermarks: None };
        let core = Core::new(context.clone(), options);
        let mut books = core.lock();
        assert!(books.store.reserve(blocks * PAGE));
        let memory = SlabMemory(blocks * PAGE);
        let first = memory.ptr().addr().get();
        books.store.add(memory, SIZE, core.as_owner());
        drop(books);
        let contents = Arc::new(Contents((0..blocks).map(|_| UnsafeCell::new(0)).collect()));
        Arc::new(Pool { core, context, blocks, contents, first })
    }

    fn buffer(&self, block: BlockRef) -> Buffer {
        let index = (block.ptr().addr().get() - self.first) / PAGE;
        let buffer =
            Buffer { block: ManuallyDrop::new(block), contents: self.contents.clone(), index };
        assert!(buffer.block.hazards.all_complete(), "a device still uses it");
        buffer.touch();
        buffer
    }

    /// Like `PinnedPool::try_alloc`.
    pub fn try_alloc(&self) -> Option<Buffer> {
        let own = self.core.hit(0);
        let block = own.or_else(|| self.core.take("test", SIZE, Patience::None).ok());
        block.map(|block| self.buffer(block))
    }

    /// Puts a request into the queue.
    pub fn request(&self) -> Pending {
        Pending(
            self.core.enqueue("test", SIZE, false, Waiter::Thread).expect("it fits in the budget"),
        )
    }

    /// The outcome of a request.
    pub fn wait(&self, waiting: &Pending) -> Buffer {
        self.buffer(waiting.0.wait(None).expect("there is no deadline").expect("it is served"))
    }

    /// The keeper's work for a request without room.
    pub fn keep(&self) {
        let mut books = self.core.lock();
        if !books.queue.is_empty() {
            self.core.collect(&mut books);
        }
        self.core.serve(books);
        self.core.retire();
    }

    pub fn collect(&self) {
        let mut books = self.core.lock();
        self.core.collect(&mut books);
        self.core.gate.open();
    }

    /// Drops the last handle.
    pub fn close(&self) {
        self.core.clone().close();
    }

    /// Checks that every block is free and none is lost.
    pub fn assert_complete(&self) {
        self.collect();
        self.core.retire();
        assert_eq!(self.core.lock().store.free_bytes, self.blocks * PAGE);
    }

    /// Drops the pool itself; returns how many bytes have been given back to the system.
    pub fn end(self: Arc<Self>) -> usize {
        let pool = Arc::into_inner(self).expect("the other threads have ended");
        let context = pool.context.clone();
        drop(pool);
        context.released.load(Ordering::Relaxed)
    }
}

/// Does the work of a thread's end, because the model's threads have no destructors.
pub fn end_of_thread() {
    local::end();
}

impl Buffer {
    pub fn touch(&self) {
        // SAFETY: the buffer has its block exclusively; otherwise the model checker reports it.
        self.contents.0[self.index].with_mut(|contents| unsafe { *contents += 1 });
    }

    /// An operation on `stream` uses the buffer until the device is past `position`.
    pub fn used_by(&self, stream: &Arc<Timeline>, position: u64) {
        self.block.hazards.note(stream, position);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        drop(block.give_back());
    }
}
