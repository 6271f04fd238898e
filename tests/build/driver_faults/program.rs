//! A program that makes every call of the driver that the crate knows, twice. The first time one of
//! them fails.

use std::time::Duration;

use pinlane::batch::{Route, Uploads};
use pinlane::pool::PageLocking;
use pinlane::trace::Recording;
use pinlane::{CudaCode, Device, Error, ErrorKind, PinnedPool, Result, Stream, Strided, Strides};

const LEN: usize = 1000;

/// Devices, and what the steps share.
struct Rig {
    device: Device,
    other: Device,
    stream: Stream,
    pools: [PinnedPool; 2],
}

impl Rig {
    fn new() -> Result<Rig> {
        let (device, other) = (Device::open(0)?, Device::open(1)?);
        let stream = device.stream()?;
        let pool = |how| PinnedPool::builder(&device).max_bytes(4 << 20).page_locking(how).build();
        let pools = [pool(PageLocking::Register)?, pool(PageLocking::Allocate)?];
        Ok(Rig { device, other, stream, pools })
    }

    /// The bytes that are never freed, because the device may still use them.
    fn kept(&self) -> usize {
        let devices = [&self.device, &self.other].map(Device::quarantined_bytes);
        let pools = self.pools.each_ref().map(|pool| pool.stats().quarantined_bytes);
        devices.into_iter().chain(pools).sum()
    }
}

