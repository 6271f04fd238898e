//! The route of a batch: the rules, checked by the calls that are made; and routes that are
//! impossible.

use pinlane::batch::{Download, Route, Upload};
use pinlane::driver::Call::{self, CopyBatch, CopyD2H, CopyH2D, MoveItems};
use pinlane::emulated::Emulator;
use pinlane::staging::Staging;
use pinlane::{Device, DeviceBuf, ErrorKind, PinnedBuf, PinnedPool, Stream};

use super::support::{ByRoute, ROUTES, bytes, contents, device_of, pinned, shared, upload, views};

struct Rig {
    emulator: Emulator,
    device: Device,
    pool: PinnedPool,
    stream: Stream,
}

fn rig(batches: bool) -> Rig {
    rig_of(Emulator::builder().batches(batches).build(), shared())
}

fn rig_of(emulator: Emulator, staging: Staging) -> Rig {
    let device = device_of(&emulator, 0, staging);
    let pool = PinnedPool::builder(&device).build().unwrap();
    let stream = device.stream().unwrap();
    Rig { emulator, device, pool, stream }
}

/// A batch: where its host memory is, and its blocks.
#[derive(Clone, Copy, Debug)]
struct Shape {
    locked: bool,
    blocks: usize,
    bytes: usize,
    gap: usize,
}

impl Rig {
    /// The calls with which a batch of this shape goes up, and down.
    fn calls(&self, stream: &Stream, shape: Shape) -> [Vec<Call>; 2] {
        let Shape { locked, blocks, bytes: each, gap } = shape;
        let whole = blocks * (each + gap);
        let mut gpu = self.device.alloc::<u8>(whole).unwrap();
        let mut host = pinned(&self.pool, &bytes(whole, 1));
        let mut pageable = bytes(whole, 1);
        let place = |n: usize| n * (each + gap)..n * (each + gap) + each;
        let before = self.counts();
        let to = views(&mut gpu, (0..blocks).map(place)).into_iter().enumerate();
        let from = |n| match locked {
            true => host.slice(place(n)).unwrap().into(),
            false => pinlane::batch::HostSlice::Pageable(&pageable[place(n)]),
        };
        let ups = to.map(|(n, to)| Upload::new(from(n), to));
        stream.upload_batch(ups).unwrap().wait().unwrap();
        let between = self.counts();
        let downs = |gpu: &DeviceBuf<u8>, host: &mut PinnedBuf<u8>, pageable: &mut [u8]| {
            let mut copies = Vec::new();
            let mut locked_rest = Some(host.as_slice_mut());
            let mut rest = pageable;
            for n in 0..blocks {
                let from = gpu.slice(place(n)).unwrap();
                if locked {
                    let all = locked_rest.take().unwrap();
                    let (block, behind) = all.split_at_mut(each).unwrap();
                    locked_rest = Some(behind.split_at_mut(gap).unwrap().1);
                    copies.push(Download::new(from, block));
                } else {
                    let (block, behind) = std::mem::take(&mut rest).split_at_mut(each);
                    rest = &mut behind[gap..];
                    copies.push(Download::new(from, block));
                }
            }
            stream.download_batch(copies).unwrap().wait().unwrap();
        };
        downs(&gpu, &mut host, &mut pageable);
        let after = self.counts();
        let made = |before: [u64; 4], after: [u64; 4]| {
            let calls = CALLS.into_iter().zip(before.into_iter().zip(after));
            calls.filter(|(_, (before, after))| before < after).map(|(call, _)| call).collect()
        };
        assert_eq!(self.emulator.findings(), []);
        [made(before, between), made(between, after)]
    }

    fn counts(&self) -> [u64; 4] {
        CALLS.map(|call| self.emulator.calls(call))
    }
}

const CALLS: [Call; 4] = [CopyBatch, CopyD2H, CopyH2D, MoveItems];

fn both(call: Call) -> [Vec<Call>; 2] {
    [vec![call], vec![call]]
}

#[test]
fn one_run_is_one_copy() {
    let rig = rig(true);
    for locked in [false, true] {
        for (blocks, bytes) in [(1, 1), (1, 40_000), (1000, 40)] {
            let shape = Shape { locked, blocks, bytes, gap: 0 };
            assert_eq!(rig.calls(&rig.stream, shape), [[CopyH2D], [CopyD2H]], "{shape:?}");
        }
    }
}

