//! Pairs of host and device memory that are copied repeatedly, against a plain model.

use pinlane::batch::{Pairs, Route};
use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, ErrorKind, PinnedPool, Stream};
use proptest::prelude::*;

use crate::common;
use crate::common::faults::{Run, at_every_call};

/// What happens to all pairs, or to one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Up {
        stream: usize,
    },
    Down {
        stream: usize,
    },
    Write {
        pair: usize,
        byte: u8,
    },
    Fill {
        stream: usize,
        pair: usize,
        byte: u8,
    },
    /// One more pair, if there are more.
    Push,
}

#[derive(Clone, Debug)]
struct Case {
    route: Option<Route>,
    /// The lengths of the pairs, and where their host's and device's sides begin.
    shapes: Vec<(usize, usize, usize)>,
    steps: Vec<Step>,
}

fn step() -> impl Strategy<Value = Step> {
    let pair = || 0usize..16;
    prop_oneof![
        3 => (0..2usize).prop_map(|stream| Step::Up { stream }),
        3 => (0..2usize).prop_map(|stream| Step::Down { stream }),
        2 => (pair(), any::<u8>()).prop_map(|(pair, byte)| Step::Write { pair, byte }),
        2 => (0..2usize, pair(), any::<u8>())
            .prop_map(|(stream, pair, byte)| Step::Fill { stream, pair, byte }),
        1 => Just(Step::Push),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let routes = vec![None, Some(Route::Copies), Some(Route::BatchCall), Some(Route::Kernel)];
    // Around the kernel's units and its longest item.
    let length = prop_oneof![
        1 => Just(0usize), 5 => 1usize..70, 3 => 70usize..3000, 1 => 16_000usize..40_000
    ];
    let shapes = prop::collection::vec((length, 0usize..64, 0usize..64), 1..12);
    let steps = prop::collection::vec(step(), 1..24);
    (prop::sample::select(routes), shapes, steps).prop_map(|(route, shapes, steps)| Case {
        route,
        shapes,
        steps,
    })
}

fn value(byte: u8, at: usize) -> u8 {
    byte.wrapping_add((at as u8).wrapping_mul(31))
}

fn painted(byte: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| value(byte, at)).collect()
}

