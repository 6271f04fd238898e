//! The rates of this machine, from which the times are predicted.

use std::hint::black_box;
use std::time::Instant;

use pinlane::{Device, PinnedPool, Result};
use serde_json::{Value, json};

use super::workload::Direction;
use crate::measure::median;

const MIB: usize = 1 << 20;
/// The bytes of a piece so small that only the call takes time.
const SMALL: usize = 64;
const SAMPLES: usize = 5;

/// Rates are in bytes a second, costs in seconds.
pub struct Rates {
    /// The rate of copies of page-locked memory.
    pub link: f64,
    /// The rate of copies of pageable memory, staged by all threads.
    pub staged: f64,
    /// The rate of one thread that copies between pageable and page-locked memory.
    pub host_copy: f64,
    /// The rate of page-locking memory in place and undoing it.
    pub locking: f64,
    /// The cost of enqueuing a copy of page-locked memory.
    pub submit: f64,
    /// The cost of enqueuing one and waiting for it.
    pub round: f64,
    /// The cost of copying a few bytes of pageable memory.
    pub small: f64,
    /// The cost of a piece in a batch of pageable memory.
    pub piece_pageable: f64,
    /// The cost of a piece in a batch of page-locked memory.
    pub piece_locked: f64,
    /// The cost of page-locking a few bytes in place and undoing it.
    pub lock_call: f64,
}

impl Rates {
    pub fn measure(device: &Device, direction: Direction) -> Result<Rates> {
        const PIECES: usize = 256;
        let large = if device.emulator().is_some() { 4 * MIB } else { 64 * MIB };
        let up = direction == Direction::Up;
        let pool = PinnedPool::builder(device).build()?;
        let stream = device.stream()?;
        let rate = |seconds: f64| large as f64 / seconds;

        let mut gpu = device.alloc::<u8>(large)?;
        let mut locked = pool.alloc_zeroed::<u8>(large)?;
        let mut pageable = vec![1u8; large];
        let link = rate(median(SAMPLES, || {
            if up { stream.upload(&locked, &mut gpu) } else { stream.download(&gpu, &mut locked) }?
                .wait()
        })?);
        let staged = rate(median(SAMPLES, || {
            if up {
                stream.upload_slice(&pageable, &mut gpu)?.wait()
            } else {
                stream.download_slice(&gpu, &mut pageable).map(drop)
            }
        })?);
        let host_copy = rate(median(SAMPLES, || {
            if up {
                locked.write()?.copy_from_slice(black_box(&pageable));
            } else {
                pageable.copy_from_slice(black_box(locked.read()?));
            }
            Ok(())
        })?);
        let locking = rate(median(SAMPLES, || device.with_registered(&mut pageable, |_| ()))?);

        let mut few = vec![1u8; SMALL];
        let mut few_locked = pool.alloc_zeroed::<u8>(SMALL)?;
        let mut few_gpu = device.alloc::<u8>(SMALL)?;
        let lock_call = median(SAMPLES, || device.with_registered(&mut few, |_| ()))?;
        let mut copy = || {
            if up {
                stream.upload(&few_locked, &mut few_gpu)
            } else {
                stream.download(&few_gpu, &mut few_locked)
            }
        };
        let round = median(SAMPLES, || copy()?.wait())?;
        let start = Instant::now();
        for _ in 0..PIECES {
            copy()?;
        }
        let submit = start.elapsed().as_secs_f64() / PIECES as f64;
        stream.synchronize()?;
        let small = median(SAMPLES, || {
            if up {
                stream.upload_slice(&few, &mut few_gpu)?.wait()
            } else {
                stream.download_slice(&few_gpu, &mut few).map(drop)
            }
        })?;

        let mut many = vec![few; PIECES];
        let mut many_locked =
            (0..PIECES).map(|_| pool.alloc_zeroed::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
        let mut many_gpu =
            (0..PIECES).map(|_| device.alloc::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
        let piece_pageable = median(SAMPLES, || {
            if up {
                stream.upload_batch(many.iter().zip(&mut many_gpu))?.wait()
            } else {
                stream.download_batch(many_gpu.iter().zip(&mut many))?.wait()
            }
        })? / PIECES as f64;
        let piece_locked = median(SAMPLES, || {
            if up {
                stream.upload_batch(many_locked.iter().zip(&mut many_gpu))?.wait()
            } else {
                stream.download_batch(many_gpu.iter().zip(&mut many_locked))?.wait()
            }
        })? / PIECES as f64;
        Ok(Rates {
            link,
            staged,
            host_copy,
            locking,
            submit,
            round,
            small,
            piece_pageable,
            piece_locked,
            lock_call,
        })
    }

    pub fn json(&self) -> Value {
        json!({
            "link_gb_per_s": self.link / 1e9,
            "staged_gb_per_s": self.staged / 1e9,
            "host_copy_gb_per_s": self.host_copy / 1e9,
            "page_locking_gb_per_s": self.locking / 1e9,
            "submit_us": 1e6 * self.submit,
            "round_trip_us": 1e6 * self.round,
            "small_pageable_us": 1e6 * self.small,
            "batch_piece_pageable_us": 1e6 * self.piece_pageable,
            "batch_piece_page_locked_us": 1e6 * self.piece_locked,
            "page_locking_call_us": 1e6 * self.lock_call,
        })
    }
}
