//! A stack of free blocks, linked through the blocks themselves: pushing and popping allocates
//! nothing.

use crate::memory::block::BlockRef;

#[derive(Debug, Default)]
pub(super) struct Chain {
    top: Option<BlockRef>,
    len: usize,
}

impl Chain {
    pub(super) const fn new() -> Self {
        Chain { top: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, mut block: BlockRef) {
        block.link(self.top.take());
        self.top = Some(block);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<BlockRef> {
        let mut block = self.top.take()?;
        self.top = block.unlink();
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
