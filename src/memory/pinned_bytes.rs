//! Page-locked memory without its type: its block, and the uses of that block.

use std::ops::Range;
use std::ptr::NonNull;

use super::Operand;
use super::block::Block;
use super::hazard::{Access, Hazards};
use crate::context::Context;
use crate::driver::Poll;
use crate::error::{Error, ErrorKind, Found, Result};

/// Page-locked memory that a copy names, without its type: where to record its uses. A [`BlockRef`]
/// to the block exists during `'a`.
#[derive(Clone, Copy)]
pub(crate) struct PinnedBytes<'a>(&'a Block);

impl<'a> PinnedBytes<'a> {
    /// # Safety
    ///
    /// * A [`BlockRef`] to the block exists during `'a`. Any owner will do.
    pub(crate) unsafe fn of(block: &'a Block) -> Self {
        PinnedBytes(block)
    }

    /// The first byte of the block.
    #[inline]
    pub(super) fn ptr(&self) -> NonNull<u8> {
        self.0.ptr()
    }

    /// Bytes `ptr .. ptr + bytes`, counted from the start of the block. They must lie in it.
    #[inline]
    pub(crate) fn range(&self, ptr: *const u8, bytes: usize) -> Range<usize> {
        let start = ptr.addr() - self.0.ptr().as_ptr().addr();
        start..start + bytes
    }

    #[inline]
    pub(crate) fn hazards(&self) -> &'a Hazards {
        self.0.hazards()
    }

    /// Those bytes, as a part of an operation.
    #[inline]
    pub(crate) fn operand_at(&self, ptr: *const u8, bytes: usize, access: Access) -> Operand<'a> {
        self.operand(self.range(ptr, bytes), access)
    }

    /// A range of the block, as a part of an operation.
    #[inline]
    pub(super) fn operand(&self, range: Range<usize>, access: Access) -> Operand<'a> {
        Operand { context: self.context(), hazards: self.hazards(), range, access }
    }

    /// Splits that range at the seams, into parts that one copy each may cover. In bytes from the
    /// start of the range.
    pub(crate) fn parts(
        &self,
        ptr: *const u8,
        bytes: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let range = self.range(ptr, bytes);
        let start = range.start;
        let parts = self.0.parts(range);
        parts.map(move |part| part.start - start..part.end - start)
    }

    /// Whether that range has more than one part.
    #[inline]
    pub(crate) fn crosses_seam(&self, ptr: *const u8, bytes: usize) -> bool {
        self.0.crosses_seam(&self.range(ptr, bytes))
    }

    pub(crate) fn context(&self) -> &'a Context {
        // SAFETY: the right exists, by the precondition of `of`.
        unsafe { self.0.owner() }.context()
    }

    pub(crate) fn is_same_block(&self, other: &PinnedBytes<'_>) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// Blocks until the host may access the bytes.
    pub(super) fn settle(
        self,
        operation: &'static str,
        range: Range<usize>,
        access: Access,
    ) -> Result<()> {
        self.context().check_process(operation)?;
        self.hazards().wait(&range, access, operation)?;
        self.announce_access(range, access);
        Ok(())
    }

    /// Announces that the host accesses the bytes now.
    #[inline]
    pub(super) fn announce_access(self, range: Range<usize>, access: Access) {
        let start = self.ptr().as_ptr().wrapping_add(range.start);
        self.context().host_access(start, range.len(), access == Access::Write);
    }

    pub(super) fn try_settle(
        self,
        operation: &'static str,
        range: Range<usize>,
        access: Access,
    ) -> Result<()> {
        self.context().check_process(operation)?;
        match self.hazards().poll(&range, access)? {
            Poll::Done => {
                self.announce_access(range, access);
                Ok(())
            }
            Poll::NotReady => Err(Error::new(
                ErrorKind::NotReady,
                operation,
                Found::Numbers(
                    |[start, end]| format!("the device still uses bytes {start} .. {end}"),
                    [range.start, range.end],
                ),
                "try again later, or make the call without try_ in its name, which waits",
            )),
        }
    }
}
