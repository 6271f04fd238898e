//! The buffer comes back after the last use of the frozen elements.

use pinlane::{FrozenBuf, PinnedBuf};

fn race(frozen: FrozenBuf<u8>) -> (PinnedBuf<u8>, u8) {
    let bytes: &[u8] = &frozen;
    let buffer = frozen.into_inner();
    (buffer, bytes[0])
}

fn main() {}
