//! Copies through slots and batches are ordered with all other work on all streams, and do not
//! access the caller's memory after they have returned.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution};
use pinlane::{
    Device, PinnedPool, Stream,
    batch::{Download, Route, Upload},
};

use super::support::{
    ByRoute, EXECUTIONS, ROUTES, SLOT, bytes, contents, device, pinned, upload, views,
};
use crate::common::support::{Stalled, assert_nothing_is_left, eventually, watched};

/// More than a ring.
const LENGTH: usize = 4 * SLOT + 77;

fn machines(test: impl Fn(&Emulator, &Device) + Send + 'static) {
    watched(move || {
        for execution in EXECUTIONS {
            for seed in 0..4 {
                let emulator = Emulator::builder().execution(execution).seed(seed).build();
                let device = device(&emulator);
                test(&emulator, &device);
                drop(device);
                assert_nothing_is_left(&emulator);
            }
        }
    });
}

fn upload_by(
    stream: &Stream,
    path: Option<Route>,
    source: &[u8],
    gpu: &mut pinlane::DeviceBuf<u8>,
) {
    let ticket = match path {
        None => stream.upload_slice(source, gpu),
        Some(path) => stream.upload_batch_by(path, &mut [Upload::new(source, gpu)]),
    };
    ticket.unwrap();
}

fn download_by(
    stream: &Stream,
    path: Option<Route>,
    gpu: &pinlane::DeviceBuf<u8>,
    target: &mut [u8],
) {
    match path {
        None => stream.download_slice(gpu, target).unwrap(),
        Some(path) => {
            let mut items = [Download::new(gpu, target)];
            stream.download_batch_by(path, &mut items).map(drop).unwrap();
        }
    }
}

fn ways() -> impl Iterator<Item = Option<Route>> {
    [None].into_iter().chain(ROUTES.map(Some))
}

#[test]
fn the_source_may_be_reused_at_once() {
    machines(|emulator, device| {
        let stream = device.stream().unwrap();
        for way in ways() {
            for length in [50, 100, 101, SLOT, LENGTH] {
                let source = bytes(length, 5);
                let mut changed = source.clone();
                let mut gpu = device.alloc(length).unwrap();
                upload_by(&stream, way, &changed, &mut gpu);
                changed.fill(0);
                drop(changed);
                assert!(contents(device, &gpu) == source, "{way:?}, {length} bytes");
            }
        }
        assert_eq!(emulator.findings(), []);
    });
}

/// A copy waits for work on other streams that uses its device memory, and later work waits for the
/// copy.
#[test]
fn copies_are_ordered_with_other_streams() {
    machines(|_, device| {
        let [stream, other] = [(); 2].map(|()| device.stream().unwrap());
        for way in ways() {
            let source = bytes(LENGTH, 6);
            let mut gpu = device.alloc(LENGTH).unwrap();
            let mut copy = device.alloc(LENGTH).unwrap();
            other.fill(&mut gpu, 1).unwrap();
            other.copy(&gpu, &mut copy).unwrap();
            upload_by(&stream, way, &source, &mut gpu);
            assert!(contents(device, &copy) == [1; LENGTH], "{way:?}: not read before the upload");
            other.copy(&gpu, &mut copy).unwrap();
            upload_by(&stream, way, &[2; LENGTH], &mut gpu);
            assert!(contents(device, &copy) == source, "{way:?}: read after it, before the next");
            assert!(contents(device, &gpu) == [2; LENGTH], "{way:?}");
        }
        for way in ways() {
            let mut gpu = device.alloc(LENGTH).unwrap();
            let mut target = vec![0; LENGTH];
            other.fill(&mut gpu, 3).unwrap();
            download_by(&stream, way, &gpu, &mut target);
            assert!(target == [3; LENGTH], "{way:?}: downloaded what was written before");
            other.fill(&mut gpu, 4).unwrap();
            assert!(contents(device, &gpu) == [4; LENGTH]);
        }
    });
}

/// Page-locked entries know of the batch: the host and other streams wait for it.
#[test]
fn page_locked_entries_know_of_the_batch() {
    machines(|_, device| {
        let [stream, other] = [(); 2].map(|()| device.stream().unwrap());
        let pool = PinnedPool::builder(device).build().unwrap();
        for path in [Route::Copies, Route::BatchCall, Route::Kernel] {
            let source = bytes(900, 7);
            let mut hosts: Vec<_> = (0..3).map(|_| pinned(&pool, &source)).collect();
            let mut gpus: Vec<_> = (0..3).map(|_| device.alloc::<u8>(900).unwrap()).collect();
            let items = hosts.iter().zip(&mut gpus).map(|(host, gpu)| Upload::new(host, gpu));
            let mut items = items.collect::<Vec<_>>();
            stream.upload_batch_by(path, &mut items).unwrap();
            // The host writes again at once: this waits until the device has read.
            hosts.iter_mut().for_each(|host| host.write().unwrap().fill(0x55));
            let whole: Vec<_> = gpus.iter().map(|gpu| contents(device, gpu)).collect();
            assert!(whole.iter().all(|gpu| *gpu == source), "{path}");
            for gpu in &mut gpus {
                other.fill(gpu, 9).unwrap();
            }
            let items = gpus.iter().zip(&mut hosts).map(|(gpu, host)| Download::new(gpu, host));
            let mut items = items.collect::<Vec<_>>();
            stream.download_batch_by(path, &mut items).unwrap();
            // Read and dropped at once.
            assert!(hosts[0].read().unwrap() == [9; 900], "{path}");
            drop(hosts);
        }
    });
}

