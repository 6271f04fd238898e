//! The proof that the tensors arrived: the file is read a second time, into ordinary memory, and the
//! device has to agree with it.
//!
//! * *Every* tensor: the device's checksum of it equals the host's.
//! * Some, or all with `--verify-all`: downloaded and compared byte for byte.
//!
//! The second read does not pass through the crate. Whatever went wrong on the way to the device, the
//! expected bytes know nothing of it.

use std::time::{Duration, Instant};

use pinlane::{DeviceBuf, checksum};

use super::error::{Error, Result};
use super::load::Lanes;
use super::tensor_file::TensorFile;

/// One in this many tensors is downloaded, and the largest.
const DOWNLOADED: usize = 8;

/// What was compared, and found equal.
pub struct Verified {
    /// The checksum of each tensor.
    pub sums: Vec<u64>,
    /// Which tensors were downloaded and compared byte for byte, too.
    pub downloaded: Vec<bool>,
    /// The time that it took.
    pub elapsed: Duration,
}

/// Compares the tensors on the device with `file`; `checked` is told the bytes of each tensor.
pub fn verify(
    file: &TensorFile,
    loaded: &[DeviceBuf<u8>],
    lanes: &Lanes,
    all: bool,
    checked: impl Fn(usize),
) -> Result<Verified> {
    let start = Instant::now();
    let sums = device_checksums(loaded, lanes)?;
    let is_largest = |tensor| file.largest().is_some_and(|largest| std::ptr::eq(largest, tensor));
    let tensors = file.tensors().iter().enumerate();
    let downloaded: Vec<bool> = tensors
        .map(|(index, tensor)| all || index % DOWNLOADED == 0 || is_largest(tensor))
        .collect();

    let mut expected = Vec::new();
    for (index, tensor) in file.tensors().iter().enumerate() {
        let stream = &lanes.streams[index % lanes.streams.len()];
        expected.resize(tensor.bytes, 0);
        for piece in file.pieces_of(index, lanes.block) {
            let expected = &mut expected[piece.range.clone()];
            if !downloaded[index] {
                file.read(&piece, expected)?;
                continue;
            }
            let mut block = lanes.pool.alloc::<u8>(lanes.block)?;
            let mut host = block.slice_mut(..expected.len())?;
            stream.download(loaded[index].slice(piece.range.clone())?, host.reborrow())?;
            file.read(&piece, expected)?; // while the copy runs
            let found = host.as_slice().read()?; // waits for the copy
            if let Some(at) = expected.iter().zip(found).position(|(a, b)| a != b) {
                let at = piece.range.start + at;
                return Err(Error::mismatch(tensor, format!("byte {at} differs")));
            }
        }
        let sum = checksum(&expected);
        if sum != sums[index] {
            let found = format!("its checksum is {:016x}, not {sum:016x}", sums[index]);
            return Err(Error::mismatch(tensor, found));
        }
        checked(tensor.bytes);
    }
    Ok(Verified { sums, downloaded, elapsed: start.elapsed() })
}

/// The checksum of every tensor, computed where the tensors are.
fn device_checksums(loaded: &[DeviceBuf<u8>], lanes: &Lanes) -> Result<Vec<u64>> {
    let mut sums = lanes.device.alloc::<u64>(loaded.len())?;
    for (index, tensor) in loaded.iter().enumerate() {
        let stream = &lanes.streams[index % lanes.streams.len()];
        stream.checksum(tensor, sums.slice_mut(index..=index)?)?;
    }
    // No stream need be waited for: the download is ordered after all those that wrote the sums.
    let mut host = lanes.pool.alloc::<u64>(sums.len())?;
    lanes.streams[0].download(&sums, &mut host)?;
    Ok(host.read()?.to_vec())
}
