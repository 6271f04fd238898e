//! Memory by address: the functions that the allocators for C and for collections call.

use std::ptr::NonNull;

use crate::error::Result;
#[cfg(feature = "capi")]
use crate::memory::PinnedBuf;
use crate::pool::classes::class_of;
use crate::pool::keeper::take::Patience;
use crate::pool::{PinnedPool, errors};

impl PinnedPool {
    /// Allocates at least `bytes` bytes, initialised and aligned to `align`: a power of two, at
    /// most 2 MiB. The returned length is that of the block. Blocks as [`alloc`](Self::alloc).
    ///
    /// The memory is the caller's until [`deallocate_raw`](Self::deallocate_raw), or forever.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc); [`InvalidValue`](crate::ErrorKind::InvalidValue) for another
    /// `align`.
    #[inline]
    pub(crate) fn allocate_raw(
        &self,
        operation: &'static str,
        bytes: usize,
        align: usize,
    ) -> Result<NonNull<[u8]>> {
        self.allocate_by(operation, bytes, align, Patience::Devices)
    }

    /// As [`allocate_raw`](Self::allocate_raw), with another patience, and its errors. Inlined,
    /// because the result would be returned in memory.
    #[inline(always)]
    pub(crate) fn allocate_by(
        &self,
        operation: &'static str,
        bytes: usize,
        align: usize,
        patience: Patience,
    ) -> Result<NonNull<[u8]>> {
        if !align.is_power_of_two() {
            return Err(errors::bad_alignment(operation, align));
        }
        let bytes = bytes.max(1);
        let block = match class_of(bytes, align).and_then(|class| self.handle.core.hit(class)) {
            Some(block) => block,
            None => self.alloc_slow(operation, bytes, align, patience)?,
        };
        let memory = NonNull::slice_from_raw_parts(block.ptr(), block.bytes());
        self.handle.table.insert(block);
        Ok(memory)
    }

    /// Takes back what [`allocate_raw`](Self::allocate_raw) gave; null is fine. Does not block. The
    /// memory may be allocated again at once, or when all its recorded uses are complete, including
    /// one that is being recorded.
    ///
    /// # Errors
    ///
    /// [`InvalidHandle`](crate::ErrorKind::InvalidHandle) for memory that this pool has not given,
    /// or has taken back; [`InvalidValue`](crate::ErrorKind::InvalidValue) for an address inside an
    /// allocation; [`ForkedProcess`](crate::ErrorKind::ForkedProcess).
    #[inline]
    pub(crate) fn deallocate_raw(&self, operation: &'static str, memory: *const u8) -> Result<()> {
        if memory.is_null() {
            return Ok(());
        }
        self.handle.core.context.check_process(operation)?;
        drop(self.handle.table.remove(operation, memory.addr())?);
        Ok(())
    }

    /// The size of the block at `memory`; `None` if there is none, or in a forked child.
    #[cfg(feature = "allocator-api2")]
    pub(crate) fn raw_bytes(&self, memory: *const u8) -> Option<usize> {
        self.handle.core.context.check_process("PinnedPool::raw_bytes").ok()?;
        self.handle.table.bytes_at(memory.addr())
    }

    /// Runs `work` on the buffer that `memory`, an address anywhere in an allocation, belongs to.
    ///
    /// # Errors
    ///
    /// Those of `work`; [`InvalidHandle`](crate::ErrorKind::InvalidHandle) for memory that is not
    /// allocated from this pool; [`Busy`](crate::ErrorKind::Busy) while it is lent to another
    /// thread; [`ForkedProcess`](crate::ErrorKind::ForkedProcess).
    #[cfg(feature = "capi")]
    pub(crate) fn lend_raw<R>(
        &self,
        operation: &'static str,
        memory: *const u8,
        work: impl FnOnce(&mut PinnedBuf<u8>) -> Result<R>,
    ) -> Result<R> {
        self.handle.core.context.check_process(operation)?;
        work(&mut *self.handle.table.lend(operation, memory.addr())?)
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests;
