//! Foreign streams, and streams and threads on which nothing may be enqueued.

use std::thread;

use pinlane::emulated::{Emulator, Execution};
use pinlane::{
    Device, DeviceBuf, ErrorKind, PinnedBuf, PinnedPool, Result, Stream, StreamOptions,
    batch::{DeviceCopy, Download, Route, Upload},
};

use crate::common::process::{in_a_forked_child, is_alone};

use super::support::{ByRoute, ROUTES, SLOT, bytes, contents, device, install_team, pinned};
use crate::common::support::{all_calls, assert_nothing_is_left, eventually, raw, watched};

/// More than a ring.
const LENGTH: usize = 4 * SLOT + 5;

/// Every copy of pageable memory and batches on a stream, with the results.
struct Everything {
    source: Vec<u8>,
    target: Vec<u8>,
    host: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
    other: DeviceBuf<u8>,
}

impl Everything {
    fn new(device: &Device) -> Everything {
        let pool = PinnedPool::builder(device).build().unwrap();
        let alloc = || device.alloc::<u8>(LENGTH).unwrap();
        Everything {
            source: bytes(LENGTH, 1),
            target: vec![0; LENGTH],
            host: pinned(&pool, &bytes(LENGTH, 2)),
            gpu: alloc(),
            other: alloc(),
        }
    }

    fn run(&mut self, stream: &Stream) -> Vec<Result<()>> {
        let Everything { source, target, host, gpu, other } = self;
        let mut results = Vec::new();
        for length in [0, 9, LENGTH] {
            let part = gpu.slice_mut(..length).unwrap();
            results.push(stream.upload_slice(&source[..length], part).map(drop));
            let part = gpu.slice(..length).unwrap();
            results.push(stream.download_slice(part, &mut target[..length]));
        }
        let mut up = |path: Option<Route>, gpu: &mut DeviceBuf<u8>, locked: bool| {
            let item = match locked {
                true => Upload::new(&*host, gpu),
                false => Upload::new(&*source, gpu),
            };
            let mut items = [item];
            results.push(
                match path {
                    Some(path) => stream.upload_batch_by(path, &mut items),
                    None => stream.upload_batch(&mut items),
                }
                .map(drop),
            );
        };
        for path in [None, Some(Route::Copies), Some(Route::Kernel)] {
            up(path, gpu, false);
            up(path, gpu, true);
        }
        for locked in [false, true] {
            let item = match locked {
                true => Download::new(&*gpu, &mut *host),
                false => Download::new(&*gpu, &mut *target),
            };
            let mut items = [item];
            results.push(stream.download_batch(&mut items).map(drop));
            results.push(stream.download_batch_each(&mut items, |_, _| ()));
        }
        let mut items = [DeviceCopy::new(&*gpu, &mut *other)];
        results.push(stream.copy_batch(&mut items).map(drop));
        results.push(stream.upload_batch([] as [Upload; 0]).map(drop));
        results.push(stream.download_batch([] as [Download; 0]).map(drop));
        results.push(stream.copy_batch([] as [DeviceCopy; 0]).map(drop));
        results
    }
}

fn all_are(results: Vec<Result<()>>, kind: ErrorKind) -> bool {
    results.into_iter().all(|result| result.is_err_and(|error| error.kind() == kind))
}

fn try_all(results: Vec<Result<()>>) -> Result<()> {
    results.into_iter().collect()
}

#[test]
fn default_streams_do_everything_but_batch_calls() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let emulator = Emulator::builder().execution(execution).build();
        let device = device(&emulator);
        let mut everything = Everything::new(&device);
        let streams = [
            device.legacy_stream(),
            device.per_thread_stream(),
            device.stream_with(StreamOptions::new().blocking(true)).unwrap(),
        ];
        for (number, stream) in streams.iter().enumerate() {
            try_all(everything.run(stream)).unwrap();
            assert!(contents(&device, &everything.other) == everything.target);
            let mut items = [Upload::new(&everything.source, &mut everything.gpu)];
            let batch = stream.upload_batch_by(Route::BatchCall, &mut items);
            let kind = batch.map(drop).map_err(|error| error.kind());
            let expected = if number == 0 { Err(ErrorKind::Unsupported) } else { Ok(()) };
            assert_eq!(kind, expected);
        }
        // A stream whose handle is known outside the crate.
        let exposed = device.stream().unwrap();
        let _ = raw(&exposed);
        try_all(everything.run(&exposed)).unwrap();
        drop((streams, exposed, everything, device));
        assert_nothing_is_left(&emulator);
    }
}

/// Threads that help with a copy must not enqueue on the caller's default stream.
#[test]
fn a_threads_default_stream_takes_large_copies() {
    watched(|| {
        install_team(3);
        for execution in [Execution::Eager, Execution::Lazy] {
            let emulator = Emulator::builder().execution(execution).build();
            let device = super::support::device_of(&emulator, 0, super::support::shared());
            let stream = device.per_thread_stream();
            for length in [300_000, 1_000_000] {
                super::liveness::roundtrip(&device, &stream, length, 1);
            }
            assert_eq!(emulator.findings(), []);
        }
    });
}

