//! No caller waits forever: many callers and few slots, teams of any size, streams that are
//! stalled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pinlane::emulated::{Emulator, Execution};
use pinlane::{
    Device, Stream,
    batch::{Download, Upload},
    staging::CopyTeam,
};

use super::support::{
    ByRoute, EXECUTIONS, SLOT, bytes, contents, device, device_of, install_team, shared, tiny,
};
use crate::common::support::{Stalled, assert_nothing_is_left, eventually, raw, watched};

/// More than a ring, so that filled slots are held back.
const LENGTH: usize = 12 * SLOT + 5;

/// Copies up and down again, as a slice and then as a batch.
pub fn roundtrip(device: &Device, stream: &Stream, length: usize, seed: u64) {
    let source = bytes(length, seed);
    let mut gpu = device.alloc(length).unwrap();
    let mut target = vec![0; length];
    stream.upload_slice(&source, &mut gpu).unwrap();
    stream.download_slice(&gpu, &mut target).unwrap();
    assert!(target == source);
    let (first, second) = gpu.as_slice_mut().split_at_mut(length / 3).unwrap();
    let mut items =
        [Upload::new(&source[..length / 3], first), Upload::new(&source[length / 3..], second)];
    stream.upload_batch(&mut items).unwrap();
    target.fill(0);
    stream.download_batch(&mut [Download::new(&gpu, &mut target)]).unwrap();
    assert!(target == source);
}

#[test]
fn sixty_four_callers_share_one_ring() {
    watched(|| {
        for execution in EXECUTIONS {
            for (staging, unit) in [(tiny(), SLOT), (shared(), 64 << 10)] {
                install_team(2);
                let emulator = Emulator::builder().execution(execution).build();
                let device = device_of(&emulator, 0, staging);
                let one = device.stream().unwrap();
                thread::scope(|scope| {
                    for caller in 0..64 {
                        let (device, one) = (&device, &one);
                        scope.spawn(move || {
                            let own = device.stream().unwrap();
                            // Some share a stream.
                            let stream = if caller % 3 == 0 { one } else { &own };
                            for round in 0..3 {
                                let length = unit * (3 * caller % 16) + 101 + 37 * caller + round;
                                roundtrip(device, stream, length, caller as u64);
                            }
                        });
                    }
                });
                drop((one, device));
                assert_nothing_is_left(&emulator);
            }
        }
    });
}