/// Buffers are dropped before the stream has begun: their memory is freed after the batch.
#[test]
fn buffers_may_be_dropped_in_flight() {
    watched(|| {
        for execution in EXECUTIONS {
            for path in [Route::Copies, Route::BatchCall, Route::Kernel] {
                let emulator = Emulator::builder().execution(execution).build();
                let device = device(&emulator);
                let stream = device.stream().unwrap();
                let pool = PinnedPool::builder(&device).build().unwrap();
                let hosts: Vec<_> = (0..9).map(|_| pinned(&pool, &[1; 300])).collect();
                let mut gpus: Vec<_> = (0..9).map(|_| upload(&device, &[2; 300])).collect();
                let stalled = Stalled::new(&emulator, &stream);
                let items = hosts.iter().zip(&mut gpus).map(|(h, g)| Upload::new(h, g));
                let mut items = items.collect::<Vec<_>>();
                let ticket = stream.upload_batch_by(path, &mut items).unwrap();
                drop((hosts, gpus));
                assert!(!ticket.is_done().unwrap());
                drop(stalled);
                ticket.wait().unwrap();
                drop((ticket, stream, pool, device));
                assert_nothing_is_left(&emulator);
            }
        }
    });
}

/// Also copies between the buffers of a batch.
#[test]
fn copies_between_buffers_are_ordered() {
    machines(|_, device| {
        let [stream, other] = [(); 2].map(|()| device.stream().unwrap());
        let mut gpus: Vec<_> = (0..6).map(|_| device.alloc::<u8>(500).unwrap()).collect();
        gpus.iter_mut().for_each(|gpu| drop(other.fill(gpu, 7).unwrap()));
        let (from, to) = gpus.split_at_mut(3);
        let items = from.iter().zip(to).map(|(from, to)| pinlane::batch::DeviceCopy::new(from, to));
        let mut items = items.collect::<Vec<_>>();
        stream.copy_batch(&mut items).unwrap();
        gpus[..3].iter_mut().for_each(|gpu| drop(other.fill(gpu, 8).unwrap()));
        for (n, gpu) in gpus.iter().enumerate() {
            let expected = if n < 3 { 8 } else { 7 };
            assert!(contents(device, gpu) == [expected; 500]);
        }
    });
}

/// A slot is filled again only when the device has read it: one ring, many copies, no wait in
/// between.
#[test]
fn slots_are_not_filled_again_too_early() {
    for seed in 0..8 {
        let emulator = Emulator::builder().execution(Execution::Lazy).seed(seed).build();
        let device = device(&emulator);
        let stream = device.stream().unwrap();
        for path in ROUTES {
            let sources: Vec<_> = (0..12).map(|n| bytes(1500 + 400 * n, n as u64)).collect();
            let mut gpus: Vec<_> =
                sources.iter().map(|source| device.alloc(source.len()).unwrap()).collect();
            for (source, gpu) in sources.iter().zip(&mut gpus) {
                upload_by(&stream, Some(path), source, gpu);
            }
            for (source, gpu) in sources.iter().zip(&gpus) {
                assert!(contents(&device, gpu) == *source, "{path}");
            }
        }
        assert_eq!(emulator.findings(), []);
    }
}

/// Other work may use the bytes between the batch's views of a buffer, also while the batch is
/// being made.
#[test]
fn uses_between_the_views_are_not_forgotten() {
    watched(|| {
        let emulator = Emulator::new();
        let device = device(&emulator);
        let [stream, other] = [(); 2].map(|()| device.stream().unwrap());
        let mut gpu = upload(&device, &[0; 3000]);
        let source = bytes(2000, 1);
        let stalled = Stalled::new(&emulator, &stream);
        let stalled_too = Stalled::new(&emulator, &other);
        std::thread::scope(|scope| {
            let mut views = views(&mut gpu, [0..1000, 1000..2000, 2000..3000].into_iter());
            let (last, middle, first) =
                (views.pop().unwrap(), views.pop().unwrap(), views.pop().unwrap());
            let batch = scope.spawn(|| {
                let mut items =
                    [Upload::new(&source[..1000], first), Upload::new(&source[1000..], last)];
                stream.upload_batch_by(Route::Copies, &mut items).unwrap();
            });
            // When the batch waits for its stream, it has looked for conflicts.
            let waits =
                || emulator.calls(Call::EventSynchronize) + emulator.calls(Call::StreamSynchronize);
            eventually("the batch waits", || waits() > 0);
            std::thread::sleep(std::time::Duration::from_millis(20));
            other.fill(middle, 5).unwrap();
            drop(stalled);
            batch.join().unwrap();
        });
        let reader = device.stream().unwrap();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let mut host = pool.alloc(3000).unwrap();
        let ticket = reader.download(&gpu, &mut host).unwrap();
        assert!(!ticket.is_done().unwrap(), "what lies between is still to be written");
        drop(stalled_too);
        let expected = [&source[..1000], &[5; 1000], &source[1000..]].concat();
        assert!(host.read().unwrap() == expected);
        assert_eq!(emulator.findings(), []);
    });
}
