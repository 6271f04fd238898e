//! It is called on another thread.

use std::rc::Rc;

use pinlane::{Result, Stream, Ticket};

fn share(stream: &Stream, count: Rc<u32>) -> Result<Ticket> {
    stream.launch_host(move || drop(count))
}

fn main() {}
