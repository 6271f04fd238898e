//! A buffer that several graphs share is no destination.

use std::sync::Arc;

use pinlane::graph::Key;
use pinlane::{Capture, DeviceBuf, PinnedBuf, Result};

fn overwrite(
    capture: &mut Capture,
    host: Key<PinnedBuf<u8>>,
    shared: Key<Arc<DeviceBuf<u8>>>,
) -> Result<()> {
    capture.upload(host, shared)
}

fn main() {}
