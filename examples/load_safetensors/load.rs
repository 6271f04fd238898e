//! The heart of the example: uploads all tensors of a file to the device, in one job.
//!
//! ```text
//!   file      |header|tensor 0|tensor 1|t2|tensor 3     |
//!                     |        |        |   \             read by several threads, straight into
//!                     v        v        v    v            page-locked memory
//!   device            |tensor 0|tensor 1 |t2 |tensor 3     |
//! ```
//!
//! This module has no staging buffers, no threads, no events, and no waits between tensors. The
//! file's bytes are never in pageable memory. Device memory is allocated once, with every tensor at
//! a multiple of [`ALIGNMENT`], as if each tensor had an allocation of its own.

use std::ops::Range;
use std::time::{Duration, Instant};

use pinlane::file::FileReader;
use pinlane::{Device, DeviceBuf, DeviceSlice, PinnedPool, Stream, Ticket};

use super::error::Result;
use super::tensor_file::TensorFile;

/// CUDA aligns allocations to this many bytes. So any kernel can use any tensor.
const ALIGNMENT: usize = 256;

/// How the file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// By threads, from the page cache.
    Cached,
    /// By threads, past the page cache.
    Direct,
    /// By the device, out of a page-locked mapping of the page cache.
    Mapped,
}

/// A file whose tensors are on the device.
pub struct Loaded {
    /// The reader that has loaded them.
    pub reader: FileReader,
    memory: DeviceBuf<u8>,
    /// In the order of the file.
    places: Vec<Range<usize>>,
    /// The time to allocate the device memory.
    pub allocation: Duration,
    /// The time of the first load: opening, allocating, page-locking, starting threads, reading,
    /// uploading.
    pub first: Duration,
    /// The times of the other loads, to the same place: reading, uploading.
    pub again: Vec<Duration>,
    /// The time of the link for as many bytes. An emulated device has no link.
    pub ceiling: Option<Duration>,
}

impl Loaded {
    /// Tensor number `index`, in the order of the file.
    pub fn tensor(&self, index: usize) -> Result<DeviceSlice<'_, u8>> {
        Ok(self.memory.slice(self.places[index].clone())?)
    }
}

/// Loads all tensors of `file`, `loads` times.
pub fn load(
    file: &TensorFile,
    reading: Reading,
    device: &Device,
    stream: &Stream,
    loads: usize,
) -> Result<Loaded> {
    let start = Instant::now();
    let mut bytes = 0usize;
    let place = |tensor: &super::tensor_file::Tensor| {
        let start = bytes.next_multiple_of(ALIGNMENT);
        bytes = start + tensor.bytes;
        start..bytes
    };
    let places: Vec<_> = file.tensors().iter().map(place).collect();
    let mut memory = device.alloc::<u8>(bytes)?;
    let allocation = start.elapsed();
    let reader = match reading {
        Reading::Cached => FileReader::open(file.path())?,
        Reading::Direct => FileReader::open_direct(file.path())?,
        Reading::Mapped => FileReader::open_mapped(device, file.path())?,
    };
    upload(file, &reader, stream, &mut memory, &places)?.wait()?;
    let first = start.elapsed();

    let mut again = Vec::new();
    for _ in 1..loads {
        let start = Instant::now();
        upload(file, &reader, stream, &mut memory, &places)?.wait()?;
        again.push(start.elapsed());
    }
    let ceiling = ceiling(device, stream, file.bytes())?;
    Ok(Loaded { reader, memory, places, allocation, first, again, ceiling })
}

/// The time of a bare copy of `bytes` bytes of page-locked memory, from the median of five.
fn ceiling(device: &Device, stream: &Stream, bytes: usize) -> Result<Option<Duration>> {
    let part = bytes.min(64 << 20);
    if part == 0 || device.emulator().is_some() {
        return Ok(None);
    }
    let pool = PinnedPool::builder(device).build()?;
    let host = pool.alloc_zeroed::<u8>(part)?;
    let mut gpu = device.alloc::<u8>(part)?;
    let mut times = [Duration::ZERO; 5];
    for time in &mut times {
        let start = Instant::now();
        stream.upload(&host, &mut gpu)?.wait()?;
        *time = start.elapsed();
    }
    times.sort_unstable();
    Ok(Some(times[2].mul_f64(bytes as f64 / part as f64)))
}

/// Returns when the file has been read. The ticket says when all of it has arrived.
fn upload(
    file: &TensorFile,
    reader: &FileReader,
    stream: &Stream,
    memory: &mut DeviceBuf<u8>,
    places: &[Range<usize>],
) -> Result<Ticket> {
    let (mut rest, mut end) = (memory.as_slice_mut(), 0);
    let mut ranges = Vec::with_capacity(places.len());
    for (tensor, place) in file.tensors().iter().zip(places) {
        let (_, behind) = rest.split_at_mut(place.start - end)?;
        let (part, behind) = behind.split_at_mut(place.len())?;
        ranges.push((tensor.start, part));
        (rest, end) = (behind, place.end);
    }
    Ok(stream.upload_file_ranges(reader, ranges)?)
}
