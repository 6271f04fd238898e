//! Nothing says when an asynchronous copy is done with a plain slice.

use pinlane::{DeviceBuf, Result, Stream, Ticket};

fn download(stream: &Stream, gpu: &DeviceBuf<f32>, data: &mut Vec<f32>) -> Result<Ticket> {
    stream.download(gpu, &mut data[..])
}

fn main() {}
