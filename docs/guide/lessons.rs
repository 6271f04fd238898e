//! The programs of "Good use of page-locked memory": each function is one that the guide shows.
//! tests/build/guides.rs runs all of them, also as late as CUDA allows.

use std::path::Path;
use std::time::{Duration, Instant};

use pinlane::file::FileReader;
use pinlane::prefetch::{FillBatch, Prefetch, Reserved};
use pinlane::{Device, ErrorKind, PinnedPool, Result, Stream, checksum};

// ANCHOR: fill_in_place
pub fn fill_in_place(device: &Device, pool: &PinnedPool, stream: &Stream) -> Result<()> {
    let mut host = pool.alloc::<f32>(1 << 16)?; // page-locked, from the pool
    host.write()?.fill(0.5); // read, decode or compute into it
    let mut gpu = device.alloc::<f32>(1 << 16)?;
    stream.upload(&host, &mut gpu)?; // returns at once
    Ok(())
}
// ANCHOR_END: fill_in_place

// ANCHOR: ordinary_memory
pub fn ordinary_memory(device: &Device, stream: &Stream) -> Result<()> {
    let mut samples = vec![0.5f32; 1 << 20];
    let mut gpu = device.alloc::<f32>(1 << 20)?;
    stream.upload_slice(&samples, &mut gpu)?;
    samples.fill(0.0); // fine: what returns has read the slice
    stream.download_slice(&gpu, &mut samples)?; // returns when the data is there
    assert_eq!(samples[0], 0.5);
    Ok(())
}
// ANCHOR_END: ordinary_memory

// ANCHOR: many
pub fn many(device: &Device, stream: &Stream) -> Result<()> {
    let weights: Vec<Vec<f32>> = (0..1000).map(|i| vec![i as f32; 1000]).collect();
    let mut gpu = weights.iter().map(|w| device.alloc(w.len())).collect::<Result<Vec<_>>>()?;
    let all = stream.upload_batch(weights.iter().zip(&mut gpu))?; // one call
    all.wait() // one wait, if you need one
}
// ANCHOR_END: many

// ANCHOR: reuse_the_source
pub fn reuse_the_source(device: &Device, pool: &PinnedPool, stream: &Stream) -> Result<()> {
    let mut host = pool.alloc::<u32>(1 << 12)?;
    let mut gpu = (0..4).map(|_| device.alloc::<u32>(1 << 12)).collect::<Result<Vec<_>>>()?;
    for (number, gpu) in gpu.iter_mut().enumerate() {
        host.write()?.fill(number as u32); // waits until the device has read what was there
        stream.upload(&host, gpu)?;
    }
    drop(host); // the block has its next owner only when the last copy is done
    let mut first = pool.alloc::<u32>(1 << 12)?;
    stream.download(&gpu[0], &mut first)?;
    assert_eq!(first.read()?[0], 0);
    Ok(())
}
// ANCHOR_END: reuse_the_source

// ANCHOR: read_when_there
pub fn read_when_there(device: &Device, pool: &PinnedPool, stream: &Stream) -> Result<()> {
    let mut gpu = device.alloc::<u8>(1 << 16)?;
    let mut host = pool.alloc::<u8>(1 << 16)?;
    stream.fill(&mut gpu, 2)?; // your kernel
    stream.download(&gpu, &mut host)?; // returns at once
    match host.try_read() {
        Ok(bytes) => assert_eq!(bytes[0], 2), // it was there already
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotReady), // never old bytes
    }
    assert!(host.read()?.iter().all(|&byte| byte == 2)); // waits for that copy
    Ok(())
}
// ANCHOR_END: read_when_there

