//! `cudaMemset` and its kin.

use std::ffi::c_void;

use super::Side;
use crate::emulator::Emulator;
use crate::memory::host::{Access, HostPtr, HostUse};
use crate::operation::{Action, Pattern};
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, RawStream};

impl Emulator {
    /// Fills `height` lines of `width` bytes, `pitch` bytes apart, with a repeated pattern, when
    /// their turn comes. For page-locked memory the synchronous call waits (rule 9).
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] for NULL, pageable memory, patterns of no byte or too many, and
    /// lines longer than the pitch; with a finding where no live allocation has room for them.
    ///
    /// # Safety
    ///
    /// * Page-locked memory that is named may be overwritten.
    pub unsafe fn fill(
        &self,
        stream: RawStream,
        dst: *mut c_void,
        pitch: usize,
        pattern: &[u8],
        (width, height): (usize, usize),
        synchronous: bool,
    ) -> DriverResult<()> {
        let pattern = Pattern::new(pattern).ok_or(CudaCode::INVALID_VALUE)?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        let span = (height - 1).checked_mul(pitch).and_then(|lines| lines.checked_add(width));
        let span = span.ok_or(CudaCode::INVALID_VALUE)?;
        if dst.is_null() || (height > 1 && pitch < width) {
            return Err(CudaCode::INVALID_VALUE);
        }
        let held = self.held(dst);
        match held.side {
            Side::Pageable => return Err(CudaCode::INVALID_VALUE),
            Side::OnDevice => {}
            Side::PageLocked | Side::Managed => {
                held.check_writable()?;
                if span > held.bytes - (dst.addr() - held.base.addr()) {
                    return Err(CudaCode::INVALID_VALUE);
                }
                self.on_stream(Call::Fill, stream, |machine, key| {
                    for line in 0..height {
                        let at = HostPtr(dst.cast::<u8>().wrapping_add(line * pitch));
                        let dst = HostUse::new(at, width, Access::Write);
                        machine.submit(key, Vec::new(), Action::FillHost { dst, pattern })?;
                    }
                    Ok(())
                })?;
                return if synchronous { self.drain(stream, true) } else { Ok(()) };
            }
        }
        let address = dst.addr() as u64;
        self.on_stream(Call::Fill, stream, |machine, key| {
            machine.check_allocated(Call::Fill, key, address, span)?;
            let dense = height == 1 || pitch == width;
            let (lines, bytes) = if dense { (1, span) } else { (height, width) };
            for line in 0..lines {
                let dst = address + (line * pitch) as u64;
                machine.submit(key, Vec::new(), Action::Fill { dst, bytes, pattern })?;
            }
            Ok(())
        })
    }
}
