//! Options and progress of a pipeline.

use super::producer::Source;
use crate::capi::{Result, check_flags, growing, layout, set_unless_0};
use crate::prefetch::{Prefetch, Progress};

/// Each batch comes as soon as it is ready, instead of in the producer's order.
pub const PINLANE_PREFETCH_UNORDERED: u32 = 1;
/// The last batch is dropped if it has fewer bytes than the first. The producer is then called one
/// batch further ahead.
pub const PINLANE_PREFETCH_DROP_LAST: u32 = 2;

/// Options of a pipeline. Initialise with `PINLANE_PREFETCH_OPTIONS_INIT`. 0 in a member means its
/// default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_prefetch_options {
    /// `sizeof(pinlane_prefetch_options)`.
    pub size: usize,
    /// How many batches may be ready or in progress: 1 to 65536, by default 3. Batches that the
    /// consumer holds do not count.
    pub depth: u32,
    /// How many threads pull, fill and copy: 1 to 256, by default 2. More help if the producer's
    /// functions take long.
    pub workers: u32,
    /// 0, or some of `PINLANE_PREFETCH_*`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

layout!(pinlane_prefetch_options: 24; size 0, depth 8, flags 16);

growing!(pinlane_prefetch_options_init: pinlane_prefetch_options, sizes [24], default {});

impl pinlane_prefetch_options {
    pub(super) fn apply(&self, prefetch: Prefetch<Source>) -> Result<Prefetch<Source>> {
        check_flags(self.flags, PINLANE_PREFETCH_UNORDERED | PINLANE_PREFETCH_DROP_LAST)?;
        check_flags(self.reserved, 0)?;
        let prefetch = set_unless_0(prefetch, self.depth as usize, Prefetch::depth);
        let prefetch = set_unless_0(prefetch, self.workers as usize, Prefetch::workers);
        Ok(prefetch
            .ordered(self.flags & PINLANE_PREFETCH_UNORDERED == 0)
            .drop_last(self.flags & PINLANE_PREFETCH_DROP_LAST != 0))
    }
}

/// The progress of a pipeline. Initialise with `PINLANE_PREFETCH_PROGRESS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_prefetch_progress {
    /// `sizeof(pinlane_prefetch_progress)`.
    pub size: usize,
    /// Batches that the producer has begun, including failed ones and a dropped last one.
    pub produced: u64,
    /// Batches whose copy has been enqueued.
    pub uploaded: u64,
    /// Batches that the consumer has received.
    pub yielded: u64,
    /// The bytes of all slices of the uploaded batches.
    pub bytes: u64,
}

layout!(pinlane_prefetch_progress: 40; size 0, produced 8, bytes 32);
growing!(pinlane_prefetch_progress_init: pinlane_prefetch_progress, sizes [40], default {});

impl From<&Progress> for pinlane_prefetch_progress {
    fn from(now: &Progress) -> Self {
        pinlane_prefetch_progress {
            size: size_of::<Self>(),
            produced: now.produced(),
            uploaded: now.uploaded(),
            yielded: now.yielded(),
            bytes: now.bytes(),
        }
    }
}
