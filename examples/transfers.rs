//! Every kind of transfer in a few lines, as docs/guide/transfers.md shows them.
//!
//! ```text
//! cargo run --release --example transfers
//! ```

use pinlane::batch::{Pairs, Parts};
use pinlane::file::FileReader;
use pinlane::prefetch::Prefetch;
use pinlane::staging::{CopyTeam, Staging};
use pinlane::{Device, PinnedPool, Result, Stream, Strided, Strides};

fn main() -> Result<()> {
    let device = Device::open_or_emulated()?;
    options(&device)?;
    all(&device)?;
    println!("{}: all data arrived", device.name());
    Ok(())
}

/// Everything that needs only a device.
pub fn all(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    slices(device, &stream)?;
    batches(device, &stream)?;
    pairs(device, &stream)?;
    rows(device, &stream)?;
    parts(device, &stream)?;
    strided(device, &stream)?;
    prefetched(device, &stream)?;
    let path = std::env::temp_dir().join(format!("pinlane-transfers-{}", std::process::id()));
    std::fs::write(&path, vec![0; 8 + 4 * 1100]).expect("the temporary folder takes files");
    let loaded = file(device, &stream, &path);
    let _ = std::fs::remove_file(&path);
    loaded
}

// ANCHOR: slices
fn slices(device: &Device, stream: &Stream) -> Result<()> {
    let samples = vec![0.5f32; 1 << 20];
    let mut results = vec![0.0f32; 1 << 20];
    let mut gpu = device.alloc::<f32>(1 << 20)?;
    stream.upload_slice(&samples, &mut gpu)?; // `samples` may be reused or dropped now
    stream.download_slice(&gpu, &mut results)?; // `results` is there now

    assert_eq!(results, samples);
    Ok(())
}
// ANCHOR_END: slices

// ANCHOR: batches
fn batches(device: &Device, stream: &Stream) -> Result<()> {
    let weights: Vec<Vec<f32>> = (0..1000).map(|i| vec![i as f32; 1000]).collect();
    let mut gpu = weights.iter().map(|w| device.alloc(w.len())).collect::<Result<Vec<_>>>()?;
    stream.upload_batch(weights.iter().zip(&mut gpu))?; // pageable and page-locked may be mixed

    let mut back = vec![vec![0.0f32; 1000]; 1000];
    stream.download_batch_each(gpu.iter().zip(&mut back), |number, bytes| {
        // Called as each piece arrives.
        assert_eq!(bytes, bytemuck::cast_slice::<f32, u8>(&weights[number]));
    })?;

    Ok(())
}
// ANCHOR_END: batches

// ANCHOR: pairs
fn pairs(device: &Device, stream: &Stream) -> Result<()> {
    let pool = PinnedPool::builder(device).build()?;
    let mut host = (0..100).map(|_| pool.alloc_zeroed(1000)).collect::<Result<Vec<_>>>()?;
    let mut gpu = (0..100).map(|_| device.alloc(1000)).collect::<Result<Vec<_>>>()?;
    let mut state: Pairs<f32> = host.iter_mut().zip(&mut gpu).collect();
    stream.upload_pairs(&mut state)?;
    for _ in 0..10 {
        stream.download_pairs(&mut state)?;
        state.host_mut(7).into_write()?[0] += 1.0; // waits for the download
        stream.upload_pairs(&mut state)?;
    }

    stream.download_pairs(&mut state)?;
    assert_eq!(state.host(7).read()?[0], 10.0);
    Ok(())
}
// ANCHOR_END: pairs

