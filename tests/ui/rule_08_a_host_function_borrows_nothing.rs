//! It is called when the caller's variables may be gone.

use pinlane::{Result, Stream, Ticket};

fn count(stream: &Stream) -> Result<Ticket> {
    let mut calls = 0;
    stream.launch_host(|| calls += 1)
}

fn main() {}
