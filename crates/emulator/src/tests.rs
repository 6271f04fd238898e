//! What the emulated device does beyond CUDA's promises: laziness, faults, findings, stuck streams.
//! Behaviour that it shares with GPUs is tested through `dyn Driver`, in `tests/emulated`.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::channel;

mod awake;
mod calls;
mod copies;
mod declared;
mod destinations;
mod explore;
mod graphs;
mod hashed;
mod json;
mod late;
mod lent;
mod loss;
mod order;
mod per_thread;
mod rig;
mod schedule;
mod staged;
mod stand_ins;
mod stuck;
mod wide;

use self::rig::{BYTES, Rig, at, bytes, write};
use super::*;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Capture, DevicePtr, Driver, HostFlags, Poll, RawStream, StreamFlags};

#[test]
fn all_handles_give_the_same_driver() {
    let machine = Emulator::builder().build();
    let driver = machine.driver();
    let same =
        |other: &Arc<dyn Driver>| std::ptr::addr_eq(Arc::as_ptr(&driver), Arc::as_ptr(other));
    assert!(same(&machine.driver()) && same(&machine.clone().driver()));
    let again = Emulator::of(Arc::clone(&driver)).expect("an emulated machine");
    drop(machine);
    assert!(same(&again.driver()));
    assert!(!same(&Emulator::builder().build().driver()));
}

#[test]
fn lazy_the_destination_of_a_copy_is_poisoned_until_it_runs() {
    let rig = Rig::lazy(1);
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    rig.fill(stream, a, 5).unwrap();
    rig.download(stream, host, a).unwrap();
    assert!(bytes(host).iter().all(|&byte| byte != 0) && bytes(host) != [5; BYTES]);
    rig.synchronize(stream).unwrap();
    assert_eq!(bytes(host), [5; BYTES]);
    assert_eq!(rig.found(), []);
}

#[test]
fn lazy_a_source_that_changes_in_flight_is_found() {
    for (changes, found) in [(false, vec![]), (true, vec![FindingKind::SourceChanged])] {
        let rig = Rig::lazy(1);
        let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
        rig.upload(stream, a, host).unwrap();
        if changes {
            write(at(host, BYTES - 1), &[1]);
        }
        rig.synchronize(stream).unwrap();
        assert_eq!(rig.found(), found);
    }
}

#[test]
fn lazy_queries_deny_one_to_four_times() {
    let denials = |seed| {
        let rig = Rig::lazy(seed);
        let stream = rig.stream(0);
        let event = rig.mark(stream);
        (0..).take_while(|_| rig.query_event(event) == Ok(Poll::NotReady)).count()
    };
    let seen: HashSet<usize> = (0..100).map(denials).collect();
    assert_eq!(seen, HashSet::from([1, 2, 3, 4]));
}

#[test]
fn lazy_the_seed_decides_how_far_other_streams_get() {
    // When one stream is waited for, another's copy may have run or not.
    let other_ran = |seed| {
        let rig = Rig::lazy(seed);
        let (waited, other) = (rig.stream(0), rig.stream(0));
        let (a, host) = (rig.memory(0), rig.host());
        rig.fill(other, a, 1).unwrap();
        rig.download(other, host, a).unwrap();
        rig.fill(waited, rig.memory(0), 1).unwrap();
        rig.synchronize(waited).unwrap();
        bytes(host) == [1; BYTES]
    };
    let runs: Vec<bool> = (0..50).map(other_ran).collect();
    assert!(runs.contains(&true) && runs.contains(&false));
    assert_eq!(runs, (0..50).map(other_ran).collect::<Vec<_>>(), "a run is its seed");
}

#[test]
fn lazy_a_missing_wait_between_streams_shows() {
    let wrong = (0..50).filter(|&seed| {
        let rig = Rig::lazy(seed);
        let (producer, consumer, a) = (rig.stream(0), rig.stream(0), rig.memory(0));
        let host = rig.host();
        rig.fill(producer, a, 7).unwrap();
        rig.download(consumer, host, a).unwrap();
        rig.synchronize(consumer).unwrap();
        bytes(host) != [7; BYTES]
    });
    assert!(wrong.count() > 10);
}

