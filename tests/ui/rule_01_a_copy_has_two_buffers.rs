//! A copy from a buffer to itself would overlap.

use pinlane::{DeviceBuf, Result, Stream, Ticket};

fn copy(stream: &Stream, gpu: &mut DeviceBuf<u8>) -> Result<Ticket> {
    stream.copy(&*gpu, &mut *gpu)
}

fn main() {}
