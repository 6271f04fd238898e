//! Device memory between two batches: memory that the consumer has dropped, and that a worker can
//! use again.
//!
//! # Invariants
//!
//! * Memory comes here, or is freed, with its uses. All work that was on the consumer's stream when
//!   the batch was dropped counts as a use. So the next writer waits for the consumer's work, on
//!   the device, even if the crate does not know of that work.
//! * If the dropping thread cannot record on that stream (in a host function, or for the per-thread
//!   default stream of another thread), the memory waits here until a worker or the consumer can,
//!   with its next call.
//! * The memory that was given back first is used first: its uses have had the most time. It is
//!   reused only when there is memory for `depth` batches and one that the consumer holds, so that
//!   a consumer that drops a batch before its work is done does not wait for that work.
//! * No more is allocated than that, or than `depth` and the most that the consumer holds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::parts::Parts;
use crate::copy::order::Door;
use crate::device::{Device, adopt_stream};
use crate::driver::RawStream;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::DeviceBuf;
use crate::memory::sealed::SealedMut;
use crate::process::{in_host_function, on_ordinary_thread};
use crate::stream::Stream;
use crate::sync::Mutex;

const DROP: &str = "DeviceBatch::drop";

/// The device memory of a batch, and its layout.
pub(super) struct BatchMemory {
    pub(super) parts: Parts,
    pub(super) buffer: DeviceBuf<u8>,
}

pub(super) struct Recycler {
    consumer: Stream,
    /// How many sets must exist before one is used again.
    enough: usize,
    state: Mutex<Inventory>,
}

#[derive(Default)]
struct Inventory {
    /// Free sets by their sizes, which are rounded and therefore few; each with an ascending
    /// number.
    free: BTreeMap<usize, VecDeque<(u64, BatchMemory)>>,
    /// The number of the next set that comes back.
    next: u64,
    /// Sets that were dropped where their last use could not be recorded.
    unrecorded: Vec<BatchMemory>,
    /// How many sets exist, here and elsewhere.
    made: usize,
    closed: bool,
}

impl Inventory {
    fn put(&mut self, set: BatchMemory) {
        let number = self.next;
        self.next += 1;
        self.free.entry(set.buffer.len()).or_default().push_back((number, set));
    }

    /// The oldest set of at least this many bytes.
    fn take_oldest(&mut self, bytes: usize) -> Option<BatchMemory> {
        let queues = self.free.range_mut(bytes..).map(|(_, sets)| sets);
        let oldest = queues.filter(|sets| !sets.is_empty()).min_by_key(|sets| sets[0].0)?;
        oldest.pop_front().map(|(_, set)| set)
    }
}

impl Recycler {
    pub(super) fn new(consumer: &Stream, depth: usize) -> Self {
        Recycler { consumer: consumer.clone(), enough: depth + 1, state: Mutex::default() }
    }

    pub(super) fn device(&self) -> Device {
        Device { inner: self.consumer.device.clone() }
    }

