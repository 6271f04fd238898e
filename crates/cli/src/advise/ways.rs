//! The ways to copy the workload: the time of each as predicted from the rates, and as measured.

use pinlane::{Device, DeviceBuf, PinnedBuf, PinnedPool, Result, Stream};
use serde_json::{Value, json};

use super::rates::Rates;
use super::workload::{Direction, Memory, Workload};
use crate::measure::median;

/// At most this many bytes and pieces are measured; the times are scaled.
const MOST_BYTES: usize = 256 << 20;
const MOST_PIECES: usize = 10_000;

/// A way to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All pieces by one call.
    Batch,
    /// A call for each piece.
    Each,
    /// The pieces are copied to or from page-locked memory first, as `pin_memory` does.
    ByHand,
    /// Each piece is page-locked where it is, for its copy.
    InPlace,
    /// The pieces are in page-locked memory in the first place.
    KeepLocked,
}

impl Way {
    fn of(memory: Memory) -> &'static [Way] {
        match memory {
            Memory::Pageable => {
                &[Way::Batch, Way::Each, Way::ByHand, Way::InPlace, Way::KeepLocked]
            }
            Memory::PageLocked => &[Way::Batch, Way::Each],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Way::Batch => "one batch",
            Way::Each => "a call for each piece",
            Way::ByHand => "through page-locked memory by hand (pin_memory, then copy)",
            Way::InPlace => "page-locked in place for the copy",
            Way::KeepLocked => "kept in page-locked memory of a pool, one batch",
        }
    }

    /// The calls.
    pub fn code(self) -> &'static str {
        match self {
            Way::Batch => {
                "Stream::upload_batch, download_batch; for one piece upload_slice, \
                           download_slice, or upload and download if it is page-locked"
            }
            Way::Each => "Stream::upload_slice, download_slice; upload, download if page-locked",
            Way::ByHand => {
                "PinnedPool::alloc, write or read, and Stream::upload_batch or \
                            download_batch"
            }
            Way::InPlace => "Device::with_registered",
            Way::KeepLocked => {
                "fill buffers of PinnedPool::alloc in place of a Vec; \
                                Stream::upload_batch, download_batch"
            }
        }
    }

    /// Seconds, by the machine's rates.
    fn predicted(self, workload: &Workload, rates: &Rates) -> f64 {
        let (count, bytes) = (workload.count as f64, workload.bytes as f64);
        let total = count * bytes;
        let locked = rates.round + count * rates.piece_locked + total / rates.link;
        match (self, workload.memory) {
            (Way::Batch, Memory::Pageable) => {
                rates.small + count * rates.piece_pageable + total / rates.staged
            }
            (Way::Batch, Memory::PageLocked) | (Way::KeepLocked, _) => locked,
            (Way::Each, Memory::Pageable) => count * (rates.small + bytes / rates.staged),
            (Way::Each, Memory::PageLocked) => {
                rates.round + (count * rates.submit).max(total / rates.link)
            }
            (Way::ByHand, _) => total / rates.host_copy + locked,
            (Way::InPlace, _) => {
                count * (rates.lock_call + rates.round + bytes / rates.locking) + total / rates.link
            }
        }
    }
}

/// A way with its times.
pub struct Measured {
    pub way: Way,
    /// Seconds for the whole workload, predicted.
    pub predicted: f64,
    /// Seconds for the whole workload, measured, and scaled if only a part was.
    pub seconds: f64,
}

impl Measured {
    pub fn json(&self) -> Value {
        json!({
            "way": self.way.name(),
            "calls": self.way.code(),
            "predicted_seconds": self.predicted,
            "measured_seconds": self.seconds,
        })
    }
}

/// How many times as fast as one batch a way must be to be worth its trouble. Runs of one way
/// differ by a few percent.
pub const WORTH: f64 = 1.05;

/// Whether a way that takes `seconds` is to be taken in place of one that takes `usual`.
pub fn is_worth_it(seconds: f64, usual: f64) -> bool {
    usual >= WORTH * seconds
}

/// The fastest way that leaves the data where it is; one batch, unless another is worth it.
pub fn best(ways: &[Measured]) -> &Measured {
    let there = ways.iter().filter(|measured| measured.way != Way::KeepLocked);
    let fastest = there.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("there are ways");
    let batch = ways.iter().find(|measured| measured.way == Way::Batch).expect("always measured");
    if is_worth_it(fastest.seconds, batch.seconds) { fastest } else { batch }
}

/// The part of a workload that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub count: usize,
    /// Of a piece; a long piece is measured in part too.
    pub bytes: usize,
}

impl Part {
    pub fn of(workload: &Workload) -> Part {
        let bytes = workload.bytes.min(MOST_BYTES);
        Part { count: workload.count.min(MOST_BYTES / bytes).min(MOST_PIECES), bytes }
    }

    pub fn is_all_of(self, workload: &Workload) -> bool {
        self == Part { count: workload.count, bytes: workload.bytes }
    }

    fn total(self) -> usize {
        self.count * self.bytes
    }
}

/// Measures every way.
pub fn measure(
    device: &Device,
    workload: &Workload,
    part: Part,
    rates: &Rates,
) -> Result<Vec<Measured>> {
    let mut pieces = Pieces::new(device, workload, part)?;
    let samples = if part.total() > MOST_BYTES / 8 { 3 } else { 5 };
    let scale = workload.total().expect("checked") as f64 / part.total() as f64;
    let mut ways = Vec::new();
    for &way in Way::of(workload.memory) {
        let seconds = scale * median(samples, || pieces.copy(way, workload.memory))?;
        ways.push(Measured { way, predicted: way.predicted(workload, rates), seconds });
    }
    Ok(ways)
}

