//! A slice from `read` is a plain slice: the buffer would not know of the copy.

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream, Ticket};

fn escape(stream: &Stream, host: &PinnedBuf<f32>, gpu: &mut DeviceBuf<f32>) -> Result<Ticket> {
    stream.upload(host.read()?, gpu)
}

fn main() {}
