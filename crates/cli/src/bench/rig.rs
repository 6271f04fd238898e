//! What the measurements share: the device, a pool, and how long they may take.

use pinlane::{Device, DeviceBuf, PinnedPool, Result, Stream};

use crate::measure;

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Quick,
    Short,
    Full,
}

impl Extent {
    pub fn name(self) -> &'static str {
        match self {
            Extent::Quick => "quick",
            Extent::Short => "short",
            Extent::Full => "full",
        }
    }
}

pub struct Rig {
    pub device: Device,
    pub pool: PinnedPool,
    pub stream: Stream,
    pub extent: Extent,
}

impl Rig {
    pub fn new(device: Device, extent: Extent) -> Result<Rig> {
        let pool = PinnedPool::builder(&device).build()?;
        let stream = device.stream()?;
        Ok(Rig { device, pool, stream, extent })
    }

    /// The sizes of single copies.
    pub fn sizes(&self) -> Vec<usize> {
        match self.extent {
            Extent::Quick => vec![64 * KIB, MIB],
            Extent::Short => (0..8).map(|step| (4 * KIB) << (2 * step)).collect(),
            Extent::Full => (0..11).map(|step| KIB << (2 * step)).collect(),
        }
    }

    /// The median seconds that `work` takes. `bytes` is how much it moves: if that is little, the
    /// work is repeated between two readings of the clock.
    pub fn seconds(&self, bytes: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
        let samples = match self.extent {
            Extent::Quick => 2,
            Extent::Short => 7,
            Extent::Full => 15,
        };
        let repeats = (MIB / bytes.max(1)).clamp(1, 64);
        let seconds = measure::median(samples, || (0..repeats).try_for_each(|_| work()))?;
        Ok(seconds / repeats as f64)
    }

    /// Zeroed device memory, allocated and filled when this returns, so any stream can use it.
    pub fn device_memory(&self, bytes: usize) -> Result<DeviceBuf<u8>> {
        let mut memory = self.device.alloc::<u8>(bytes)?;
        self.stream.fill(&mut memory, 0)?.wait()?;
        Ok(memory)
    }
}