type Step = (&'static str, fn(&Rig) -> Result<()>);

const STEPS: [Step; 10] = [
    ("page-locked memory", page_locked),
    ("a block that is in use", in_use),
    ("pageable memory", pageable),
    ("a batch by each route", batch),
    ("between devices", between_devices),
    ("kernels", kernels),
    ("host functions", host_functions),
    ("a recording", recorded),
    ("a graph", graph),
    ("rows that lie a pitch apart", strided),
];

fn page_locked(rig: &Rig) -> Result<()> {
    for pool in &rig.pools {
        let (mut host, mut gpu) = (pool.alloc::<u32>(LEN)?, rig.device.alloc::<u32>(LEN)?);
        host.write()?.fill(7);
        rig.stream.upload(&host, &mut gpu)?;
        let later = rig.device.stream()?;
        let mut back = pool.alloc_zeroed::<u32>(LEN)?;
        later.download(&gpu, &mut back)?;
        assert_eq!(back.read()?, [7; LEN]);
        drop((host, back, gpu));
        pool.trim()?;
    }
    let mut registered = rig.device.register(vec![3u32; LEN])?;
    let mut gpu = rig.device.alloc::<u32>(LEN)?;
    rig.stream.upload(&registered, &mut gpu)?;
    registered.write()?.fill(4);
    drop(registered.into_inner()?);
    assert!(rig.device.memory_info()?.free > 0);
    Ok(())
}

fn in_use(rig: &Rig) -> Result<()> {
    let pool = PinnedPool::builder(&rig.device).max_bytes(4096).build()?;
    let (host, mut gpu) = (pool.alloc::<u32>(LEN)?, rig.device.alloc::<u32>(LEN)?);
    // So many streams that the buffer looks which of them are done.
    for _ in 0..17 {
        let mut far = rig.device.alloc::<u32>(1)?;
        rig.device.stream()?.upload(host.slice(..1)?, &mut far)?;
    }
    rig.stream.upload(&host, &mut gpu)?;
    drop(host);
    match pool.try_alloc::<u32>(LEN) {
        Err(error) if error.kind() != ErrorKind::NotReady => return Err(error),
        _ => {}
    }
    pool.alloc::<u32>(LEN).map(drop)
}

fn pageable(rig: &Rig) -> Result<()> {
    let (values, mut back) = (vec![5u32; LEN], vec![0u32; LEN]);
    let mut gpu = rig.device.alloc::<u32>(LEN)?;
    let legacy = rig.device.legacy_stream();
    legacy.upload_slice(&values, &mut gpu)?;
    legacy.download_slice(&gpu, &mut back)?;
    assert_eq!(back, values);
    Ok(())
}

fn batch(rig: &Rig) -> Result<()> {
    for route in [Route::Copies, Route::BatchCall, Route::Kernel] {
        let mut host = rig.pools[0].alloc::<u32>(LEN)?;
        host.write()?.fill(6);
        let mut gpus = (0..4).map(|_| rig.device.alloc::<u32>(10)).collect::<Result<Vec<_>>>()?;
        let mut list = Uploads::new().route(route);
        for (number, gpu) in gpus.iter_mut().enumerate() {
            list.push((host.slice(20 * number..20 * number + 10)?, gpu));
        }
        rig.stream.upload_list(&mut list)?;
        drop(list);
        let mut back = vec![vec![0; 10]; 4];
        rig.stream.download_batch(gpus.iter().zip(&mut back))?.wait()?;
        assert_eq!(back, vec![vec![6; 10]; 4]);
    }
    Ok(())
}

fn between_devices(rig: &Rig) -> Result<()> {
    let mut here = rig.device.alloc::<u32>(LEN)?;
    let (mut within, mut there) = (rig.device.alloc(LEN)?, rig.other.alloc(LEN)?);
    rig.stream.fill(&mut here, 8)?;
    rig.stream.copy(&here, &mut within)?;
    rig.stream.copy(&within, &mut there)?;
    let mut back = vec![0; LEN];
    rig.other.stream()?.download_slice(&there, &mut back)?;
    assert_eq!(back, [8; LEN]);
    Ok(())
}

fn kernels(rig: &Rig) -> Result<()> {
    let (mut gpu, mut sum) = (rig.device.alloc::<u32>(LEN)?, rig.device.alloc::<u64>(1)?);
    rig.stream.busy(Duration::from_nanos(1))?;
    rig.stream.fill(&mut gpu, 1)?;
    rig.stream.checksum(&gpu, &mut sum)?;
    rig.stream.synchronize()
}

fn host_functions(rig: &Rig) -> Result<()> {
    let (send, receive) = std::sync::mpsc::channel();
    let ticket = rig.stream.launch_host(move || send.send(9).expect("the program waits"))?;
    ticket.wait()?;
    assert_eq!(receive.recv(), Ok(9));
    Ok(())
}

fn recorded(rig: &Rig) -> Result<()> {
    let recording = Recording::new();
    rig.device.record(&recording)?;
    let mut gpu = rig.device.alloc::<u32>(LEN)?;
    rig.stream.fill(&mut gpu, 2)?.wait()?;
    recording.stop()?;
    Ok(())
}

fn graph(rig: &Rig) -> Result<()> {
    let mut capture = rig.device.capture()?;
    let (input, output) = (capture.own(rig.pools[0].alloc::<u32>(LEN)?), rig.pools[0].alloc(LEN)?);
    let (gpu, output) = (capture.own(rig.device.alloc::<u32>(LEN)?), capture.own(output));
    capture.upload(input, gpu)?;
    capture.download(gpu, output)?;
    let mut graph = capture.finish()?;
    for value in 1..3 {
        let mut fresh = rig.pools[0].alloc::<u32>(LEN)?;
        fresh.write()?.fill(value);
        drop(graph.rebind(input, fresh)?);
        graph.launch(&rig.stream)?;
        assert_eq!(graph.get(output)?.read()?, [value; LEN]);
    }
    Ok(())
}

fn strided(rig: &Rig) -> Result<()> {
    let plane = Strides::new(80, 4, 100);
    for strides in [plane, plane.planes(2, 500)] {
        let elements = strides.row * strides.rows * strides.planes;
        let mut host = rig.pools[0].alloc::<u32>(LEN)?;
        host.write()?.fill(5);
        let mut here = rig.device.alloc::<u32>(elements)?;
        rig.stream.upload_strided(Strided::new(host.as_slice(), strides)?, &mut here)?;
        let mut there = rig.other.alloc::<u32>(LEN)?;
        rig.stream.copy_strided(&here, Strided::new(there.as_slice_mut(), strides)?)?;
        let mut back = rig.pools[0].alloc_zeroed::<u32>(elements)?;
        let far = rig.other.stream()?;
        far.download_strided(Strided::new(there.as_slice(), strides)?, &mut back)?;
        assert_eq!(back.read()?, vec![5; elements]);
    }
    Ok(())
}

/// Runs all steps. Returns their errors, and the bytes that are kept.
fn run() -> (Vec<(&'static str, Error)>, usize) {
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(error) => return (vec![("the setup", error)], 0),
    };
    let failed = STEPS.iter().filter_map(|(name, step)| Some((*name, step(&rig).err()?)));
    let failed = failed.collect();
    (failed, rig.kept())
}

/// Runs all steps, which all must succeed.
pub fn run_once() {
    let (failed, kept) = run();
    assert!(failed.is_empty(), "without a fault: {failed:?}");
    println!("\nkept: {kept}");
}

/// Runs all steps, where one call gives this code, once; then again. Prints the bytes that are
/// kept.
pub fn run_twice(injected: CudaCode) {
    let loses = injected.is_sticky();
    let (first, kept_first) = run();
    for (step, error) in &first {
        // The code of the fault, or that a way of copying is closed, or a block is kept.
        let is_explained = error.cuda_code() == Some(injected)
            || error.kind() == ErrorKind::DeviceLost && loses
            || matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::NoDevice)
            || error.kind() == ErrorKind::BudgetExhausted && kept_first > 0;
        assert!(is_explained, "{step}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(error.operation()) && !error.remedy().is_empty(), "{step}: {text}");
    }
    assert!(loses || first.len() <= 1, "one call fails one step: {first:?}");
    let (second, kept) = run();
    assert!(loses || second.is_empty(), "after {first:?}: {second:?}");
    println!("\nkept: {}", kept.max(kept_first));
}
