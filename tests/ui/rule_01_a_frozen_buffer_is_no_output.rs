//! Foreign work does not write a frozen buffer.

use pinlane::{FrozenBuf, Result, Stream};

fn race(stream: &Stream, frozen: &mut FrozenBuf<u8>) -> Result<()> {
    unsafe { stream.foreign(&[], &mut [frozen], |_| ()) }?;
    Ok(())
}

fn main() {}
