//! Page-locked memory is an address.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::context::Context;

pub const LEAST_PART: usize = 8 << 20;

pub struct SlabMemory(pub usize);

impl SlabMemory {
    pub fn seam(&self) -> usize {
        usize::MAX
    }

    pub fn ptr(&self) -> NonNull<u8> {
        NonNull::dangling()
    }

    pub fn bytes(&self) -> usize {
        self.0
    }

    /// # Safety
    ///
    /// * As for the crate's function.
    pub unsafe fn release(self, context: &Context) -> bool {
        context.released.fetch_add(self.0, Ordering::Relaxed);
        true
    }
}
