//! The run's own ceiling: bare copies of the same bytes from and to page-locked memory.

use std::ptr::NonNull;

use pinlane::driver::DevicePtr;
use pinlane::{DeviceBuf, Result};

use super::Bench;
use super::common::bare::Bare;
use super::common::cuda::Way;
use super::common::timing::seconds;

pub struct Ceiling<'a> {
    bare: &'a Bare,
    host: NonNull<u8>,
    gpu: DeviceBuf<u8>,
}

impl<'a> Ceiling<'a> {
    /// Memory for copies of up to `bytes`.
    pub fn new(bench: &'a Bench, bytes: usize) -> Result<Self> {
        let gpu = bench.device_memory(bytes)?;
        let host = bench.bare.host_alloc(bytes);
        // SAFETY: the block has this many bytes and no other user. It is written so that its pages
        // exist.
        unsafe { host.as_ptr().write_bytes(1, bytes) };
        Ok(Ceiling { bare: &bench.bare, host, gpu })
    }

    pub fn name(&self) -> &'static str {
        self.bare.name("one bare cudaMemcpyAsync, pinned")
    }

    /// Seconds from the call until the data has arrived.
    pub fn copy(&self, way: Way, bytes: usize) -> Result<f64> {
        self.copies(way, 1, bytes)
    }

    /// Seconds for `count` copies in a row. At the end of the memory they wrap around to its
    /// beginning.
    pub fn copies(&self, way: Way, count: usize, bytes: usize) -> Result<f64> {
        let places = (self.gpu.len() / bytes.max(1)).max(1);
        assert!(bytes <= self.gpu.len(), "{bytes} bytes of {}", self.gpu.len());
        seconds(|| {
            for index in 0..count {
                let offset = index % places * bytes;
                let to = self.gpu.as_device_ptr() + offset as DevicePtr;
                // SAFETY: both blocks are live, large enough and used only here. The copies are
                // waited for below.
                unsafe {
                    let host = self.host.as_ptr().add(offset);
                    match way {
                        Way::H2D => self.bare.upload(to, host, bytes),
                        Way::D2H => self.bare.download(host, to, bytes),
                    }
                }
            }
            self.bare.synchronize()
        })
    }
}

impl Drop for Ceiling<'_> {
    fn drop(&mut self) {
        // SAFETY: the block came from this runtime; every copy was waited for.
        unsafe { self.bare.host_free(self.host) };
    }
}