fn check(device: &Device, case: &Case) -> Result<(), TestCaseError> {
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    let pool = PinnedPool::builder(device).build().unwrap();
    let mut hosts = Vec::new();
    let mut gpus = Vec::new();
    for &(length, at_host, at_device) in &case.shapes {
        let mut host = pool.alloc::<u8>(at_host + length).unwrap();
        host.write().unwrap().fill(0xaa);
        let mut gpu = device.alloc::<u8>(at_device + length).unwrap();
        streams[0].fill(&mut gpu, 0xbb).unwrap();
        hosts.push(host);
        gpus.push(gpu);
    }
    let views = hosts.iter_mut().zip(&mut gpus).zip(&case.shapes);
    let mut views = views.map(|((host, gpu), &(_, at_host, at_device))| {
        (host.slice_mut(at_host..).unwrap(), gpu.slice_mut(at_device..).unwrap())
    });
    // Half of them at first.
    let mut pairs = Pairs::<u8>::new().route(case.route);
    let mut model: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let push = vec![Step::Push; case.shapes.len().div_ceil(2)];
    for step in push.into_iter().chain(case.steps.iter().copied()) {
        match step {
            Step::Up { stream } => {
                streams[stream].upload_pairs(&mut pairs).unwrap();
                model.iter_mut().for_each(|(host, gpu)| gpu.clone_from(host));
            }
            Step::Down { stream } => {
                streams[stream].download_pairs(&mut pairs).unwrap();
                model.iter_mut().for_each(|(host, gpu)| host.clone_from(gpu));
            }
            Step::Write { pair, byte } => {
                let pair = pair % pairs.len();
                let host = pairs.host_mut(pair).into_write().unwrap();
                let new = painted(byte, host.len());
                host.copy_from_slice(&new);
                model[pair].0 = new;
            }
            Step::Fill { stream, pair, byte } => {
                let pair = pair % pairs.len();
                streams[stream].fill(pairs.device_mut(pair), byte).unwrap();
                model[pair].1.fill(byte);
            }
            Step::Push => {
                let Some((host, gpu)) = views.next() else { continue };
                model.push((vec![0xaa; host.len()], vec![0xbb; gpu.len()]));
                pairs.push(host, gpu);
            }
        }
    }
    prop_assert_eq!(pairs.len(), model.len());
    for (pair, (host, gpu)) in model.iter().enumerate() {
        prop_assert_eq!(pairs.host(pair).read().unwrap(), host, "pair {}, host", pair);
        let mut back = vec![0; gpu.len()];
        streams[0].download_slice(pairs.device(pair), &mut back).unwrap();
        prop_assert_eq!(&back, gpu, "pair {}, device", pair);
    }
    drop((pairs, views));
    // The bytes before the views are unchanged.
    for ((host, gpu), &(_, at_host, at_device)) in hosts.iter().zip(&gpus).zip(&case.shapes) {
        prop_assert!(host.read().unwrap()[..at_host].iter().all(|&byte| byte == 0xaa));
        let mut back = vec![0; at_device];
        streams[0].download_slice(gpu.slice(..at_device).unwrap(), &mut back).unwrap();
        prop_assert!(back.iter().all(|&byte| byte == 0xbb));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn pairs_are_copied_as_often_as_wanted(case in case()) {
        check(&common::device(), &case)?;
    }

    #[test]
    fn in_every_schedule(case in case(), seed in 0u64..1000, lazy: bool) {
        let execution = if lazy { Execution::Lazy } else { Execution::Chunked };
        let emulator = Emulator::builder().execution(execution).seed(seed).watch_host(true).build();
        check(&Device::of_emulator(&emulator, 0).unwrap(), &case)?;
        prop_assert_eq!(emulator.findings(), []);
    }
}

/// Enough that the copy team checks them, and that the device begins with the first half.
const MANY: usize = 5000;
const EACH: usize = 48;

/// Several rounds up and down. The pairs lie in `buffers` buffers.
fn rounds(device: &Device, buffers: usize) {
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let pool = PinnedPool::builder(device).build().unwrap();
    let in_one = MANY / buffers;
    let mut hosts: Vec<_> =
        (0..buffers).map(|_| pool.alloc_zeroed::<u8>(in_one * EACH).unwrap()).collect();
    let mut gpus: Vec<_> =
        (0..buffers).map(|_| device.alloc::<u8>(in_one * EACH).unwrap()).collect();
    let mut pairs = Pairs::new();
    for (host, gpu) in hosts.iter_mut().zip(&mut gpus) {
        let (mut host, mut gpu) = (host.as_slice_mut(), gpu.as_slice_mut());
        // In reverse order, so that no two are contiguous.
        for n in (0..in_one).rev() {
            let (left, at_host) = host.split_at_mut(n * EACH).unwrap();
            let (before, on_device) = gpu.split_at_mut(n * EACH).unwrap();
            (host, gpu) = (left, before);
            pairs.push(at_host, on_device);
        }
    }
    for round in 0..3u8 {
        for pair in 0..MANY {
            let byte = round.wrapping_mul(7).wrapping_add(pair as u8);
            pairs.host_mut(pair).into_write().unwrap().fill(byte);
        }
        stream.upload_pairs(&mut pairs).unwrap();
        other.fill(pairs.device_mut(17), 0xff).unwrap();
        for pair in 0..MANY {
            pairs.host_mut(pair).into_write().unwrap().fill(0);
        }
        stream.download_pairs(&mut pairs).unwrap();
        for pair in 0..MANY {
            let byte = round.wrapping_mul(7).wrapping_add(pair as u8);
            let byte = if pair == 17 { 0xff } else { byte };
            let found = pairs.host(pair).read().unwrap();
            assert!(found.iter().all(|&it| it == byte), "pair {pair}, round {round}: {found:?}");
        }
    }
}

#[test]
fn many_pairs_of_few_buffers() {
    rounds(&common::device(), 4);
}

#[test]
fn many_pairs_of_a_buffer_each() {
    rounds(&common::device(), MANY);
}

#[test]
fn sides_of_different_lengths_are_refused_and_nothing_is_copied() {
    let device = common::device();
    let stream = device.stream().unwrap();
    let pool = PinnedPool::builder(&device).build().unwrap();
    let (mut host, mut gpu) = (pool.alloc_zeroed::<u8>(10).unwrap(), device.alloc(10).unwrap());
    let (mut short, mut long) = (pool.alloc_zeroed::<u8>(9).unwrap(), device.alloc(10).unwrap());
    stream.fill(&mut gpu, 3u8).unwrap();
    let mut pairs = Pairs::new();
    pairs.push(&mut host, &mut gpu);
    stream.download_pairs(&mut pairs).unwrap();
    assert_eq!(pairs.host(0).read().unwrap(), [3; 10]);
    pairs.host_mut(0).into_write().unwrap().fill(5);
    pairs.push(&mut short, &mut long);
    for error in [stream.upload_pairs(&mut pairs), stream.download_pairs(&mut pairs)] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LengthMismatch);
        assert!(error.to_string().contains("copy 1 has 9 bytes on the host and 10"), "{error}");
    }
    assert_eq!(pairs.host(0).read().unwrap(), [5; 10]);
}

