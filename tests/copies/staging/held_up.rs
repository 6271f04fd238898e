//! Streams that are held up by work of the legacy stream, for which no call told them to wait.
//! However many slots their copies want, the copies of independent streams continue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use pinlane::emulated::{Emulator, Execution};
use pinlane::{
    Device, DeviceBuf, PinnedPool, Stream, StreamOptions,
    batch::{Download, Route, Upload},
    file::FileReader,
    prefetch::Prefetch,
};

use super::liveness::roundtrip;
use super::support::{ByRoute, EXECUTIONS, SLOT, bytes, device_of, install_team, tiny};
use crate::common::support::{Stalled, assert_nothing_is_left, raw, watched};

/// More than a ring.
const LENGTH: usize = 12 * SLOT + 5;

/// Rings with the fewest slots, with a slot for each kind of stream, and with more.
const SLOTS: [usize; 3] = [2, 3, 8];

fn device_with(emulator: &Emulator, slots: usize) -> Device {
    device_of(emulator, 0, tiny().ring_bytes(slots * SLOT))
}

fn every_machine() -> impl Iterator<Item = (Execution, usize)> {
    EXECUTIONS.into_iter().flat_map(|execution| SLOTS.map(|slots| (execution, slots)))
}

/// A stream that waits for the legacy stream implicitly.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Blocking,
    Borrowed,
    PerThread,
    Legacy,
}

const ALL: [Bound; 4] = [Bound::Blocking, Bound::Borrowed, Bound::PerThread, Bound::Legacy];

fn blocking(device: &Device) -> Stream {
    device.stream_with(StreamOptions::new().blocking(true)).unwrap()
}

impl Bound {
    /// The stream, and the one that it is borrowed from.
    fn open(self, device: &Device) -> (Stream, Option<Stream>) {
        match self {
            Bound::Blocking => (blocking(device), None),
            Bound::Borrowed => {
                let own = blocking(device);
                // SAFETY: a stream of the device, destroyed after this one.
                (unsafe { device.borrow_stream(own.as_raw()) }, Some(own))
            }
            Bound::PerThread => (device.per_thread_stream(), None),
            Bound::Legacy => (device.legacy_stream(), None),
        }
    }
}

type Copy = fn(&Stream, &mut DeviceBuf<u8>);

const COPIES: [Copy; 6] = [
    |stream, gpu| drop(stream.upload_slice(&bytes(LENGTH, 1), gpu).unwrap()),
    |stream, gpu| stream.download_slice(&*gpu, &mut vec![0; LENGTH]).unwrap(),
    |stream, gpu| {
        let source = bytes(LENGTH, 2);
        let mut items = [Upload::new(&source, gpu)];
        stream.upload_batch_by(Route::Copies, &mut items).unwrap();
    },
    |stream, gpu| {
        let source = bytes(LENGTH, 3);
        let mut items = [Upload::new(&source, gpu)];
        stream.upload_batch_by(Route::Kernel, &mut items).unwrap();
    },
    |stream, gpu| {
        let mut target = vec![0; LENGTH];
        stream.download_batch(&mut [Download::new(&*gpu, &mut target)]).unwrap();
    },
    |stream, gpu| {
        let file = FileReader::open(std::env::current_exe().unwrap()).unwrap();
        stream.upload_file(&file, 0, gpu).unwrap();
    },
];

/// Starts legacy work that waits until the result is dropped.
fn hold_up(emulator: &Emulator, device: &Device, gpu: &mut DeviceBuf<u8>) -> Stalled {
    let legacy = device.legacy_stream();
    let stalled = Stalled::new(emulator, &legacy);
    legacy.fill(gpu, 1).unwrap();
    stalled
}

/// Work on all kinds of independent streams.
fn go_on(device: &Device, slots: usize, rounds: u64) {
    let [own, exposed] = [(); 2].map(|()| device.stream().unwrap());
    let _ = raw(&exposed);
    for round in 0..rounds {
        roundtrip(device, &own, LENGTH, round);
        // A ring of two slots has none for streams whose handle is known outside the crate.
        if slots > 2 {
            roundtrip(device, &exposed, LENGTH, round);
        }
    }
    let pool = PinnedPool::builder(device).build().unwrap();
    let batches = (0..4u8).map(|number| vec![number; LENGTH]);
    for batch in Prefetch::new(batches, &pool, &own).depth(2).start().unwrap() {
        assert_eq!(batch.unwrap().slice::<u8>("0").unwrap().len(), LENGTH);
    }
}

#[test]
fn legacy_work_holds_up_its_own_streams_only() {
    watched(|| {
        for (execution, slots) in every_machine() {
            ALL.into_iter().for_each(|bound| held_up_before(execution, slots, bound));
        }
    });
}

