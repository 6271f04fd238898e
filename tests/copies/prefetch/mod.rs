//! The prefetch pipeline, on the emulated device.
//!
//! | module | what it shows |
//! |---|---|
//! | `model` | random pipelines give the same as a plain loop, eager and lazy |
//! | `order` | the consumer's stream waits for the copy, and the next copy for the consumer |
//! | `failures` | errors and panics take their batch's place; nothing leaks |
//! | `dropped` | batches that are dropped in host functions, and on other threads |
//! | `ends` | stopping early, at any moment; workers that are blocked; many pipelines at once |
//! | `asynchronous` | the same as futures, on a small executor |
//! | `stream` | the same as a `Stream` of `futures-core` |

mod asynchronous;
mod dropped;
mod ends;
mod failures;
mod model;
mod order;
#[cfg(feature = "futures")]
mod stream;

use pinlane::emulated::{Emulator, Execution, Usage};
use pinlane::{Device, PinnedPool, Stream, prefetch::DeviceBatch, staging::Staging};

use crate::common::support::eventually;

/// A machine with small slots, so that the tests meet every boundary, and what a pipeline needs.
struct Rig {
    stream: Stream,
    pool: PinnedPool,
    device: Device,
    emulator: Emulator,
}

impl Rig {
    fn new(execution: Execution, seed: u64) -> Rig {
        let emulator = Emulator::builder().execution(execution).seed(seed).build();
        Rig::of(emulator)
    }

    fn of(emulator: Emulator) -> Rig {
        let device = Device::of_emulator(&emulator, 0).expect("an emulated device");
        let staging = Staging::new().slot_bytes(4096).ring_bytes(4 * 4096).first_bytes(1024);
        let staging = staging.unit_bytes(1024).direct_bytes(600);
        device.set_staging(staging).expect("nothing copied yet");
        let pool = PinnedPool::builder(&device).max_bytes(4 << 20).build().expect("no faults");
        let stream = device.stream().expect("no faults");
        Rig { stream, pool, device, emulator }
    }

    /// Drops everything, and waits until nothing is left: no memory, stream or event.
    fn nothing_is_left(self) {
        self.leaves(0);
    }

    /// As [`nothing_is_left`](Self::nothing_is_left), except for this much device memory.
    fn leaves(self, device_bytes: usize) {
        let emulator = self.emulator.clone();
        drop(self);
        assert_eq!(emulator.findings(), []);
        // A lazy machine frees memory and destroys streams when the program waits for the work
        // before.
        eventually("all is released", || {
            let mut left = emulator.usage();
            left.pending_operations = 0;
            let in_device = std::mem::take(&mut left.device_bytes);
            left.device_blocks -= usize::from(in_device > 0 && in_device == device_bytes);
            left == Usage::default() && in_device == device_bytes
        });
    }
}

/// The contents of a slice, on the host.
fn contents(stream: &Stream, batch: &DeviceBatch, name: &str) -> Vec<u8> {
    let slice = batch.slice::<u8>(name).expect("a slice of the batch");
    let mut bytes = vec![0xee; slice.len()];
    stream.download_slice(slice, &mut bytes).expect("no faults");
    bytes
}

/// Contents that differ by batch and by place.
fn pattern(batch: usize, slice: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (batch * 7 + slice * 31 + at * 13 + at / 251) as u8).collect()
}
