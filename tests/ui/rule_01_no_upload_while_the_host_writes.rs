//! The device must not read memory that the host has borrowed for writing.

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

fn race(stream: &Stream, gpu: &mut DeviceBuf<u8>, host: &mut PinnedBuf<u8>) -> Result<()> {
    let bytes = host.write()?;
    stream.upload(&*host, gpu)?;
    bytes[0] = 1;
    Ok(())
}

fn main() {}
