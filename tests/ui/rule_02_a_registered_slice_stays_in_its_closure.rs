//! When the closure has returned, the memory is its owner's again, so no view of it may be left.

use pinlane::{Device, PinnedSliceMut, Result};

fn escape(device: &Device, slice: &mut [u8]) -> Result<()> {
    device.with_registered(slice, |view| view)?;
    let mut kept: Option<PinnedSliceMut<'_, u8>> = None;
    device.with_registered(slice, |view| kept = Some(view))?;
    device.with_registered(slice, |view| {
        slice[0] = 1;
        drop(view);
    })
}

fn main() {}
