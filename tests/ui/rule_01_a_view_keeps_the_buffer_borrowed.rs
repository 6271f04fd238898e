//! Views follow the same rules as their buffers, and so do views of views.

use pinlane::{PinnedBuf, Result};

fn alias(host: &mut PinnedBuf<u8>) -> Result<u8> {
    let mut view = host.slice_mut(..4)?;
    let before = view.as_slice().read()?;
    view.reborrow().into_write()?[0] = 1;
    Ok(before[0])
}

fn main() {}
