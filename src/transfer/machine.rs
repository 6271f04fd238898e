//! What a machine and a device can do, and how fast: what plans are made of.

use super::calibration;
use super::staging::Engine;
use crate::driver::{Attribute, RawStream};
use crate::error::Result;
use crate::stream::Stream;

/// What the planner knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// `cudaMemcpyBatchAsync` is there.
    pub(super) batches: bool,
    /// Kernels read page-locked memory at the addresses that the host uses.
    pub(super) kernels: bool,
    pub(super) costs: Costs,
}

/// Declares the costs once, with the names that a file has for them.
macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident = $default:literal,)*) => {
        /// The costs of the steps of a batch. Times in microseconds, rates in bytes a microsecond
        /// (1000 are 1 GB/s).
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(super) struct Costs {
            $($(#[$doc])* pub(super) $name: f64,)*
        }

        impl Costs {
            /// Of an H100 on PCIe 5 with a host of the same age.
            pub(super) const DEFAULT: Costs = Costs { $($name: $default,)* };

            /// Name and value of each.
            pub(super) fn values(&self) -> Vec<(&'static str, f64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// The value of that name.
            pub(super) fn value_mut(&mut self, name: &str) -> Option<&mut f64> {
                $(if name == stringify!($name) {
                    return Some(&mut self.$name);
                })*
                None
            }
        }
    };
}

costs! {
    /// The call and the completion of anything.
    fixed = 8.0,
    /// One `cudaMemcpyAsync` among many.
    copy = 2.5,
    /// One entry of a `cudaMemcpyBatchAsync`; while many bytes move the next is prepared.
    batch_entry = 1.3,
    /// A kernel launch, and how much later than a copy it ends.
    kernel = 8.5,
    /// One entry more in a kernel's list.
    kernel_entry = 0.01,
    /// The copy engine.
    link = 55_000.0,
    /// A kernel that reads page-locked memory.
    pull = 50_000.0,
    /// A kernel that copies within the device.
    on_device = 1_250_000.0,
    /// One thread that copies host memory.
    thread = 8_400.0,
    /// One entry for the thread that copies it.
    host_entry = 0.05,
    /// How many threads are of use for copying host memory.
    threads = 8.0,
}

impl Engine {
    /// What is known of the device. Asks the driver, and looks for a calibration, once.
    pub(super) fn machine(&self, stream: &Stream, operation: &'static str) -> Result<Machine> {
        let mut known = self.machine.lock();
        if let Some(known) = *known {
            return Ok(known);
        }
        drop(known);
        let context = stream.timeline.context();
        let driver = context.driver(operation)?;
        let failed = |code| context.error(code, operation, "asking what the device can do");
        let has = |attribute| -> Result<bool> {
            let value = driver.attribute(context.ordinal(), attribute).map_err(failed)?;
            Ok(value != 0)
        };
        // What is not known for sure is not remembered.
        let found = Machine {
            batches: driver.supports_batches(context.ordinal()).map_err(failed)?,
            kernels: has(Attribute::UnifiedAddressing)?
                && has(Attribute::CanUseHostPointerForRegisteredMem)?,
            costs: calibration::load(context, driver),
        };
        known = self.machine.lock();
        Ok(*known.get_or_insert(found))
    }

    /// Plans by these costs from now on.
    pub(super) fn set_costs(&self, costs: Costs) {
        if let Some(machine) = &mut *self.machine.lock() {
            machine.costs = costs;
        }
    }
}

impl Machine {
    /// Whether a batch call is possible on this stream.
    pub(super) fn batches_on(&self, stream: &Stream) -> bool {
        self.batches && stream.timeline.raw().handle != RawStream::LEGACY
    }
}
