//! A quick measurement of copies of page-locked memory.

use pinlane::{Device, PinnedPool};
use serde_json::{Value, json};

use super::bus::Link;
use super::finding::Finding;
use crate::error::{Error, Result};
use crate::measure::{gb_per_s, median};

/// Copies should reach more than this part of the link's bandwidth.
const EXPECTED: f64 = 0.7;

/// In GB/s.
pub struct Speed {
    pub up: f64,
    pub down: f64,
}

impl Speed {
    /// Copies `bytes` bytes to the device and back a few times, and compares what came back.
    pub fn measure(device: &Device, bytes: usize) -> Result<Speed> {
        const SAMPLES: usize = 5;
        let pool = PinnedPool::builder(device).max_bytes(2 * bytes).build()?;
        let stream = device.stream()?;
        let mut source = pool.alloc::<u8>(bytes)?;
        for (at, byte) in source.write()?.iter_mut().enumerate() {
            *byte = (at % 251) as u8; // a prime, so neighbouring pages differ
        }
        let mut target = pool.alloc_zeroed::<u8>(bytes)?;
        let mut gpu = device.alloc::<u8>(bytes)?;
        let up = median(SAMPLES, || stream.upload(&source, &mut gpu)?.wait())?;
        let down = median(SAMPLES, || stream.download(&gpu, &mut target)?.wait())?;
        let (source, target) = (source.read()?, target.read()?);
        if let Some(at) = source.iter().zip(target.iter()).position(|(a, b)| a != b) {
            return Err(Error(format!(
                "byte {at} of {bytes} came back changed from {}; look for errors of the link and \
                 of memory (nvidia-smi -q, dmesg)",
                device.name()
            )));
        }
        Ok(Speed { up: gb_per_s(bytes, up), down: gb_per_s(bytes, down) })
    }

    /// As a finding: compared with the link, if that is known.
    pub fn finding(&self, name: String, link: Option<Link>) -> Finding {
        let Speed { up, down } = self;
        let found = format!("page-locked memory: up {up:.1} GB/s, down {down:.1} GB/s");
        let finding = match link {
            Some(link) if up.min(*down) < EXPECTED * link.gb_per_s() => Finding::notice(
                name,
                format!("{found}; the link carries {:.1}", link.gb_per_s()),
                "stop what else uses the device, run near it (numa), look at the IOMMU; then \
                 `pinlane bench` shows more",
            ),
            _ => Finding::good(name, found),
        };
        finding.with(self.json())
    }

    pub fn json(&self) -> Value {
        json!({ "up_gb_per_s": self.up, "down_gb_per_s": self.down })
    }
}
