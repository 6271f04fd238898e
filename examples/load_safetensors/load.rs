//! The heart: all tensors of a file, to the device, in one job.
//!
//! ```text
//!   file      |header|tensor 0|tensor 1|t2|tensor 3     |
//!                     |        |        |   \             read by several threads, straight into
//!                     v        v        v    v            page-locked memory
//!   device            |tensor 0|tensor 1 |t2 |tensor 3     |
//! ```
//!
//! What there is *not*: no staging buffers, no threads, no events, no waiting between tensors. The
//! file is never in ordinary memory. The device's memory is allocated once, with every tensor at a
//! multiple of [`ALIGNMENT`], as if each had been allocated by itself.

use std::ops::Range;
use std::time::{Duration, Instant};

use pinlane::{Device, DeviceBuf, DeviceSlice, Stream, Ticket};

use super::error::Result;
use super::tensor_file::TensorFile;

/// What CUDA aligns an allocation to, so that any kernel may have any tensor.
const ALIGNMENT: usize = 256;

/// A file whose tensors are on the device.
pub struct Loaded {
    memory: DeviceBuf<u8>,
    /// In the order of the file.
    places: Vec<Range<usize>>,
    /// The allocation of the device's memory.
    pub allocation: Duration,
    /// The first load: the allocation, page-locking, starting threads, reading, uploading.
    pub first: Duration,
    /// The other loads, to the same place: reading, uploading.
    pub again: Vec<Duration>,
}

impl Loaded {
    /// The tensor of that number in the order of the file.
    pub fn tensor(&self, index: usize) -> Result<DeviceSlice<'_, u8>> {
        Ok(self.memory.slice(self.places[index].clone())?)
    }
}

/// Loads all of `file`, `loads` times.
pub fn load(file: &TensorFile, device: &Device, stream: &Stream, loads: usize) -> Result<Loaded> {
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
    upload(file, stream, &mut memory, &places)?.wait()?;
    let first = start.elapsed();

    let mut again = Vec::new();
    for _ in 1..loads {
        let start = Instant::now();
        upload(file, stream, &mut memory, &places)?.wait()?;
        again.push(start.elapsed());
    }
    Ok(Loaded { memory, places, allocation, first, again })
}

/// Returns when the file has been read; the ticket says when all of it has arrived.
fn upload(
    file: &TensorFile,
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
    Ok(stream.upload_file_ranges(file.reader(), ranges)?)
}