#[test]
fn teams_of_any_size_and_replaced_in_the_middle() {
    watched(|| {
        for execution in EXECUTIONS {
            let emulator = Emulator::builder().execution(execution).build();
            let device = device_of(&emulator, 0, shared());
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let callers: Vec<_> = (0..4)
                    .map(|caller| {
                        let device = &device;
                        scope.spawn(move || {
                            let stream = device.stream().unwrap();
                            for round in 0..20 {
                                roundtrip(device, &stream, 300_000 + round, caller);
                            }
                        })
                    })
                    .collect();
                let installer = scope.spawn(|| {
                    for threads in [0, 1, 7].into_iter().cycle() {
                        install_team(threads);
                        thread::yield_now();
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
                let results: Vec<_> =
                    callers.into_iter().map(thread::ScopedJoinHandle::join).collect();
                stop.store(true, Ordering::Relaxed);
                // The thread sanitizer sees a join, but not the end of a scope.
                installer.join().unwrap();
                results.into_iter().for_each(|result| result.unwrap());
            });
            drop(device);
            assert_nothing_is_left(&emulator);
        }
        install_team(2);
    });
}

#[test]
fn teams_that_cannot_be_are_refused() {
    let error = CopyTeam::new().threads(257).install().unwrap_err();
    assert_eq!(error.kind(), pinlane::ErrorKind::InvalidValue);
    let error = CopyTeam::new().cores([usize::MAX]).install().unwrap_err();
    assert_eq!(error.kind(), pinlane::ErrorKind::InvalidValue);
}

/// What may keep a stream from starting a copy.
#[derive(Clone, Copy, Debug)]
enum Hold {
    Itself,
    /// It waits for a ticket of another one.
    Ticket,
    /// The copy's device memory is used by another one.
    Conflict,
}

/// Copies that wait for their stream hold no slots: copies of other streams continue.
#[test]
fn a_stalled_stream_holds_no_slots() {
    watched(|| {
        for execution in EXECUTIONS {
            for hold in [Hold::Itself, Hold::Ticket, Hold::Conflict] {
                for used_before in [false, true] {
                    a_held_stream(execution, hold, used_before);
                }
            }
        }
    });
}

fn a_held_stream(execution: Execution, hold: Hold, used_before: bool) {
    let emulator = Emulator::builder().execution(execution).build();
    let device = device(&emulator);
    let [held, holder, free, exposed] = [(); 4].map(|()| device.stream().unwrap());
    // Its handle is known outside, like that of a stalled stream: both take slots of the same part.
    let _ = raw(&exposed);
    if used_before {
        roundtrip(&device, &held, LENGTH, 1);
    }
    let mut gpus: Vec<_> = (0..4).map(|_| device.alloc::<u8>(LENGTH).unwrap()).collect();
    // Only `held` has used them, so there is no other reason to wait.
    gpus.iter_mut().for_each(|gpu| drop(held.fill(gpu, 0).unwrap()));
    held.synchronize().unwrap();
    let stalled = match hold {
        Hold::Itself => Stalled::new(&emulator, &held),
        Hold::Ticket | Hold::Conflict => Stalled::new(&emulator, &holder),
    };
    match hold {
        Hold::Itself => {}
        Hold::Ticket => held.wait_for(&holder.record().unwrap()).unwrap(),
        Hold::Conflict => gpus.iter_mut().for_each(|gpu| drop(holder.fill(gpu, 1).unwrap())),
    }
    let source = bytes(LENGTH, 2);
    thread::scope(|scope| {
        let waiting: Vec<_> = gpus
            .iter_mut()
            .map(|gpu| scope.spawn(|| held.upload_slice(&source, gpu).unwrap()))
            .collect();
        // Gives them time to take slots, which they must not.
        for round in 0..20 {
            roundtrip(&device, &free, LENGTH, round);
            roundtrip(&device, &exposed, LENGTH, round);
            thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(waiting.iter().all(|caller| !caller.is_finished()), "{hold:?}: nothing has moved");
        drop(stalled);
    });
    assert!(gpus.iter().all(|gpu| contents(&device, gpu) == source));
    drop((gpus, held, holder, free, exposed, device));
    assert_nothing_is_left(&emulator);
}

/// Small copies do not wait for their stream. However many are held up, the ring stays free for
/// others.
#[test]
fn small_copies_that_are_held_up_leave_the_ring_alone() {
    watched(|| {
        let emulator = Emulator::new();
        let device = device(&emulator);
        let [held, free] = [(); 2].map(|()| device.stream().unwrap());
        let stalled = Stalled::new(&emulator, &held);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let small = scope.spawn(|| {
                let mut gpus: Vec<_> = (0..200).map(|_| device.alloc::<u8>(99).unwrap()).collect();
                gpus.iter_mut().for_each(|gpu| drop(held.upload_slice(&[7; 99], gpu).unwrap()));
                done.store(true, Ordering::Relaxed);
                gpus
            });
            // They run until their page-locked memory is used up, or until all are made.
            let copies = || emulator.calls(pinlane::driver::Call::CopyH2D);
            eventually("a copy", || copies() > 0);
            thread::sleep(std::time::Duration::from_millis(20));
            for length in [101, SLOT, LENGTH] {
                roundtrip(&device, &free, length, 3);
            }
            drop(stalled);
            let gpus = small.join().unwrap();
            assert!(gpus.iter().all(|gpu| contents(&device, gpu) == [7; 99]));
        });
        assert!(done.into_inner());
    });
}

/// A batch of page-locked memory returns at once, however long its list is.
#[test]
fn page_locked_batches_wait_for_nothing() {
    watched(|| {
        for path in super::support::ROUTES {
            let emulator = Emulator::new();
            let device = device(&emulator);
            let stream = device.stream().unwrap();
            let pool = pinlane::PinnedPool::builder(&device).build().unwrap();
            let host = super::support::pinned(&pool, &bytes(20_000, 1));
            let mut gpu = device.alloc::<u8>(20_000).unwrap();
            let stalled = Stalled::new(&emulator, &stream);
            let mut tickets = Vec::new();
            for _ in 0..3 {
                let views = super::support::views(&mut gpu, (0..900).map(|n| 10 * n..10 * n + 9));
                let views = views.into_iter().enumerate();
                let items = views
                    .map(|(n, view)| Upload::new(host.slice(10 * n..10 * n + 9).unwrap(), view));
                tickets.push(stream.upload_batch_by(path, items).unwrap());
            }
            assert!(!tickets[0].is_done().unwrap());
            drop(stalled);
            tickets.iter().for_each(|ticket| ticket.wait().unwrap());
            let _ = raw(&stream);
            assert_eq!(emulator.findings(), []);
        }
    });
}