#[test]
fn using_memory_of_another_stream_before_its_allocation_is_reached_loses_the_device() {
    let rig = Rig::lazy(0);
    let (owner, other) = (rig.stream(0), rig.stream(0));
    rig.emulator.stall(owner).unwrap();
    let a = rig.alloc(owner, BYTES).unwrap();
    rig.fill(other, a, 1).unwrap();
    assert_eq!(rig.found(), [FindingKind::Race], "whenever it is reached");
    assert_eq!(rig.synchronize(other), Err(CudaCode::ILLEGAL_ADDRESS));
    assert_eq!(rig.found(), [FindingKind::Race, FindingKind::IllegalAddress]);
}

#[test]
fn a_bad_device_address_costs_the_device_for_ever_and_no_other() {
    let rig = Rig::eager();
    let (stream, a) = (rig.stream(0), rig.memory(0));
    rig.free(stream, a).unwrap();
    rig.fill(stream, a, 1).unwrap();
    let lost = Err(CudaCode::ILLEGAL_ADDRESS);
    assert_eq!(rig.synchronize(stream), lost);
    assert_eq!(rig.fill(stream, a, 1), lost);
    assert_eq!(rig.driver.host_alloc(0, 1, HostFlags::default()).map(|_| ()), lost);
    rig.fill(rig.stream(1), rig.memory(1), 1).unwrap();
    let finding = rig.emulator.findings().pop().unwrap();
    assert_eq!(finding.kind, FindingKind::IllegalAddress);
    assert!(finding.to_string().contains("Fill on stream"), "{finding}");
}

#[test]
fn host_memory_that_is_not_page_locked_is_refused() {
    let rig = Rig::eager();
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    let mut plain = [0u8; BYTES];
    let plain = NonNull::new(plain.as_mut_ptr()).unwrap();
    assert_eq!(rig.upload(stream, a, plain), Err(CudaCode::INVALID_VALUE));
    assert_eq!(rig.download(stream, at(host, 1), a), Err(CudaCode::INVALID_VALUE));
    assert_eq!(rig.found(), [FindingKind::NotPageLocked; 2]);
    rig.synchronize(stream).unwrap();
}

#[test]
fn a_copy_lies_in_one_registered_range() {
    let rig = Rig::lazy(2);
    let (stream, a) = (rig.stream(0), rig.memory(0));
    let mut owned = [1u8; 2 * BYTES];
    let low = NonNull::new(owned.as_mut_ptr()).unwrap();
    let (middle, high) = (at(low, BYTES / 2), at(low, BYTES));
    rig.register(low).unwrap();
    rig.register(high).unwrap();
    assert_eq!(rig.register(middle), Err(CudaCode::HOST_MEMORY_ALREADY_REGISTERED));
    let usage = rig.emulator.usage();
    assert_eq!((usage.host_bytes, usage.host_blocks), (2 * BYTES, 2));

    assert_eq!(rig.upload(stream, a, middle), Err(CudaCode::INVALID_VALUE));
    assert_eq!(rig.download(stream, middle, a), Err(CudaCode::INVALID_VALUE));
    assert_eq!(rig.found(), [FindingKind::NotPageLocked; 2]);
    rig.upload(stream, a, low).unwrap();
    rig.fill(stream, a, 9).unwrap();
    rig.download(stream, high, a).unwrap();
    rig.synchronize(stream).unwrap();
    assert_eq!((bytes(low), bytes(high)), ([1; BYTES], [9; BYTES]));

    assert_eq!(rig.unregister(middle), Err(CudaCode::INVALID_VALUE));
    assert_eq!(rig.unregister(rig.host()), Err(CudaCode::INVALID_VALUE));
    rig.unregister(low).unwrap();
    rig.unregister(high).unwrap();
    assert_eq!(rig.unregister(high), Err(CudaCode::HOST_MEMORY_NOT_REGISTERED));
    assert_eq!(rig.found()[2..], [FindingKind::BadFree; 2]);
    let usage = rig.emulator.usage();
    assert_eq!((usage.host_bytes, usage.host_blocks), (BYTES, 1), "what `host` allocated");
}