// ANCHOR: rows
fn rows(device: &Device, stream: &Stream) -> Result<()> {
    let pool = PinnedPool::builder(device).build()?;
    let mut table = pool.alloc_zeroed::<f32>(1000 * 64)?; // 1000 rows of 64 numbers
    table.write()?[7 * 64..8 * 64].fill(1.5);
    let mut rows = device.alloc::<f32>(3 * 64)?;
    stream.upload_rows(&table, &[7u32, 0, 7], &mut rows)?; // rows[i] = table[indices[i]]
    stream.download_rows(&rows, &[2u32, 3, 4], &mut table)?; // table[indices[i]] = rows[i]

    let table = table.read()?;
    assert_eq!([2, 3, 4, 7].map(|row| table[row * 64]), [1.5, 0.0, 1.5, 1.5]);
    Ok(())
}
// ANCHOR_END: rows

// ANCHOR: parts
fn parts(device: &Device, stream: &Stream) -> Result<()> {
    let pool = PinnedPool::builder(device).build()?;
    let mut host = pool.alloc_zeroed::<f32>(1000)?;
    let mut gpu = device.alloc::<f32>(1000)?;
    stream.fill(&mut gpu, 1.0)?;
    // 30 numbers from 0 to 700, 20 from 500 to 100, and 50 from 900 to 300.
    let (from, to, lengths) = ([0, 500, 900], [700, 100, 300], [30, 20, 50]);
    stream.download_parts(&gpu, &mut host, Parts::new(&from, &to, &lengths))?;
    stream.upload_parts(&host, &mut gpu, Parts::of_length(&[0, 100], &[500, 20], 10))?;

    assert_eq!(host.read()?.iter().sum::<f32>(), 100.0);
    Ok(())
}
// ANCHOR_END: parts

// ANCHOR: strided
fn strided(device: &Device, stream: &Stream) -> Result<()> {
    let pool = PinnedPool::builder(device).build()?;
    let mut image = pool.alloc_zeroed::<f32>(480 * 640)?; // 480 lines of 640 numbers
    let mut tile = device.alloc::<f32>(64 * 64)?;
    // 64 lines of 64 numbers, from line 100 and column 200 on.
    let (first, lines) = (100 * 640 + 200, Strides::new(64, 64, 640));
    stream.upload_strided(Strided::new(image.slice(first..)?, lines)?, &mut tile)?;
    stream.fill(&mut tile, 1.0)?;
    stream.download_strided(&tile, Strided::new(image.slice_mut(first..)?, lines)?)?;

    assert_eq!(image.read()?.iter().sum::<f32>(), 64.0 * 64.0); // the rest of it is untouched
    Ok(())
}
// ANCHOR_END: strided

// ANCHOR: prefetched
fn prefetched(device: &Device, stream: &Stream) -> Result<()> {
    let pool = PinnedPool::builder(device).max_bytes(64 << 20).build()?;
    let loader = (0..100u32).map(|i| (vec![i as f32; 1000], vec![i; 10])); // any iterator
    let mut sums = device.alloc::<u64>(100)?;
    for batch in Prefetch::new(loader, &pool, stream).depth(3).start()? {
        let batch = batch?; // an error of the loader, or of a copy
        let images = batch.slice::<f32>("0")?; // on the device, in the stream's order
        let at = batch.index() as usize;
        stream.checksum(images, sums.slice_mut(at..=at)?)?; // your kernels here
    }

    stream.synchronize()
}
// ANCHOR_END: prefetched

// ANCHOR: file
fn file(device: &Device, stream: &Stream, path: &std::path::Path) -> Result<()> {
    let file = FileReader::open(path)?; // or `open_direct`, which bypasses the page cache
    let mut weights = device.alloc::<f32>(1000)?;
    let mut biases = device.alloc::<f32>(100)?;
    stream.upload_file_ranges(&file, [(8, &mut weights), (4008, &mut biases)])?; // one job

    stream.synchronize()
}
// ANCHOR_END: file

// ANCHOR: options
/// Must be called before the first copy.
pub fn options(device: &Device) -> Result<()> {
    CopyTeam::new().threads(4).install()?; // per process: how many threads help
    device.set_staging(Staging::new().ring_bytes(128 << 20))?; // per device, before its first copy
    device.warm_up(); // page-locks that memory on another thread, before the first copy wants it

    Ok(())
}
// ANCHOR_END: options
