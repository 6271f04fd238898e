//! A slice from `read` ends before the buffer is written.

use pinlane::{PinnedBuf, Result};

fn alias(host: &mut PinnedBuf<u8>) -> Result<u8> {
    let before = host.read()?;
    host.write()?[0] = 1;
    Ok(before[0])
}

fn main() {}