    /// Device memory for a batch of `bytes` bytes, whose uses may be pending.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Result<BatchMemory> {
        self.record_rest();
        let too_small = {
            let mut state = self.state.lock();
            let enough = state.made >= self.enough;
            if let Some(set) = enough.then(|| state.take_oldest(bytes)).flatten() {
                return Ok(set);
            }
            // Makes room for a larger one.
            let replaced = enough.then(|| state.take_oldest(0)).flatten();
            state.made += usize::from(replaced.is_none());
            replaced
        };
        let parts = too_small.map_or_else(Parts::default, |set| set.parts);
        match self.device().alloc(rounded(bytes)) {
            Ok(buffer) => Ok(BatchMemory { parts, buffer }),
            Err(error) => {
                self.state.lock().made -= 1;
                Err(error)
            }
        }
    }

    /// Takes a batch's memory back from the consumer, on any thread.
    pub(super) fn give_back(self: &Arc<Self>, set: BatchMemory) {
        if !self.consumer.timeline.context().is_current() {
            // In a forked child the lock may be held forever. Device memory leaks there.
            return;
        }
        let Some(set) = self.record(self.consumer.door(DROP), set) else { return };
        let mut state = self.state.lock();
        if !state.closed {
            return state.unrecorded.push(set);
        }
        drop(state);
        // No worker or consumer will come any more.
        let record = |(recycler, set): (Arc<Self>, BatchMemory)| recycler.record_alone(set);
        on_ordinary_thread((self.clone(), set), record, |(_, set)| set.buffer.count_lost());
    }

    /// Records all work on `door`'s stream as a use of the memory, and puts the memory back.
    /// Returns the memory if this thread cannot record there. If recording fails, it cannot be
    /// known what the stream still does with the memory, which is then never used again.
    fn record(&self, door: Door<'_>, mut set: BatchMemory) -> Option<BatchMemory> {
        let operands = [set.buffer.writing()];
        let recorded = door.record(&operands);
        let elsewhere = |error: &Error| error.kind() == ErrorKind::WrongThread;
        match recorded {
            Ok(_) => self.put(set),
            Err(error) if in_host_function() || elsewhere(&error) => return Some(set),
            Err(_) => self.lose(set),
        }
        None
    }

    fn lose(&self, set: BatchMemory) {
        self.state.lock().made -= 1;
        set.buffer.quarantine();
    }

    /// Records uses that the dropping threads could not record. Sets that still cannot be recorded
    /// stay here.
    pub(super) fn record_rest(self: &Arc<Self>) {
        let unrecorded = std::mem::take(&mut self.state.lock().unrecorded);
        unrecorded.into_iter().for_each(|set| self.give_back(set));
    }

    /// Records the consumer's uses of the memory, on this ordinary thread.
    fn record_alone(&self, set: BatchMemory) {
        let Some(set) = self.record(self.consumer.door(DROP), set) else { return };
        // It is another thread's default stream. The legacy stream waits for all of its work (CUDA
        // Runtime API, "Stream synchronization behavior").
        let legacy = adopt_stream(self.consumer.timeline.context(), RawStream::LEGACY, None);
        if let Some(set) = self.record(Door::new(&legacy, DROP), set) {
            self.lose(set);
        }
    }

    /// Takes back memory that the consumer has not seen.
    pub(super) fn put(&self, set: BatchMemory) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(set);
        } else {
            state.put(set);
        }
    }

    /// Frees the memory here, and all memory that comes from now on.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.closed = true;
        let free = std::mem::take(&mut state.free);
        drop(state);
        drop(free);
        self.record_rest();
    }
}

/// Rounds up, by at most an eighth, so that batches of slightly different sizes use the same
/// memory.
fn rounded(bytes: usize) -> usize {
    let step = bytes.checked_next_power_of_two().map_or(1, |power| power / 16).max(256);
    if bytes == 0 { 0 } else { bytes.checked_next_multiple_of(step).unwrap_or(bytes) }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn at_most_an_eighth_is_waste_above_4_kib() {
        assert_eq!((rounded(0), rounded(1), rounded(256), rounded(257)), (0, 256, 256, 512));
        for bytes in (4096..100_000).chain([1 << 30, (1 << 30) + 1, usize::MAX]) {
            assert!(rounded(bytes) >= bytes && rounded(bytes) - bytes <= bytes / 8);
        }
    }

    /// Compares with a list from which the first set that is large enough is taken.
    #[cfg(feature = "emulated")]
    #[test]
    fn the_oldest_that_is_large_enough_is_taken() {
        use super::{BatchMemory, Inventory, Parts};
        use crate::driver::emulated::Emulator;

        let device = crate::Device::of_emulator(&Emulator::new(), 0).expect("no faults");
        let (mut state, mut list) = (Inventory::default(), Vec::new());
        let mut random = 7u64;
        for _ in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bytes = (random >> 40) as usize % 8 * 256;
            if random >> 63 == 0 {
                let buffer = device.alloc::<u8>(bytes).expect("no faults");
                list.push((bytes, buffer.as_device_ptr()));
                state.put(BatchMemory { parts: Parts::default(), buffer });
            } else {
                let at = list.iter().position(|&(len, _)| len >= bytes);
                let taken = state.take_oldest(bytes).map(|set| set.buffer.as_device_ptr());
                assert_eq!(taken, at.map(|at| list.remove(at).1));
            }
        }
        while !list.is_empty() {
            let taken = state.take_oldest(0).expect("there are more");
            assert_eq!(taken.buffer.as_device_ptr(), list.remove(0).1);
        }
        assert!(state.take_oldest(0).is_none());
    }
}
