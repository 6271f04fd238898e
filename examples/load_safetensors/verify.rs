//! The proof that the tensors arrived. The file is read a second time, into pageable memory, and
//! compared with the device.
//!
//! * *Every* tensor: the device's checksum equals the host's.
//! * Some tensors, or all with `--verify-all`: downloaded and compared byte by byte.
//!
//! The second read does not go through the crate. So an error on the way to the device cannot
//! change the expected bytes.

use std::time::{Duration, Instant};

use pinlane::{Device, Stream, checksum};

use super::error::{Error, Result};
use super::load::Loaded;
use super::tensor_file::TensorFile;

/// One in this many tensors is downloaded, and the largest one too.
const DOWNLOADED: usize = 8;

/// The result of the comparison.
pub struct Verified {
    /// The checksum of each tensor.
    pub sums: Vec<u64>,
    /// Which tensors were also downloaded and compared byte by byte.
    pub downloaded: Vec<bool>,
    /// The time that verifying took.
    pub elapsed: Duration,
}

/// Compares the tensors on the device with `file`. After each tensor, calls `checked` with its
/// bytes.
pub fn verify(
    file: &TensorFile,
    loaded: &Loaded,
    device: &Device,
    stream: &Stream,
    all: bool,
    checked: impl Fn(usize),
) -> Result<Verified> {
    let start = Instant::now();
    let sums = device_checksums(file, loaded, device, stream)?;
    let largest = file.largest();
    let downloaded: Vec<bool> = (0..file.tensors().len())
        .map(|index| all || index % DOWNLOADED == 0 || largest == Some(index))
        .collect();

    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for (index, tensor) in file.tensors().iter().enumerate() {
        expected.resize(tensor.bytes, 0);
        file.read(tensor, &mut expected)?;
        if downloaded[index] {
            found.resize(tensor.bytes, 0);
            stream.download_slice(loaded.tensor(index)?, &mut found)?;
            if let Some(at) = expected.iter().zip(&found).position(|(a, b)| a != b) {
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

/// The checksum of every tensor, computed on the device.
fn device_checksums(
    file: &TensorFile,
    loaded: &Loaded,
    device: &Device,
    stream: &Stream,
) -> Result<Vec<u64>> {
    let mut host = vec![0; file.tensors().len()];
    let mut sums = device.alloc::<u64>(host.len())?;
    for index in 0..host.len() {
        stream.checksum(loaded.tensor(index)?, sums.slice_mut(index..=index)?)?;
    }
    stream.download_slice(&sums, &mut host)?;
    Ok(host)
}
