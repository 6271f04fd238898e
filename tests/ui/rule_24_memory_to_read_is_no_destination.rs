//! No operation writes memory that is registered for reading only.

use std::sync::Arc;

use pinlane::memory::RegisteredReadOnly;
use pinlane::{DeviceBuf, Result, Stream};

fn race(
    stream: &Stream,
    gpu: &DeviceBuf<u8>,
    weights: &mut RegisteredReadOnly<Arc<[u8]>>,
) -> Result<()> {
    stream.download(gpu, &mut *weights)?;
    Ok(())
}

fn main() {}
