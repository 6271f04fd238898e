//! What each thread keeps of a pool: free blocks, taken and given back without a lock.

pub(super) mod cache;
pub(super) mod gate;
mod hit;
pub(super) mod local;