#[test]
fn another_threads_default_stream_is_refused() {
    let emulator = Emulator::new();
    let device = device(&emulator);
    let stream = device.per_thread_stream();
    let mut everything = Everything::new(&device);
    try_all(everything.run(&stream)).unwrap();
    thread::scope(|scope| {
        let elsewhere = scope.spawn(|| all_are(everything.run(&stream), ErrorKind::WrongThread));
        assert!(elsewhere.join().unwrap());
    });
    assert_eq!(emulator.findings(), []);
}

#[test]
fn a_capturing_stream_is_refused_and_the_capture_lives() {
    watched(|| {
        for used_before in [false, true] {
            let emulator = Emulator::builder().execution(Execution::Lazy).build();
            let device = device(&emulator);
            let stream = device.stream().unwrap();
            let mut everything = Everything::new(&device);
            if used_before {
                try_all(everything.run(&stream)).unwrap();
            }
            emulator.begin_capture(raw(&stream)).unwrap();
            assert!(all_are(everything.run(&stream), ErrorKind::StreamCapturing));
            assert_eq!(emulator.end_capture(raw(&stream)), Ok(0), "alive, and nothing recorded");
            try_all(everything.run(&stream)).unwrap();
            drop((everything, stream, device));
            assert_nothing_is_left(&emulator);
        }
    });
}

#[test]
fn host_functions_are_refused() {
    watched(|| {
        let emulator = Emulator::new();
        let device = device(&emulator);
        let stream = device.stream().unwrap();
        let mut everything = Everything::new(&device);
        try_all(everything.run(&stream)).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let other = device.stream().unwrap();
        let function = move || {
            let refused = all_are(everything.run(&stream), ErrorKind::Unsupported);
            send.send(refused).unwrap();
        };
        other.launch_host(function).unwrap().wait().unwrap();
        assert!(receive.recv().unwrap());
        drop((other, device));
        assert_nothing_is_left(&emulator);
    });
}

#[test]
fn memory_of_another_driver_is_refused() {
    let (emulator, other) = (Emulator::new(), Emulator::new());
    let (device, strange) = (device(&emulator), device(&other));
    let stream = device.stream().unwrap();
    let mut everything = Everything::new(&strange);
    let mut results = everything.run(&stream);
    // The last three name no memory.
    results.truncate(results.len() - 3);
    let before = results.len();
    results.retain(|result| result.as_ref().is_err_and(|e| e.kind() == ErrorKind::WrongDevice));
    assert_eq!(results.len(), before);
    // Host memory only.
    let mut gpu = device.alloc::<u8>(LENGTH).unwrap();
    let copies = [Route::Copies, Route::BatchCall, Route::Kernel];
    for path in copies {
        let mut items = [Upload::new(&everything.host, &mut gpu)];
        let error = stream.upload_batch_by(path, &mut items).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongDevice);
    }
    let mut items = [Download::new(&gpu, &mut everything.host)];
    let error = stream.download_batch(&mut items).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDevice);
    assert_eq!((emulator.findings(), other.findings()), (vec![], vec![]));
}

#[test]
fn memory_of_another_device_is_refused() {
    let emulator = Emulator::builder().devices(2).build();
    let device = device(&emulator);
    let second = super::support::device_of(&emulator, 1, super::support::tiny());
    let stream = second.stream().unwrap();
    let mut everything = Everything::new(&device);
    let mut results = everything.run(&stream);
    results.truncate(results.len() - 3);
    let is_refused = |result: Result<()>| result.is_err_and(|e| e.kind() == ErrorKind::WrongDevice);
    assert!(results.into_iter().all(is_refused));
    // Page-locked memory is usable by all devices.
    let mut gpu = second.alloc::<u8>(LENGTH).unwrap();
    for path in [Route::Copies, Route::BatchCall, Route::Kernel] {
        let mut items = [Upload::new(&everything.host, &mut gpu)];
        stream.upload_batch_by(path, &mut items).unwrap().wait().unwrap();
        assert!(contents(&second, &gpu) == everything.host.read().unwrap());
    }
    assert_eq!(emulator.findings(), []);
}

#[test]
fn a_forked_child_is_refused_everything() {
    if !is_alone(module_path!(), "a_forked_child_is_refused_everything") {
        return;
    }
    install_team(2);
    let emulator = Emulator::builder().execution(Execution::Lazy).build();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    let mut everything = Everything::new(&device);
    try_all(everything.run(&stream)).unwrap();
    let many = [1; 5000];
    let mut gpu = device.alloc::<u8>(5000).unwrap();
    in_a_forked_child(|| {
        let before = all_calls(&emulator);
        let refused = all_are(everything.run(&stream), ErrorKind::ForkedProcess);
        // Enough that the team would help.
        let views = super::support::views(&mut gpu, (0..5000).map(|n| n..n + 1)).into_iter();
        let items = views.zip(many.chunks(1)).map(|(dst, src)| Upload::new(src, dst));
        let mut items = items.collect::<Vec<_>>();
        let batches = ROUTES.map(|path| stream.upload_batch_by(path, &mut items).map(drop));
        let batches = all_are(batches.into(), ErrorKind::ForkedProcess);
        let no_call = all_calls(&emulator) == before;
        [refused, batches, no_call].iter().position(|&right| !right).map_or(0, |n| n as i32 + 1)
    });
    // The parent continues.
    try_all(everything.run(&stream)).unwrap();
    eventually("all ran", || stream.synchronize().is_ok());
}
