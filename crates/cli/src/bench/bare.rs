//! The ceiling: direct calls of the runtime, from and to page-locked memory.

use std::sync::Arc;

use pinlane::driver::{Driver, RawStream, cuda};
use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::rig::Rig;

/// How many copies are in a row.
const COPIES: usize = 4;

/// A way between host and device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
}

/// Direct calls, on a stream of their own.
struct Bare {
    driver: Arc<dyn Driver>,
    stream: Stream,
    host: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
}

impl Bare {
    fn new(rig: &Rig, bytes: usize) -> Result<Bare> {
        let driver = match rig.device.emulator() {
            Some(machine) => machine.driver(),
            None => cuda().expect("a GPU was opened with it"),
        };
        let (host, gpu) = (rig.pool.alloc_zeroed(bytes)?, rig.device_memory(bytes)?);
        Ok(Bare { driver, stream: rig.device.stream()?, host, gpu })
    }

    /// Enqueues a copy.
    fn enqueue(&mut self, way: Way) {
        let stream = &self.stream;
        let raw = RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() };
        let (host, gpu) = (self.host.as_ptr().cast_mut(), self.gpu.as_device_ptr());
        // SAFETY: the stream is live. Each block is one allocation of this length, the host's is
        // page-locked. Both belong to this object alone, are idle, and stay valid and untouched
        // until `synchronize`.
        let copied = unsafe {
            match way {
                Way::Up => self.driver.copy_h2d(raw, gpu, host, self.gpu.len()),
                Way::Down => self.driver.copy_d2h(raw, host, gpu, self.gpu.len()),
            }
        };
        copied.expect("the copy is enqueued");
    }
}

/// Seconds that one of several direct copies in a row takes. Two ways run at the same time.
pub fn seconds(rig: &Rig, ways: &[Way], bytes: usize) -> Result<f64> {
    let bares: Result<Vec<Bare>> = ways.iter().map(|_| Bare::new(rig, bytes)).collect();
    let mut bares = bares?;
    let seconds = rig.seconds(bytes, || {
        for _ in 0..COPIES {
            for (bare, &way) in bares.iter_mut().zip(ways) {
                bare.enqueue(way);
            }
        }
        bares.iter().try_for_each(|bare| bare.stream.synchronize())
    })?;
    Ok(seconds / COPIES as f64)
}