#[test]
fn host_memory_freed_in_flight_is_quarantined() {
    let rig = Rig::lazy(2);
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    rig.fill(stream, a, 3).unwrap();
    rig.download(stream, host, a).unwrap();
    rig.free_host(host).unwrap();
    assert_eq!(rig.found(), [FindingKind::FreedInFlight]);
    rig.synchronize(stream).unwrap();
    assert_eq!(bytes(host), [3; BYTES], "the memory is still there");
    let usage = rig.emulator.usage();
    assert_eq!((usage.host_blocks, usage.quarantined_blocks), (0, 1));
}

#[test]
fn a_range_unregistered_in_flight_is_never_touched_again() {
    let rig = Rig::lazy(2);
    let (stream, a) = (rig.stream(0), rig.memory(0));
    let mut owned = vec![0u8; BYTES];
    let ptr = NonNull::new(owned.as_mut_ptr()).unwrap();
    rig.register(ptr).unwrap();
    rig.download(stream, ptr, a).unwrap();
    rig.unregister(ptr).unwrap();
    drop(owned);
    assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS));
    assert_eq!(rig.found(), [FindingKind::FreedInFlight, FindingKind::NotPageLocked]);
}

#[test]
fn stale_handles_and_double_frees_are_found() {
    let rig = Rig::eager();
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    let event = rig.mark(stream);
    rig.free_host(host).unwrap();
    assert_eq!(rig.free_host(host), Err(CudaCode::INVALID_VALUE));
    rig.free(stream, a).unwrap();
    assert_eq!(rig.free(stream, a), Err(CudaCode::INVALID_VALUE));
    rig.destroy_event(event).unwrap();
    let stale = Err(CudaCode::INVALID_RESOURCE_HANDLE);
    assert_eq!(rig.record(event, stream), stale);
    rig.destroy_stream(stream).unwrap();
    assert_eq!(rig.synchronize(stream), stale);
    let (free, handle) = (FindingKind::BadFree, FindingKind::BadHandle);
    assert_eq!(rig.found(), [free, free, handle, handle]);
}

#[test]
fn a_fault_has_no_effect_but_its_code() {
    let rig = Rig::eager();
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    rig.fill(stream, a, 1).unwrap();
    rig.emulator.inject(Fault::once(Call::Fill, CudaCode::UNKNOWN).nth(2));
    rig.fill(stream, a, 2).unwrap();
    assert_eq!(rig.fill(stream, a, 3), Err(CudaCode::UNKNOWN));
    rig.download(stream, host, a).unwrap();
    assert_eq!((bytes(host), rig.emulator.calls(Call::Fill)), ([2; BYTES], 3));
    rig.emulator.inject(Fault::once(Call::Fill, CudaCode::LAUNCH_FAILURE));
    assert_eq!(rig.fill(stream, a, 4), Err(CudaCode::LAUNCH_FAILURE));
    assert_eq!(rig.synchronize(stream), Err(CudaCode::LAUNCH_FAILURE), "a sticky code stays");
}

#[test]
fn device_memory_runs_out_and_comes_back() {
    let rig = Rig::eager();
    let stream = rig.stream(0);
    let all = rig.alloc(stream, 1 << 20).unwrap();
    assert_eq!(rig.driver.memory_info(0), Ok((0, 1 << 20)));
    assert_eq!(rig.alloc(stream, 1), Err(CudaCode::MEMORY_ALLOCATION));
    rig.free(stream, all).unwrap();
    rig.alloc(stream, 1).unwrap();
    let usage = rig.emulator.usage();
    assert_eq!((usage.device_bytes, usage.device_blocks, usage.streams), (1, 1, 1));
}