/// The memory of the pieces.
struct Pieces<'a> {
    device: &'a Device,
    stream: Stream,
    up: bool,
    pageable: Vec<Vec<u8>>,
    locked: Vec<PinnedBuf<u8>>,
    gpu: Vec<DeviceBuf<u8>>,
}

impl<'a> Pieces<'a> {
    fn new(device: &'a Device, workload: &Workload, part: Part) -> Result<Pieces<'a>> {
        let Part { count, bytes } = part;
        let pool = PinnedPool::builder(device).build()?;
        let is_pageable = workload.memory == Memory::Pageable;
        Ok(Pieces {
            device,
            stream: device.stream()?,
            up: workload.direction == Direction::Up,
            pageable: vec![vec![1; bytes]; if is_pageable { count } else { 0 }],
            locked: (0..count).map(|_| pool.alloc_zeroed(bytes)).collect::<Result<_>>()?,
            gpu: (0..count).map(|_| device.alloc(bytes)).collect::<Result<_>>()?,
        })
    }

    /// Copies all pieces. Returns when the data has arrived.
    fn copy(&mut self, way: Way, memory: Memory) -> Result<()> {
        let Pieces { device, stream, up, pageable, locked, gpu } = self;
        match (way, memory) {
            (Way::Batch, Memory::Pageable) if *up => {
                stream.upload_batch(pageable.iter().zip(gpu))?.wait()
            }
            (Way::Batch, Memory::Pageable) => {
                stream.download_batch(gpu.iter().zip(pageable))?.wait()
            }
            (Way::Batch, Memory::PageLocked) | (Way::KeepLocked, _) => {
                batch(stream, *up, locked, gpu)
            }
            (Way::Each, Memory::Pageable) => {
                for (host, gpu) in pageable.iter_mut().zip(gpu) {
                    if *up {
                        stream.upload_slice(host, gpu)?;
                    } else {
                        stream.download_slice(&*gpu, host)?;
                    }
                }
                stream.synchronize()
            }
            (Way::Each, Memory::PageLocked) => {
                for (host, gpu) in locked.iter_mut().zip(gpu) {
                    if *up {
                        stream.upload(&*host, gpu)?
                    } else {
                        stream.download(&*gpu, host)?
                    };
                }
                stream.synchronize()
            }
            (Way::ByHand, _) if *up => {
                for (host, locked) in pageable.iter().zip(locked.iter_mut()) {
                    locked.write()?.copy_from_slice(host);
                }
                batch(stream, true, locked, gpu)
            }
            (Way::ByHand, _) => {
                batch(stream, false, locked, gpu)?;
                for (host, locked) in pageable.iter_mut().zip(locked) {
                    host.copy_from_slice(locked.read()?);
                }
                Ok(())
            }
            (Way::InPlace, _) => {
                for (host, gpu) in pageable.iter_mut().zip(gpu) {
                    device.with_registered(host, |view| {
                        if *up {
                            stream.upload(view.as_slice(), gpu)
                        } else {
                            stream.download(&*gpu, view)
                        }
                        .map(drop)
                    })??;
                }
                Ok(())
            }
        }
    }
}

/// Copies page-locked memory by one call. Returns when the data has arrived.
fn batch(
    stream: &Stream,
    up: bool,
    locked: &mut [PinnedBuf<u8>],
    gpu: &mut [DeviceBuf<u8>],
) -> Result<()> {
    if up {
        stream.upload_batch(locked.iter().zip(gpu))?.wait()
    } else {
        stream.download_batch(gpu.iter().zip(locked))?.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_batch_is_best_unless_another_way_is_faster_by_five_percent() {
        let best_of = |each, by_hand, kept| {
            let ways = [(Way::Batch, 1.0), (Way::Each, each), (Way::ByHand, by_hand)];
            let ways = ways.into_iter().chain([(Way::KeepLocked, kept)]);
            let measured = |(way, seconds)| Measured { way, predicted: 1.0, seconds };
            best(&ways.map(measured).collect::<Vec<_>>()).way
        };
        assert_eq!(best_of(2.0, 3.0, 0.1), Way::Batch, "the data stays where it is");
        assert_eq!(best_of(0.99, 0.96, 0.1), Way::Batch);
        assert_eq!(best_of(0.94, 0.96, 0.1), Way::Each);
        assert_eq!(best_of(0.94, 0.5, 0.1), Way::ByHand);
    }

    #[test]
    fn of_many_and_of_long_pieces_a_part_is_measured() {
        for (count, bytes, part) in [
            (3, 4096, (3, 4096)),
            (1_000_000, 64, (MOST_PIECES, 64)),
            (1_000, 1 << 20, (256, 1 << 20)),
            (5, 1 << 40, (1, MOST_BYTES)),
        ] {
            let (direction, memory) = (Direction::Up, Memory::Pageable);
            let workload = Workload { count, bytes, direction, memory, cores: 1 };
            let found = Part::of(&workload);
            assert_eq!((found.count, found.bytes), part);
            assert_eq!(found.is_all_of(&workload), (count, bytes) == part);
        }
    }
}
