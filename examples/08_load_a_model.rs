//! Loads a model: the tensors of a safetensors file, from the file to the device by one call.
//!
//! ```text
//! test.labels      I64, 2880 bytes: true
//! train.labels     I64, 11496 bytes: true
//! pixel.deviation  F32, 256 bytes: true
//! pixel.mean       F32, 256 bytes: true
//! test.images      F32, 92160 bytes: true
//! train.images     F32, 367872 bytes: true
//! ```
//!
//! `load_safetensors` takes any such file, checks that it is sound, and measures.

use std::error::Error;

use pinlane::file::FileReader;
use pinlane::{Device, PinnedPool, checksum};
use safetensors::SafeTensors;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.safetensors");

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).build()?;
    let stream = device.stream()?;

    // The header has the position of each tensor. (This reads the whole file, to compare with it
    // below.)
    let bytes = std::fs::read(MODEL)?;
    let (header, metadata) = SafeTensors::read_metadata(&bytes)?;
    let data = 8 + header; // the length of the header comes first
    let tensors = metadata.offset_keys();
    let infos = || tensors.iter().map(|name| metadata.info(name).expect("a name of the header"));

    // One buffer for each tensor, one job for all. Threads read the file into page-locked memory.
    let sizes = infos().map(|info| info.data_offsets.1 - info.data_offsets.0);
    let mut gpu =
        sizes.map(|size| device.alloc::<u8>(size)).collect::<pinlane::Result<Vec<_>>>()?;
    let file = FileReader::open(MODEL)?;
    let starts = infos().map(|info| (data + info.data_offsets.0) as u64);
    stream.upload_file_ranges(&file, starts.zip(&mut gpu))?;

    // The device computes the checksums that the host computes from the file's bytes.
    let mut sums = device.alloc::<u64>(gpu.len())?;
    for (index, tensor) in gpu.iter().enumerate() {
        stream.checksum(tensor, sums.slice_mut(index..=index)?)?;
    }
    let mut host = pool.alloc::<u64>(gpu.len())?;
    stream.download(&sums, &mut host)?;
    for ((name, info), &sum) in tensors.iter().zip(infos()).zip(host.read()?) {
        let (start, end) = info.data_offsets;
        let right = sum == checksum(&bytes[data + start..data + end]);
        println!("{name:<16} {}, {} bytes: {right}", info.dtype, end - start);
    }
    Ok(())
}
