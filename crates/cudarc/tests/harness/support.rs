//! What tests of both crates do with pinlane.

use std::sync::mpsc::{Sender, channel};

use pinlane::{ErrorKind, PinnedBuf, PinnedPool, Stream};

/// Elements of a buffer.
pub const LEN: usize = 1000;

pub fn values(first: u32, len: usize) -> Vec<u32> {
    (first..).take(len).collect()
}

/// A buffer with the values `first ..`.
pub fn filled(pool: &PinnedPool, first: u32) -> PinnedBuf<u32> {
    let mut host = pool.alloc(LEN).expect("in the budget");
    host.write().expect("idle").copy_from_slice(&values(first, LEN));
    host
}

/// Holds a stream until this is dropped.
pub struct Held(#[expect(dead_code, reason = "dropping it is the use")] Sender<()>);

pub fn hold(stream: &Stream) -> Held {
    let (sender, receiver) = channel::<()>();
    let wait = move || {
        let _ = receiver.recv();
    };
    stream.launch_host(wait).expect("the stream accepts work");
    Held(sender)
}

pub fn is_in_use(host: &mut PinnedBuf<u32>) -> bool {
    matches!(host.try_write(), Err(error) if error.kind() == ErrorKind::NotReady)
}