/// On an emulated machine with two devices.
#[test]
fn pairs_of_another_device_are_refused_whoever_copied_them_before() {
    let emulator = Emulator::builder().devices(2).build();
    let [here, there] = [0, 1].map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap());
    let pool = PinnedPool::builder(&here).build().unwrap();
    let (mut host, mut gpu) =
        (pool.alloc_zeroed::<u8>(1000).unwrap(), here.alloc::<u8>(1000).unwrap());
    let mut pairs = Pairs::new();
    pairs.push(&mut host, &mut gpu);
    let upload = |stream: Stream, pairs: &mut Pairs<'_, u8>| stream.upload_pairs(pairs);
    for _ in 0..2 {
        let refused = upload(there.stream().unwrap(), &mut pairs).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongDevice);
        upload(here.stream().unwrap(), &mut pairs).unwrap();
    }
}

fn survives(run: &Run) -> usize {
    let device = Device::of_emulator(&run.emulator, 0).unwrap();
    let pool = PinnedPool::builder(&device).build().unwrap();
    let stream = device.stream().unwrap();
    run.begin();
    let copied = || -> pinlane::Result<()> {
        let mut hosts = (0..6).map(|_| pool.alloc::<u8>(512)).collect::<Result<Vec<_>, _>>()?;
        let mut gpus = (0..6).map(|_| device.alloc::<u8>(512)).collect::<Result<Vec<_>, _>>()?;
        let mut pairs: Pairs<u8> = hosts.iter_mut().zip(&mut gpus).collect();
        for round in 0..3u8 {
            for pair in 0..6 {
                pairs.host_mut(pair).into_write()?.fill(round + pair as u8);
            }
            stream.upload_pairs(&mut pairs)?;
            for pair in 0..6 {
                pairs.host_mut(pair).into_write()?.fill(0xee);
            }
            stream.download_pairs(&mut pairs)?;
            for pair in 0..6 {
                let found = pairs.host(pair).read()?;
                assert!(found.iter().all(|&byte| byte == round + pair as u8));
            }
        }
        Ok(())
    };
    run.explains_all([copied(), copied()]);
    run.end();
    let idle = stream.synchronize().is_ok();
    assert!(idle || run.is_lost());
    drop(stream);
    let _ = pool.trim();
    let stats = pool.stats();
    let pooled = if stats.quarantined_bytes > 0 { stats.committed_bytes } else { 0 };
    pooled + device.quarantined_bytes()
}

#[test]
fn any_call_may_fail() {
    at_every_call("pairs", &Emulator::builder(), 100, survives);
}
