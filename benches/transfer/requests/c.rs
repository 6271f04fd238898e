//! A request through the C interface.

use std::ptr::{null, null_mut};

use super::super::common::c::*;
use super::BYTES;

/// The shared buffer, the two destinations, and what they are made from.
pub struct Requests {
    device: Handle,
    pool: Handle,
    shared: Handle,
    gpus: [Handle; 2],
}

impl Requests {
    pub fn new() -> Self {
        // SAFETY: `made` passes the address of a variable. Null options mean the defaults.
        unsafe {
            let device = made(|out| pinlane_device_open_or_emulated(out));
            let pool = made(|out| pinlane_pool_create(device, null(), out));
            let shared = made(|out| pinlane_buffer_alloc_zeroed(pool, BYTES, out));
            let gpu = || made(|out| pinlane_device_buffer_alloc(device, BYTES, out));
            Requests { device, pool, shared, gpus: [gpu(), gpu()] }
        }
    }

    pub fn one(&self) {
        for gpu in self.gpus {
            // SAFETY: the handles are live; `made` passes the address of a variable.
            unsafe {
                let stream = made(|out| pinlane_stream_create(self.device, null(), out));
                let upload = pinlane_device_buffer_upload;
                assert_eq!(upload(stream, self.shared, 0, gpu, 0, BYTES, null_mut()), 0);
                pinlane_stream_free(stream);
            }
        }
    }

    pub fn live_streams(&self) -> usize {
        let mut count = 0;
        // SAFETY: the device is live; `count` is a variable.
        assert_eq!(unsafe { pinlane_device_live_streams(self.device, &mut count) }, 0);
        count
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // SAFETY: handles that were made for this, each freed once.
        unsafe {
            let _ = self.gpus.map(|gpu| pinlane_device_buffer_free(gpu));
            pinlane_buffer_free(self.shared);
            pinlane_pool_free(self.pool);
            pinlane_device_free(self.device);
        }
    }
}
