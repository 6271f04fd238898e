//! A plain slice cannot tell when an asynchronous copy is done with it.

use pinlane::{DeviceBuf, Result, Stream, Ticket};

fn upload(stream: &Stream, data: &[f32], gpu: &mut DeviceBuf<f32>) -> Result<Ticket> {
    stream.upload(data, gpu)
}

fn main() {}
