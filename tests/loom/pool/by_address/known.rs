//! Each model has its own index: see `index.rs`.

use std::ptr::NonNull;

use crate::memory::block::Block;

pub struct Known;

impl Known {
    pub fn new(_: NonNull<u8>, _: usize, _: NonNull<[Block]>) -> Self {
        Known
    }
}

impl Drop for Known {
    fn drop(&mut self) {}
}
