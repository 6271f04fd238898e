//! The free blocks that each thread keeps, taken and given back without a lock.

pub(super) mod cache;
pub(super) mod gate;
mod hit;
pub(super) mod local;
mod stack;
