//! What a machine and a device can do, and how fast: what plans are made of.

use super::staging::Engine;
use crate::driver::{Attribute, RawStream};
use crate::error::Result;
use crate::stream::Stream;

/// What the planner knows. Times in microseconds, rates in bytes a microsecond (1000 are 1 GB/s).
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// `cudaMemcpyBatchAsync` is there.
    pub(super) batches: bool,
    /// Kernels read page-locked memory at the addresses that the host uses.
    pub(super) kernels: bool,
    pub(super) costs: Costs,
}

/// The costs of the steps of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    /// The call and the completion of anything.
    pub(super) fixed: f64,
    /// One `cudaMemcpyAsync` among many.
    pub(super) copy: f64,
    /// One entry of a `cudaMemcpyBatchAsync`.
    pub(super) batch_entry: f64,
    /// A kernel launch, and how much later than a copy it ends.
    pub(super) kernel: f64,
    /// One entry more in a kernel's list.
    pub(super) kernel_entry: f64,
    /// The copy engine.
    pub(super) link: f64,
    /// A kernel that reads page-locked memory.
    pub(super) pull: f64,
    /// A kernel that copies within the device.
    pub(super) on_device: f64,
    /// One thread that copies host memory.
    pub(super) thread: f64,
    /// One entry for the thread that copies it.
    pub(super) host_entry: f64,
}

impl Costs {
    /// Of an H100 on PCIe 5 with a host of the same age.
    pub(super) const DEFAULT: Costs = Costs {
        fixed: 8.0,
        copy: 2.7,
        batch_entry: 1.3,
        kernel: 6.0,
        kernel_entry: 0.002,
        link: 54_500.0,
        pull: 49_000.0,
        on_device: 400_000.0,
        thread: 8_000.0,
        host_entry: 0.05,
    };
}

impl Engine {
    /// What is known of the device. Asks the driver once.
    pub(super) fn machine(&self, stream: &Stream) -> Result<&Machine> {
        if let Some(known) = self.machine.get() {
            return Ok(known);
        }
        let context = stream.timeline.context();
        let driver = context.driver("Stream::upload_batch")?;
        let has = |attribute| {
            driver.attribute(context.ordinal(), attribute).is_ok_and(|value| value != 0)
        };
        let found = Machine {
            batches: driver.supports_batches(context.ordinal()).unwrap_or(false),
            kernels: has(Attribute::UnifiedAddressing)
                && has(Attribute::CanUseHostPointerForRegisteredMem),
            costs: Costs::DEFAULT,
        };
        Ok(self.machine.get_or_init(|| found))
    }
}

impl Machine {
    /// Whether a batch call is possible on this stream.
    pub(super) fn batches_on(&self, stream: &Stream) -> bool {
        self.batches && stream.timeline.raw().handle != RawStream::LEGACY
    }
}