#[test]
fn short_blocks_go_by_one_kernel() {
    let rig = rig(true);
    for locked in [false, true] {
        for (blocks, bytes) in [(4, 1), (4, 4000), (1000, 40), (9, 15_000), (40, 60_000)] {
            let shape = Shape { locked, blocks, bytes, gap: 3 };
            assert_eq!(rig.calls(&rig.stream, shape), both(MoveItems), "{shape:?}");
        }
    }
    let locked = Shape { locked: true, blocks: 9, bytes: 20_000, gap: 3 };
    assert_eq!(rig.calls(&rig.stream, locked), both(MoveItems));
}

/// Of few blocks of ordinary memory, shorter ones come down by the copy engine than go up by it.
#[test]
fn few_middle_blocks_of_ordinary_memory_go_by_direction() {
    let rig = rig_of(Emulator::new(), Staging::new());
    for (bytes, calls) in [
        (16_000, both(MoveItems)),
        (20_000, [vec![MoveItems], vec![CopyBatch]]),
        (33_000, both(CopyBatch)),
    ] {
        let shape = Shape { locked: false, blocks: 9, bytes, gap: 3 };
        assert_eq!(rig.calls(&rig.stream, shape), calls, "{shape:?}");
    }
}

#[test]
fn few_blocks_and_long_ones_go_by_the_copy_engine() {
    for batches in [true, false] {
        // A portion has several blocks.
        let rig = rig_of(Emulator::builder().batches(batches).build(), Staging::new());
        let legacy = rig.device.legacy_stream();
        for (locked, blocks, bytes) in
            [(false, 2, 100), (true, 3, 100), (false, 5, 64 << 10), (true, 5, 256 << 10)]
        {
            let shape = Shape { locked, blocks, bytes, gap: 3 };
            let calls = rig.calls(&rig.stream, shape);
            if batches {
                assert!(
                    calls.iter().all(|calls| calls.contains(&CopyBatch)),
                    "{shape:?} {calls:?}"
                );
            } else {
                assert_eq!(calls, [[CopyH2D], [CopyD2H]], "{shape:?}");
            }
            // The batch call cannot be made on the legacy stream.
            assert_eq!(rig.calls(&legacy, shape), [[CopyH2D], [CopyD2H]], "{shape:?}");
        }
    }
}

/// On a device whose kernels cannot use the host's addresses.
#[test]
fn without_host_addresses_no_kernel_is_used() {
    let rig = rig_of(Emulator::builder().host_addresses(false).build(), shared());
    for locked in [false, true] {
        let shape = Shape { locked, blocks: 1000, bytes: 40, gap: 3 };
        let calls = rig.calls(&rig.stream, shape);
        assert!(calls.iter().all(|calls| calls.contains(&CopyBatch)), "{shape:?} {calls:?}");
        assert_eq!(rig.emulator.calls(MoveItems), 0);
    }
    let Rig { emulator, device, pool, stream } = rig;
    let sources = [(); 9].map(|()| upload(&device, &[7; 50]));
    let mut targets = [(); 9].map(|()| device.alloc::<u8>(50).unwrap());
    stream.copy_batch(sources.iter().zip(&mut targets)).unwrap().wait().unwrap();
    assert!(targets.iter().all(|target| contents(&device, target) == [7; 50]));
    let host = pinned(&pool, &[1; 50]);
    let error = stream.upload_batch_by(Route::Kernel, [(&host, &mut targets[0])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("kernel"), "{error}");
    assert_eq!(emulator.calls(MoveItems), 0);
    assert_eq!(emulator.findings(), []);
}

#[test]
fn impossible_routes_are_refused() {
    let Rig { emulator, device, pool, stream } = rig(false);
    let mut host = pinned(&pool, &[1; 10]);
    let mut gpu = device.alloc::<u8>(10).unwrap();
    let mut target = vec![0; 10];
    let before = CALLS.map(|call| emulator.calls(call));
    for route in ROUTES {
        let errors = [
            stream.upload_batch_by(route, [(&host, &mut gpu)]),
            stream.upload_batch_by(route, [(&target, &mut gpu)]),
            stream.download_batch_by(route, [(&gpu, &mut host)]),
            stream.download_batch_by(route, [(&gpu, &mut target)]),
        ];
        for result in errors {
            match route {
                Route::BatchCall => {
                    let error = result.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    assert!(error.to_string().contains("batch call"), "{error}");
                }
                _ => result.unwrap().wait().unwrap(),
            }
        }
    }
    let after = CALLS.map(|call| emulator.calls(call));
    assert_eq!(after[0], before[0], "no batch call was made");
    assert_eq!(emulator.findings(), []);
}