#[test]
fn a_stuck_stream_holds_up_its_followers_until_released() {
    for rig in [Rig::eager(), Rig::lazy(3)] {
        let (stuck, follower, a) = (rig.stream(0), rig.stream(1), rig.memory(0));
        rig.emulator.stall(stuck).unwrap();
        rig.fill(stuck, a, 1).unwrap();
        let event = rig.mark(stuck);
        rig.wait(follower, event).unwrap();
        assert_eq!(rig.query(follower), Ok(Poll::NotReady));
        assert_eq!(rig.emulator.usage().pending_operations, 3);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| rig.synchronize(follower));
            rig.emulator.release(stuck).unwrap();
            waiter.join().unwrap().unwrap();
        });
    }
}

#[test]
fn copies_cross_devices_and_kernels_only_to_open_pools() {
    for rig in [Rig::eager(), Rig::lazy(4)] {
        let (stream, near, far) = (rig.stream(0), rig.memory(0), rig.memory(1));
        let host = rig.host();
        rig.fill(stream, near, 8).unwrap();
        rig.copy_peer(stream, (far, 1), (near, 0)).unwrap();
        rig.download(stream, host, far).unwrap();
        rig.synchronize(stream).unwrap();
        assert_eq!(bytes(host), [8; BYTES]);
        rig.driver.enable_peer_access(0, 1).unwrap();
        rig.driver.pool_access(1, 0).unwrap();
        rig.driver.pool_access(1, 0).unwrap();
        rig.fill(stream, far, 1).unwrap();
        rig.synchronize(stream).unwrap();
        let other = rig.stream(1);
        rig.fill(other, near, 1).unwrap();
        assert_eq!(rig.synchronize(other), Err(CudaCode::ILLEGAL_ADDRESS), "one direction only");
    }
}

/// Memory from `cudaMalloc` needs peer access between the devices, memory from a pool needs access
/// to the pool. A kernel needs both.
#[test]
fn rule_19_kernels_need_peer_access_to_a_device_and_to_its_pool() {
    for (device, pool) in [(false, false), (true, false), (false, true)] {
        let rig = Rig::eager();
        let (stream, far) = (rig.stream(0), rig.memory(1));
        if device {
            rig.driver.enable_peer_access(0, 1).unwrap();
        }
        if pool {
            rig.driver.pool_access(1, 0).unwrap();
        }
        rig.fill(stream, far, 1).unwrap();
        assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS), "{device} {pool}");
    }
}

#[test]
fn rule_19_a_peer_copy_on_a_legacy_stream_holds_up_both_devices() {
    let rig = Rig::eager();
    let (near, far) = (rig.memory(0), rig.memory(1));
    let blocking = StreamFlags { blocking: true, priority: 0 };
    let before = rig.driver.stream_create(1, blocking).unwrap();
    let after = rig.driver.stream_create(1, blocking).unwrap();
    let legacy = RawStream { device: 0, handle: RawStream::LEGACY };
    rig.emulator.stall(before).unwrap();
    rig.fill(before, far, 1).unwrap();
    rig.copy_peer(legacy, (near, 0), (far, 1)).unwrap();
    let event = rig.mark(after);
    assert_eq!(rig.query(legacy), Ok(Poll::NotReady));
    assert_eq!(rig.query_event(event), Ok(Poll::NotReady));
    rig.emulator.release(before).unwrap();
    assert_eq!(rig.query_event(event), Ok(Poll::Done));
}

#[test]
fn rule_25_a_host_function_may_not_call_the_driver() {
    for rig in [Rig::eager(), Rig::lazy(5)] {
        let (driver, answer) = (Arc::clone(&rig.driver), Arc::new(AtomicI32::new(0)));
        let (stream, told) = (rig.stream(0), Arc::clone(&answer));
        let attempt = move || {
            let code = driver.host_alloc(0, 1, HostFlags::default()).unwrap_err();
            told.store(code.0, Ordering::Relaxed);
        };
        rig.launch(stream, attempt).unwrap();
        rig.synchronize(stream).unwrap();
        assert_eq!(answer.load(Ordering::Relaxed), 800);
        assert_eq!(rig.found(), [FindingKind::CallInHostFunction]);
    }
}

