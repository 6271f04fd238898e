//! Rule 8: host functions.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, ErrorKind};

use crate::common;
use crate::support::{BLOCK, LEN, Rig, assert_nothing_is_left, eventually, raw, watched};

#[test]
fn rule_08_a_function_is_called_once_and_in_order() {
    watched(|| {
        let device = common::device();
        let pool = common::pool(&device).build().unwrap();
        let stream = device.stream().unwrap();
        let mut host = pool.alloc::<u32>(LEN).unwrap();
        let gpu = device.alloc::<u32>(LEN).unwrap();
        let (calls, log) = channel();
        for number in 0..50 {
            let calls = calls.clone();
            stream.launch_host(move || calls.send(number).unwrap()).unwrap();
        }
        drop(calls);
        stream.download(&gpu, &mut host).unwrap();
        host.read().unwrap();
        assert_eq!(log.iter().collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn rule_08_a_panic_ends_in_the_function() {
    watched(|| {
        let device = common::device();
        let stream = device.stream().unwrap();
        let owned = Arc::new(());
        let inside = owned.clone();
        // No message, because the hook is not called.
        let function = move || {
            let _inside = inside;
            resume_unwind(Box::new("on purpose"));
        };
        stream.launch_host(function).unwrap().wait().unwrap();
        eventually("what it owned is dropped", || Arc::strong_count(&owned) == 1);
        stream.launch_host(|| ()).unwrap().wait().unwrap();
    });
}

/// Its `Drop` panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("on purpose"));
    }
}

#[test]
fn rule_08_a_panic_that_panics_again_ends_there_too() {
    watched(|| {
        let device = common::device();
        let stream = device.stream().unwrap();
        stream.launch_host(|| resume_unwind(Box::new(Bomb))).unwrap().wait().unwrap();
        let bomb = Bomb;
        stream.launch_host(move || drop(bomb)).unwrap().wait().unwrap();
    });
}

#[test]
fn rule_08_what_a_panic_carries_is_released_by_ordinary_threads() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        let (gpu, stream) = (rig.gpu(), rig.device.stream().unwrap());
        let function = || resume_unwind(Box::new((gpu, stream)));
        rig.stream.launch_host(function).unwrap().wait().unwrap();
        eventually("it is released", || rig.emulator.usage().device_bytes == 0);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_08_everything_may_be_dropped_inside() {
    watched(|| {
        for (execution, seed) in [Execution::Eager, Execution::Lazy].into_iter().zip(0..) {
            let rig = Rig::new(execution, seed, 2);
            let (mut host, mut gpu) = (rig.host(1), rig.gpu());
            let emulator = rig.emulator.clone();
            let other = rig.device.stream().unwrap();
            let mut tickets: Vec<_> =
                (0..100).map(|_| other.upload(&host, &mut gpu).unwrap()).collect();
            tickets.push(rig.stream.download(&gpu, &mut host).unwrap());
            let last = rig.device.stream().unwrap();
            // The last owners of the pool, streams, device, and of buffers in flight.
            let function = move || drop((host, gpu, tickets, other, rig));
            last.launch_host(function).unwrap().wait().unwrap();
            drop(last);
            // Ordinary threads release everything.
            assert_nothing_is_left(&emulator);
        }
    });
}

/// Calls inside a host function are refused before they reach the driver, whatever the pool would
/// have to do.
#[test]
fn rule_08_calls_are_refused_inside() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 2);
        let (idle, mut gpu) = (rig.host(1), rig.gpu());
        // One block is cached. It would have to be freed to make room for a larger one.
        drop(rig.host(2));
        let (answers, answer) = channel();
        let (pool, stream, emulator) = (rig.pool.clone(), rig.stream.clone(), rig.emulator.clone());
        rig.device
            .stream()
            .unwrap()
            .launch_host(move || {
                assert_eq!(pool.stats().cached_bytes, BLOCK);
                let errors = [
                    pool.alloc::<u32>(LEN + 1).unwrap_err(),
                    stream.upload(&idle, &mut gpu).unwrap_err(),
                    stream.record().unwrap_err(),
                    stream.synchronize().unwrap_err(),
                ];
                assert_eq!(idle.read().expect("needs no driver")[0], 1);
                drop(pool.alloc::<u32>(LEN).expect("cached memory needs no driver"));
                answers.send(errors.map(|error| error.kind())).unwrap();
            })
            .unwrap();
        assert_eq!(answer.recv().expect("an assertion failed inside"), [ErrorKind::Unsupported; 4]);
        assert_eq!(emulator.findings(), []);
        assert_eq!(rig.pool.stats().quarantined_bytes, 0);
    });
}

#[test]
fn rule_08_a_refused_function_is_dropped() {
    let rig = Rig::new(Execution::Eager, 0, 1);
    let (owned, called) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    let launch = || {
        let (inside, called) = (owned.clone(), called.clone());
        let refused = rig.stream.launch_host(move || {
            called.fetch_add(1, Ordering::Relaxed);
            drop(inside);
        });
        assert_eq!(Arc::strong_count(&owned), 1, "what it owned is dropped");
        refused.unwrap_err()
    };
    // Without an event the launch is not tried. With one the driver refuses it.
    for call in [Call::EventCreate, Call::LaunchHost] {
        rig.emulator.inject(Fault::once(call, CudaCode::UNKNOWN));
        assert_eq!(launch().cuda_code(), Some(CudaCode::UNKNOWN));
    }
    rig.emulator.begin_capture(raw(&rig.stream)).unwrap();
    assert_eq!(launch().kind(), ErrorKind::StreamCapturing);
    rig.emulator.end_capture(raw(&rig.stream)).unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 0);
    rig.assert_no_misuse();
}

/// Neither its event nor the stream can tell when it is done. It may have been called by then.
#[test]
fn rule_08_a_function_is_called_or_refused_and_never_both() {
    watched(|| {
        let mut refused = 0;
        for (execution, seed) in [Execution::Eager, Execution::Lazy].into_iter().cycle().zip(0..100)
        {
            let rig = Rig::new(execution, seed, 1);
            let (owned, called) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
            let (inside, counts) = (owned.clone(), called.clone());
            rig.emulator.inject(Fault::once(Call::EventRecord, CudaCode::UNKNOWN));
            rig.emulator.inject(Fault::once(Call::StreamSynchronize, CudaCode::UNKNOWN));
            let stalls = seed % 3 == 0;
            if stalls {
                rig.stall(&rig.stream); // so that it is not called too early to be refused
            }
            let launched = rig.stream.launch_host(move || {
                let _inside = inside;
                counts.fetch_add(1, Ordering::Relaxed);
            });
            if stalls {
                assert_eq!(launched.as_ref().unwrap_err().cuda_code(), Some(CudaCode::UNKNOWN));
                rig.release(&rig.stream);
            }
            refused += usize::from(launched.is_err());
            let times = usize::from(launched.is_ok_and(|ticket| ticket.wait().is_ok()));
            rig.stream.synchronize().unwrap();
            eventually("what it owns is dropped", || Arc::strong_count(&owned) == 1);
            assert_eq!(called.load(Ordering::Relaxed), times);
            rig.assert_no_misuse();
        }
        assert!(refused > 0);
    });
}