fn held_up_before(execution: Execution, slots: usize, bound: Bound) {
    let emulator = Emulator::builder().execution(execution).build();
    let device = device_with(&emulator, slots);
    let mut gpus: Vec<_> = COPIES.map(|_| device.alloc::<u8>(LENGTH).unwrap()).into();
    let mut legacys = device.alloc(1).unwrap();
    let stalled = hold_up(&emulator, &device, &mut legacys);
    thread::scope(|scope| {
        let copies = gpus.iter_mut().zip(COPIES);
        let waiting: Vec<_> = copies
            .map(|(gpu, copy)| {
                let device = &device;
                scope.spawn(move || {
                    let (stream, _lender) = bound.open(device);
                    copy(&stream, gpu);
                    stream.synchronize().unwrap();
                })
            })
            .collect();
        // Gives them time to take slots, which they must not.
        thread::sleep(Duration::from_millis(5));
        go_on(&device, slots, 5);
        assert!(waiting.iter().all(|caller| !caller.is_finished()), "{bound:?}");
        drop(stalled);
        waiting.into_iter().for_each(|caller| caller.join().unwrap());
    });
    drop((gpus, legacys, device));
    assert_nothing_is_left(&emulator);
}

/// The stream was idle when the copy took its first slots.
#[test]
fn legacy_work_may_come_in_the_middle_of_a_download() {
    watched(|| {
        for (execution, slots) in every_machine() {
            let emulator = Emulator::builder().execution(execution).build();
            let device = device_with(&emulator, slots);
            let mut gpu = device.alloc::<u8>(LENGTH).unwrap();
            let (mut legacys, mut target) = (device.alloc(1).unwrap(), vec![0; LENGTH]);
            let stream = blocking(&device);
            stream.fill(&mut gpu, 7).unwrap();
            let (held, told) = channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let sources = (0..LENGTH / 512).map(|n| gpu.slice(512 * n..512 * (n + 1)));
                    let items = sources.zip(target.chunks_mut(512));
                    let items = items.map(|(from, to)| Download::new(from.unwrap(), to));
                    let mut items = items.collect::<Vec<_>>();
                    let mut legacys = Some(&mut legacys);
                    let hold = |_, _: &[u8]| {
                        if let Some(legacys) = legacys.take() {
                            held.send(hold_up(&emulator, &device, legacys)).unwrap();
                        }
                    };
                    stream.download_batch_each(&mut items, hold).unwrap();
                });
                let stalled = told.recv().unwrap();
                go_on(&device, slots, 5);
                drop(stalled);
            });
            assert_eq!(target[..LENGTH / 512 * 512], [7; LENGTH / 512 * 512]);
            drop((gpu, legacys, stream, device));
            assert_nothing_is_left(&emulator);
        }
    });
}

/// At any moment of many copies.
#[test]
fn legacy_work_may_come_at_any_moment() {
    watched(|| {
        install_team(3);
        for (execution, slots) in every_machine() {
            let emulator = Emulator::builder().execution(execution).build();
            let device = device_with(&emulator, slots);
            let mut legacys = device.alloc(1).unwrap();
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let callers = [COPIES[0], COPIES[1], COPIES[0], COPIES[3]].map(|copy| {
                    let (device, stop) = (&device, &stop);
                    scope.spawn(move || {
                        let stream = blocking(device);
                        let mut gpu = device.alloc::<u8>(LENGTH).unwrap();
                        while !stop.load(Ordering::Relaxed) {
                            copy(&stream, &mut gpu);
                        }
                    })
                });
                for _ in 0..30 {
                    let stalled = hold_up(&emulator, &device, &mut legacys);
                    go_on(&device, slots, 1);
                    drop(stalled);
                    thread::sleep(Duration::from_micros(300));
                }
                stop.store(true, Ordering::Relaxed);
                callers.into_iter().for_each(|caller| caller.join().unwrap());
            });
            drop((legacys, device));
            assert_nothing_is_left(&emulator);
        }
    });
}

/// Small copies of a blocking stream share no event: legacy work may come between them.
#[test]
fn a_small_copy_is_complete_before_the_legacy_work_behind_it() {
    watched(|| {
        for execution in EXECUTIONS {
            let emulator = Emulator::builder().execution(execution).build();
            let device = device_of(&emulator, 0, tiny());
            let stream = blocking(&device);
            let [mut first, mut second, mut legacys] = [(); 3].map(|()| device.alloc(9).unwrap());
            for gpu in [&mut first, &mut second] {
                stream.fill(gpu, 0).unwrap();
            }
            stream.synchronize().unwrap();
            let before = stream.upload_slice(&[7; 9], &mut first).unwrap();
            let stalled = hold_up(&emulator, &device, &mut legacys);
            let behind = stream.upload_slice(&[8; 9], &mut second).unwrap();
            before.wait().unwrap();
            assert!(!behind.is_done().unwrap());
            drop(stalled);
            behind.wait().unwrap();
            assert_eq!(emulator.findings(), []);
        }
    });
}

/// Memory is freed after its last use, but not on the stream of that use: there the free would wait
/// for legacy work, and hold up the stream.
#[test]
fn a_dropped_buffer_puts_no_stream_behind_legacy_work() {
    watched(|| {
        for execution in EXECUTIONS {
            for bound in [Bound::Blocking, Bound::Borrowed, Bound::PerThread] {
                let emulator = Emulator::builder().execution(execution).build();
                let device = device_of(&emulator, 0, tiny());
                let [mut gpu, mut legacys] = [(); 2].map(|()| device.alloc(9).unwrap());
                let (stream, lender) = bound.open(&device);
                stream.fill(&mut gpu, 7).unwrap();
                let stalled = hold_up(&emulator, &device, &mut legacys);
                drop(gpu);
                stream.synchronize().unwrap();
                drop((stalled, stream, lender, legacys, device));
                assert_nothing_is_left(&emulator);
            }
        }
    });
}
