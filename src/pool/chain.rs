//! Stacks of free blocks, linked through the blocks themselves: pushing and popping allocates nothing.

use crate::memory::block::BlockRef;

/// A stack.
#[derive(Debug, Default)]
pub(super) struct Stack {
    top: Option<BlockRef>,
}

impl Stack {
    pub(super) const fn new() -> Self {
        Stack { top: None }
    }

    #[inline]
    pub(super) fn push(&mut self, mut block: BlockRef) {
        block.link(self.top.take());
        self.top = Some(block);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<BlockRef> {
        let mut block = self.top.take()?;
        self.top = block.unlink();
        Some(block)
    }
}

/// A stack that knows how many blocks it has.
#[derive(Debug, Default)]
pub(super) struct Chain {
    blocks: Stack,
    len: usize,
}

impl Chain {
    pub(super) const fn new() -> Self {
        Chain { blocks: Stack::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, block: BlockRef) {
        self.blocks.push(block);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<BlockRef> {
        let block = self.blocks.pop()?;
        self.len -= 1;
        Some(block)
    }
}

impl Extend<BlockRef> for Chain {
    fn extend<I: IntoIterator<Item = BlockRef>>(&mut self, blocks: I) {
        blocks.into_iter().for_each(|block| self.push(block));
    }
}

impl Iterator for Chain {
    type Item = BlockRef;

    fn next(&mut self) -> Option<BlockRef> {
        self.pop()
    }
}
