//! The progress of a pipeline, which any thread may read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what a pipeline has done. Cheap to clone; reading takes no lock.
///
/// Each counter is read separately, so while the pipeline runs they may not match each other.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    produced: AtomicU64,
    uploaded: AtomicU64,
    yielded: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Batches that the producer has given, including failed ones and a dropped last one.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.counters.produced.load(Ordering::Relaxed)
    }

    /// Batches whose copy has been enqueued.
    #[must_use]
    pub fn uploaded(&self) -> u64 {
        self.counters.uploaded.load(Ordering::Relaxed)
    }

    /// Device batches that the consumer has received.
    #[must_use]
    pub fn yielded(&self) -> u64 {
        self.counters.yielded.load(Ordering::Relaxed)
    }

    /// The bytes of all slices of the uploaded batches.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn count_produced(&self) {
        self.counters.produced.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_uploaded(&self, bytes: usize) {
        self.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.counters.uploaded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_yielded(&self) {
        self.counters.yielded.fetch_add(1, Ordering::Relaxed);
    }
}
