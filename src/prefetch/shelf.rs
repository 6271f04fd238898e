//! Device memory between two batches: what the consumer has dropped, for a worker to use again.
//!
//! # Invariants
//!
//! * Memory comes here, or is freed, with its uses: everything that the consumer's stream had been
//!   given when the batch was dropped counts as one. So whoever writes to it next waits for the
//!   consumer's work, on the device, whether or not the crate was told of that work.
//! * What was given back first is used first: its uses have had the most time. And only once there
//!   is memory for `depth` batches and one in the consumer's hands, so that a consumer which drops
//!   a batch before its work is done need not wait for that work.
//! * No more is allocated than that, or than `depth` and what the consumer holds at most.

use std::collections::VecDeque;

use super::parts::Parts;
use crate::device::Device;
use crate::error::Result;
use crate::memory::DeviceBuf;
use crate::memory::sealed::SealedMut;
use crate::stream::Stream;
use crate::sync::Mutex;

/// The device memory of a batch, and the list of what lies where in it.
pub(super) struct Set {
    pub(super) parts: Parts,
    pub(super) buffer: DeviceBuf<u8>,
}

pub(super) struct Shelf {
    consumer: Stream,
    /// How many sets there are to be before one is used again.
    enough: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: VecDeque<Set>,
    /// How many sets there are, here and elsewhere.
    made: usize,
    closed: bool,
}

impl Shelf {
    pub(super) fn new(consumer: &Stream, depth: usize) -> Self {
        Shelf { consumer: consumer.clone(), enough: depth + 1, state: Mutex::default() }
    }

    pub(super) fn device(&self) -> Device {
        Device { inner: self.consumer.device.clone() }
    }

    /// Device memory for a batch of `bytes` bytes, whose uses may be pending.
    pub(super) fn take(&self, bytes: usize) -> Result<Set> {
        let too_small = {
            let mut state = self.state.lock();
            let fitting = state.free.iter().position(|set| set.buffer.len() >= bytes);
            let replaced = match fitting {
                _ if state.made < self.enough => None,
                Some(at) => return Ok(state.free.remove(at).expect("just found")),
                // It makes place for a larger one.
                None => state.free.pop_front(),
            };
            state.made += usize::from(replaced.is_none());
            replaced
        };
        let parts = too_small.map_or_else(Parts::default, |set| set.parts);
        match self.device().alloc(rounded(bytes)) {
            Ok(buffer) => Ok(Set { parts, buffer }),
            Err(error) => {
                self.state.lock().made -= 1;
                Err(error)
            }
        }
    }

    /// Takes a batch's memory back from the consumer.
    pub(super) fn give_back(&self, mut set: Set) {
        if !self.consumer.timeline.context().is_current() {
            // In a forked child the lock may be held forever. Device memory leaks there.
            return;
        }
        let operands = [set.buffer.writing()];
        let door = self.consumer.door("DeviceBatch::drop");
        let noted = door.portion(&operands, |_, _| Ok(()), String::new, |_| {});
        // What the consumer's stream still does with it, perhaps by work that only the consumer
        // knows, cannot be told where the stream cannot be recorded on.
        match noted {
            Ok(_) => self.put(set),
            Err(_) => {
                self.state.lock().made -= 1;
                set.buffer.quarantine();
            }
        }
    }

    /// Takes memory back that the consumer has not seen.
    pub(super) fn put(&self, set: Set) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(set);
        } else {
            state.free.push_back(set);
        }
    }

    /// Frees what is here, and what comes from now on.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let free = std::mem::take(&mut state.free);
        drop(state);
        drop(free);
    }
}

/// A little more than asked, at most an eighth, so that batches that differ a little use the same
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
}
