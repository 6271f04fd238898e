//! It may be called after the caller's variables have been dropped.

use pinlane::{Result, Stream, Ticket};

fn count(stream: &Stream) -> Result<Ticket> {
    let mut calls = 0;
    stream.launch_host(|| calls += 1)
}

fn main() {}