// ANCHOR: overlap
pub fn overlap(device: &Device, pool: &PinnedPool) -> Result<()> {
    const CHUNK: usize = 1 << 14;
    let (copies, kernels) = (device.stream()?, device.stream()?);
    let mut source = pool.alloc::<u8>(8 * CHUNK)?;
    source.write()?.chunks_mut(CHUNK).zip(0..).for_each(|(chunk, i)| chunk.fill(i));
    let mut ring = [device.alloc::<u8>(CHUNK)?, device.alloc::<u8>(CHUNK)?];
    let mut sums = device.alloc::<u64>(8)?;

    for i in 0..8 {
        let chunk = &mut ring[i % 2];
        // On the device: after the kernel that still reads this half of the ring.
        copies.upload(source.slice(i * CHUNK..(i + 1) * CHUNK)?, &mut *chunk)?;
        // On the device: after that upload, and in parallel with the next one.
        kernels.checksum(&*chunk, sums.slice_mut(i..=i)?)?;
    }

    let mut results = pool.alloc::<u64>(8)?;
    kernels.download(&sums, &mut results)?;
    let results = results.read()?; // the only wait of the host
    assert_eq!(results[7], checksum(&[7; CHUNK]));
    Ok(())
}
// ANCHOR_END: overlap

// ANCHOR: download_while_computing
pub fn download_while_computing(device: &Device, pool: &PinnedPool) -> Result<()> {
    let (kernels, downloads) = (device.stream()?, device.stream()?);
    let mut snapshots = Vec::new();
    for step in 0..4u64 {
        let mut state = device.alloc::<u64>(1 << 12)?;
        kernels.fill(&mut state, step)?; // your kernel
        let mut snapshot = pool.alloc::<u64>(1 << 12)?;
        downloads.download(&state, &mut snapshot)?; // after this kernel, beside the next one
        snapshots.push(snapshot);
    } // `state` is dropped in the middle of its copy: its memory is freed after the copy
    for (step, snapshot) in snapshots.iter().enumerate() {
        assert!(snapshot.read()?.iter().all(|&value| value == step as u64));
    }
    Ok(())
}
// ANCHOR_END: download_while_computing

// ANCHOR: prefetch
pub fn prefetch(device: &Device, pool: &PinnedPool, stream: &Stream) -> Result<()> {
    let loader = (0..20u32).map(|number| {
        // A thread of the pipeline calls this closure, with page-locked memory to write to.
        let room = [Reserved::of::<u32>("images", 4096), Reserved::of::<u32>("labels", 64)];
        FillBatch::new(room, move |block| {
            block.slice_mut::<u32>("images")?.fill(number); // decode here
            block.slice_mut::<u32>("labels")?.fill(number);
            Ok::<(), pinlane::Error>(())
        })
    });
    let mut sums = device.alloc::<u64>(20)?;
    for batch in Prefetch::new(loader, pool, stream).depth(3).workers(2).start()? {
        let batch = batch?;
        let at = batch.index() as usize;
        let images = batch.slice::<u32>("images")?; // on the device, in the stream's order
        stream.checksum(images, sums.slice_mut(at..=at)?)?; // your kernels
    } // the batch's memory is reused only after them
    stream.synchronize()
}
// ANCHOR_END: prefetch

// ANCHOR: file
pub fn file(device: &Device, stream: &Stream, path: &Path) -> Result<()> {
    let file = FileReader::open(path)?;
    let mut weights = device.alloc::<f32>(1000)?;
    let mut biases = device.alloc::<f32>(100)?;
    let loaded = stream.upload_file_ranges(&file, [(8, &mut weights), (4008, &mut biases)])?;
    loaded.wait()
}
// ANCHOR_END: file

// ANCHOR: budget
pub fn budget(device: &Device) -> Result<()> {
    let pool = PinnedPool::builder(device).max_bytes(1 << 20).build()?; // page-locks no more
    let whole = pool.alloc::<u8>(1 << 20)?;
    let refused = pool.alloc_timeout::<u8>(4096, Duration::from_millis(1)); // or `try_alloc`
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(whole);
    pool.alloc::<u8>(4096)?; // there is room again
    pool.trim()?; // gives free memory back to the system
    println!("{}", pool.stats()); // who holds what
    Ok(())
}
// ANCHOR_END: budget

// ANCHOR: time
pub fn time(device: &Device, pool: &PinnedPool, stream: &Stream) -> Result<Duration> {
    let host = pool.alloc_zeroed::<u8>(1 << 20)?;
    let mut gpu = device.alloc::<u8>(1 << 20)?;
    stream.upload(&host, &mut gpu)?.wait()?; // not timed: allocates the device memory
    let start = Instant::now();
    let copied = stream.upload(&host, &mut gpu)?; // returns at once: this is not the copy's time
    copied.wait()?;
    Ok(start.elapsed())
}
// ANCHOR_END: time
