//! The device must not write memory that the host has borrowed for reading.

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

fn race(stream: &Stream, gpu: &DeviceBuf<u8>, host: &mut PinnedBuf<u8>) -> Result<u8> {
    let bytes = host.read()?;
    stream.download(gpu, &mut *host)?;
    Ok(bytes[0])
}

fn main() {}