#[test]
fn the_last_handle_may_go_inside_a_host_function() {
    let ((go, others_gone), (done, finished)) = (channel(), channel());
    let rig = Rig::eager();
    let (driver, stream) = (Arc::clone(&rig.driver), rig.stream(0));
    let release = move || {
        others_gone.recv().unwrap();
        drop(driver);
        done.send(()).unwrap();
    };
    rig.launch(stream, release).unwrap();
    drop(rig);
    go.send(()).unwrap();
    finished.recv().unwrap();
}

#[test]
fn busy_kernels_count_in_elapsed_time() {
    let rig = Rig::eager();
    let stream = rig.stream(0);
    let [start, end] = [(); 2].map(|()| rig.driver.event_create(0, true).unwrap());
    rig.record(start, stream).unwrap();
    rig.busy(stream, 5_000_000_000).unwrap();
    rig.record(end, stream).unwrap();
    assert!(rig.elapsed(start, end).unwrap() >= 5000.0);
}

#[test]
fn rules_32_to_34_a_capture_records_holds_and_dies() {
    for rig in [Rig::eager(), Rig::lazy(6)] {
        let (stream, other, a, host) = (rig.stream(0), rig.stream(0), rig.memory(0), rig.host());
        let legacy = RawStream { device: 0, handle: RawStream::LEGACY };
        let unsupported = Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(rig.emulator.begin_capture(legacy), unsupported);
        rig.emulator.begin_capture(stream).unwrap();
        rig.fill(stream, a, 1).unwrap();
        let event = rig.mark(stream);
        let both = (rig.capture(stream), rig.capture(other));
        assert_eq!(both, (Ok(Capture::Active), Ok(Capture::None)));
        // A wait for a captured event draws the other stream in.
        rig.wait(other, event).unwrap();
        assert_eq!(rig.capture(other), Ok(Capture::Active));
        // Work elsewhere leaves the capture alone.
        rig.host();
        rig.synchronize(rig.stream(0)).unwrap();
        assert_eq!(rig.emulator.end_capture(other), Err(CudaCode(903)));
        assert_eq!(rig.emulator.end_capture(stream), Ok(3));
        assert_eq!(rig.capture(other), Ok(Capture::None));

        rig.emulator.begin_capture(stream).unwrap();
        rig.upload(stream, a, host).unwrap();
        let captured = rig.mark(stream);
        assert_eq!(rig.query_event(event), Err(CudaCode::INVALID_VALUE), "its capture has ended");
        assert_eq!(rig.query_event(captured), Err(CudaCode::CAPTURED_EVENT));
        assert_eq!(rig.synchronize(stream), unsupported);
        assert_eq!(rig.capture(stream), Ok(Capture::Invalidated));
        assert_eq!(rig.found(), []);
        rig.free_host(host).unwrap();
        assert_eq!(rig.found(), [FindingKind::FreedInFlight]);
        let dead = Err(CudaCode::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(rig.emulator.end_capture(stream), dead);
        rig.synchronize(stream).unwrap();
    }
}

#[test]
fn rule_32_a_capturing_blocking_stream_forbids_the_legacy_stream() {
    let rig = Rig::eager();
    let flags = StreamFlags { blocking: true, priority: 0 };
    let (stream, a) = (rig.driver.stream_create(0, flags).unwrap(), rig.memory(0));
    let legacy = RawStream { device: 0, handle: RawStream::LEGACY };
    rig.emulator.begin_capture(stream).unwrap();
    assert_eq!(rig.fill(legacy, a, 1), Err(CudaCode::STREAM_CAPTURE_IMPLICIT));
    let dead = Err(CudaCode::STREAM_CAPTURE_INVALIDATED);
    assert_eq!(rig.emulator.end_capture(stream), dead);
    rig.fill(legacy, a, 1).unwrap();
}

/// A copy between devices on a legacy stream synchronizes with both.
#[test]
fn rule_32_a_peer_copy_that_a_capture_forbids_copies_nothing() {
    let rig = Rig::eager();
    let flags = StreamFlags { blocking: true, priority: 0 };
    let stream = rig.driver.stream_create(1, flags).unwrap();
    let (near, far, legacy) =
        (rig.memory(0), rig.memory(1), RawStream { device: 0, handle: RawStream::LEGACY });
    rig.fill(legacy, near, 1).unwrap();
    rig.fill(rig.stream(1), far, 2).unwrap();
    rig.emulator.begin_capture(stream).unwrap();
    let refused = rig.copy_peer(legacy, (near, 0), (far, 1));
    assert_eq!(refused, Err(CudaCode::STREAM_CAPTURE_IMPLICIT));
    let host = rig.host();
    rig.download(legacy, host, near).unwrap();
    rig.synchronize(legacy).unwrap();
    assert_eq!(bytes(host), [1; BYTES]);
    rig.free_host(host).unwrap();
}

#[test]
fn a_late_fault_comes_behind_the_effect() {
    let code = CudaCode::UNKNOWN;
    for rig in [Rig::eager(), Rig::lazy(0)] {
        let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
        rig.emulator.inject(Fault::once(Call::Fill, code).late());
        assert_eq!(rig.fill(stream, a, 7), Err(code));
        rig.emulator.inject(Fault::once(Call::CopyD2H, code).late());
        assert_eq!(rig.download(stream, host, a), Err(code));
        rig.emulator.inject(Fault::once(Call::StreamSynchronize, code).late());
        assert_eq!(rig.synchronize(stream), Err(code));
        assert_eq!(bytes(host), [7; BYTES], "it was enqueued, and waited for");
        let before = rig.emulator.usage().streams;
        rig.emulator.inject(Fault::once(Call::StreamCreate, code).late());
        assert_eq!(rig.driver.stream_create(0, StreamFlags::default()).map(drop), Err(code));
        assert_eq!(rig.emulator.usage().streams, before);
        rig.emulator.inject(Fault::once(Call::StreamDestroy, code).late());
        // SAFETY: created above, and not used afterwards.
        assert_eq!(unsafe { rig.driver.stream_destroy(stream) }, Err(code));
        assert_eq!(rig.emulator.usage().streams, before - 1);
        assert_eq!(rig.found(), []);
    }
}

#[test]
fn a_late_fault_loses_the_device_behind_the_effect() {
    let rig = Rig::eager();
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    rig.fill(stream, a, 7).unwrap();
    rig.emulator.inject(Fault::once(Call::CopyD2H, CudaCode::ILLEGAL_ADDRESS).late());
    assert_eq!(rig.download(stream, host, a), Err(CudaCode::ILLEGAL_ADDRESS));
    assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS));
    assert_eq!((bytes(host), rig.found()), ([7; BYTES], vec![]));
}

/// No call can name the destroyed stream to release it.
#[test]
fn a_stalled_stream_that_is_destroyed_goes_on() {
    for rig in Rig::of_each_mode(1) {
        let (stream, follower, a, host) = (rig.stream(0), rig.stream(0), rig.memory(0), rig.host());
        rig.emulator.stall(stream).unwrap();
        rig.fill(stream, a, 7).unwrap();
        let event = rig.mark(stream);
        rig.wait(follower, event).unwrap();
        rig.download(follower, host, a).unwrap();
        let behind = rig.mark(follower);
        rig.destroy_stream(stream).unwrap();
        // In the end a query makes progress.
        let is_done = |_| rig.query_event(behind) == Ok(Poll::Done);
        assert!((0..1000).any(is_done));
        assert_eq!((bytes(host), rig.found()), ([7; BYTES], vec![]));
    }
}
