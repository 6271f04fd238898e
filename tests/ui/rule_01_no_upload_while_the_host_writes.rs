//! The device must not read what the host has borrowed to write.

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

fn race(stream: &Stream, gpu: &mut DeviceBuf<u8>, host: &mut PinnedBuf<u8>) -> Result<()> {
    let bytes = host.write()?;
    stream.upload(&*host, gpu)?;
    bytes[0] = 1;
    Ok(())
}

fn main() {}
