//! No operation writes a frozen buffer.

use pinlane::{DeviceBuf, FrozenBuf, Result, Stream};

fn race(stream: &Stream, gpu: &DeviceBuf<u8>, frozen: &mut FrozenBuf<u8>) -> Result<()> {
    stream.download(gpu, &mut *frozen)?;
    Ok(())
}

fn main() {}
