//! The rules that choose the route of a batch.
//!
//! Figures: the grid `batch.route` (1 to 10,000 blocks of 64 bytes to 1 MiB, both directions,
//! pageable and page-locked memory) of `docs/measured/2026-11-29-nvidia-h200.json`.
//!
//! * One run is one copy: 8 to 9 us, where a kernel takes 16.
//! * Few runs: the copy engine costs 1.3 us for each run in a batch call and 2.5 us in a loop of
//!   copies; a kernel costs 8 us once. From four runs on the kernel is faster.
//! * Long blocks: a kernel moves 50 GB/s, the copy engine 55, and its calls hide behind the bytes
//!   that move. Through slots they are equal at about 64 KiB a run, and with few runs at 32 KiB up
//!   and 16 KiB down: a batch call takes more than 1 us for each upload below 32 KiB, and 0.5 us
//!   for others. Out of page-locked memory the copy engine pauses between two runs, for 0.45 us. So
//!   with 128 KiB a run the kernel pays off at 30 runs, and with 1 MiB never.
//!
//! On that grid the route of these rules takes at most 1.07 times as long as the fastest one.

use std::fmt;

use super::entry::Direction;
use crate::context::Context;
use crate::driver::{Attribute, RawStream};
use crate::error::Result;
use crate::timeline::Timeline;

/// How the bytes of a batch are moved. Which route is fastest depends on how many blocks there are
/// and how long they are. Unless the caller chooses one, rules choose the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// One `cudaMemcpyAsync` for each run of blocks that follow each other. Best for one long run.
    Copies,
    /// One `cudaMemcpyBatchAsync` for many runs, where the driver has it (CUDA 12.8). Not on the
    /// legacy default stream.
    BatchCall,
    /// A kernel moves the blocks from address to address: it reads or writes page-locked memory
    /// over the bus. Only if the device can use the host's addresses. It has the device's greatest
    /// priority: where another kernel fills the device, it begins when a block of that ends.
    Kernel,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Route::Copies => "copies",
            Route::BatchCall => "batch call",
            Route::Kernel => "kernel",
        })
    }
}

/// How much there is to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// Entries that are not empty.
    pub(crate) entries: usize,
    /// Copies that remain when entries that follow each other are merged.
    pub(crate) runs: usize,
    pub(crate) bytes: usize,
}

/// The two kinds of memory that the copy engine or the kernel moves between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// Slots and the device: pageable memory goes through them, up or down.
    Slots(Direction),
    /// Page-locked memory and the device.
    PageLocked,
    /// Two places of one device.
    Device,
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// `cudaMemcpyBatchAsync` exists.
    batches: bool,
    /// Kernels use page-locked memory at the addresses that the host uses.
    kernels: bool,
    /// The longest pitch of a strided copy, in bytes.
    max_pitch: usize,
}

impl Abilities {
    /// Asks the driver.
    pub(super) fn of(context: &Context, operation: &'static str) -> Result<Self> {
        let driver = context.driver(operation)?;
        let failed = |code| context.error(code, operation, "asking what the device can do");
        let value = |attribute| driver.attribute(context.ordinal(), attribute).map_err(failed);
        let has = |attribute| -> Result<bool> { Ok(value(attribute)? != 0) };
        Ok(Abilities {
            batches: driver.supports_batches(context.ordinal()).map_err(failed)?,
            kernels: has(Attribute::UnifiedAddressing)?
                && has(Attribute::CanUseHostPointerForRegisteredMem)?,
            max_pitch: usize::try_from(value(Attribute::MaxPitch)?).unwrap_or(0),
        })
    }

    pub(crate) fn max_pitch(self) -> usize {
        self.max_pitch
    }

    /// Whether a batch can take this route on this stream.
    pub(crate) fn allow(self, route: Route, stream: &Timeline) -> bool {
        match route {
            Route::Copies => true,
            Route::BatchCall => self.batches && stream.raw().handle != RawStream::LEGACY,
            Route::Kernel => self.kernels,
        }
    }

    /// The route of a batch for which the caller has not chosen one.
    pub(crate) fn choose(self, stream: &Timeline, between: Between, group: Group) -> Route {
        let run = group.bytes / group.runs.max(1);
        let short = match between {
            Between::Slots(Direction::Up) if group.runs < MANY => run < 32 << 10,
            Between::Slots(Direction::Down) if group.runs < MANY => run < 16 << 10,
            Between::PageLocked if group.runs < MANY => run < 64 << 10,
            Between::Slots(_) => run < 64 << 10,
            Between::PageLocked => run < 256 << 10,
            Between::Device => true,
        };
        let wanted = match group.runs {
            0 | 1 => [Route::Copies; 2],
            2.. if group.runs >= FEW && short => [Route::Kernel, Route::BatchCall],
            2.. => [Route::BatchCall; 2],
        };
        let possible = wanted.into_iter().find(|&route| self.allow(route, stream));
        possible.unwrap_or(Route::Copies)
    }
}

/// From this many runs on, one kernel costs less than the calls.
const FEW: usize = 4;

/// From this many runs on, one kernel costs less than the calls for longer ones, too.
const MANY: usize = 32;

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use super::*;
    use crate::device::Device;

    #[test]
    fn the_rules_choose_by_number_and_length_of_the_runs() {
        let stream = Device::emulated().and_then(|device| device.stream()).expect("no faults");
        let all = Abilities { batches: true, kernels: true, max_pitch: 0 };
        let choose = |abilities: Abilities, between, runs, run: usize| {
            let group = Group { entries: runs, runs, bytes: runs * run };
            abilities.choose(&stream.timeline, between, group)
        };
        for (between, runs, run, route) in [
            (Between::PageLocked, 1, 256, Route::Copies),
            (Between::PageLocked, 3, 256, Route::BatchCall),
            (Between::PageLocked, 4, 256, Route::Kernel),
            (Between::PageLocked, 10, 128 << 10, Route::BatchCall),
            (Between::PageLocked, 100, 128 << 10, Route::Kernel),
            (Between::PageLocked, 100, 1 << 20, Route::BatchCall),
            (Between::Slots(Direction::Up), 10, 31 << 10, Route::Kernel),
            (Between::Slots(Direction::Up), 10, 32 << 10, Route::BatchCall),
            (Between::Slots(Direction::Down), 10, 15 << 10, Route::Kernel),
            (Between::Slots(Direction::Down), 10, 16 << 10, Route::BatchCall),
            (Between::Slots(Direction::Up), 100, 63 << 10, Route::Kernel),
            (Between::Slots(Direction::Down), 100, 63 << 10, Route::Kernel),
            (Between::Slots(Direction::Down), 100, 128 << 10, Route::BatchCall),
            (Between::Device, 100, 1 << 20, Route::Kernel),
        ] {
            assert_eq!(choose(all, between, runs, run), route, "{between:?} {runs} x {run}");
        }
        let few = Abilities { batches: false, kernels: false, ..all };
        assert_eq!(choose(few, Between::Device, 100, 256), Route::Copies);
    }
}
