//! Dropping a buffer gives its block back, so no slice of it may be left.

use pinlane::{PinnedBuf, Result};

fn dangle(host: PinnedBuf<u8>) -> Result<u8> {
    let bytes = host.read()?;
    drop(host);
    Ok(bytes[0])
}

fn main() {}
