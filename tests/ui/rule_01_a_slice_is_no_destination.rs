//! A plain slice cannot tell when an asynchronous copy is done with it.

use pinlane::{DeviceBuf, Result, Stream, Ticket};

fn download(stream: &Stream, gpu: &DeviceBuf<f32>, data: &mut Vec<f32>) -> Result<Ticket> {
    stream.download(gpu, &mut data[..])
}

fn main() {}
