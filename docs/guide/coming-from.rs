//! The programs of "Coming from PyTorch, RMM, cudarc or CUDA". tests/build/guides.rs runs them.

use pinlane::prefetch::Prefetch;
use pinlane::{Device, PinnedPool, Result};

// ANCHOR: pytorch
pub fn pytorch() -> Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
    let stream = device.stream()?;
    // for batch in DataLoader(dataset, num_workers=2, pin_memory=True):
    //     images = batch.to("cuda", non_blocking=True)
    let dataset = (0..10u32).map(|number| vec![number; 4096]);
    let mut sums = device.alloc::<u64>(10)?;
    for batch in Prefetch::new(dataset, &pool, &stream).workers(2).start()? {
        let batch = batch?;
        let at = batch.index() as usize;
        stream.checksum(batch.slice::<u32>("0")?, sums.slice_mut(at..=at)?)?; // your kernels
    }
    // losses = sums.to("cpu", non_blocking=True); torch.cuda.synchronize(); losses.sum()
    let mut losses = pool.alloc::<u64>(10)?;
    stream.download(&sums, &mut losses)?;
    println!("{}", losses.read()?.iter().fold(0, |sum: u64, loss| sum.wrapping_add(*loss)));
    Ok(())
}
// ANCHOR_END: pytorch

// ANCHOR: cudarc
pub fn cudarc() -> Result<()> {
    let device = Device::open_or_emulated()?; // CudaContext::new(0)?
    let stream = device.stream()?; // context.new_stream()?
    let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;

    let mut a = device.alloc::<f32>(1000)?; // stream.alloc(1000), unsafe there
    stream.fill(&mut a, 0.0)?; // stream.memset_zeros(&mut a)?
    stream.upload_slice(&[1.0; 1000], &mut a)?; // stream.memcpy_htod(&[1.0; 1000], &mut a)?

    let mut back = vec![0.0; 1000];
    stream.download_slice(&a, &mut back)?; // stream.memcpy_dtoh(&a, &mut back)?
    assert_eq!(back, [1.0; 1000]); // there: only after stream.synchronize()?

    let mut host = pool.alloc::<f32>(1000)?; // context.alloc_pinned(1000), unsafe there
    host.write()?.fill(2.0);
    stream.upload(&host, &mut a)?; // stream.memcpy_htod(&host, &mut a)?
    Ok(())
}
// ANCHOR_END: cudarc
