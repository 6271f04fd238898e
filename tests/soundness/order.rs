//! Rules 6, 12 and 13: several streams, several devices, default streams.

use std::thread;
use std::time::{Duration, Instant};

use pinlane::emulated::Execution;
use pinlane::{CudaCode, Device, ErrorKind, Result, StreamOptions};

use crate::common::{self, devices_of};
use crate::support::{LEN, Rig, on_lazy_machines};

/// The name of the call that was refused because the device still uses the buffer.
fn refused<T>(result: Result<T>) -> &'static str {
    let error = result.err().expect("the device still uses the buffer");
    assert_eq!(error.kind(), ErrorKind::NotReady);
    error.operation()
}

#[test]
fn rule_06_each_streams_use_is_kept() {
    on_lazy_machines(1, |rig| {
        let (mut host, mut first, mut second) = (rig.host(1), rig.gpu(), rig.gpu());
        let other = rig.device.stream().unwrap();
        rig.stall(&rig.stream);
        rig.stream.upload(&host, &mut first).unwrap();
        other.upload(&host, &mut second).unwrap().wait().unwrap();
        assert_eq!(refused(host.try_write()), "PinnedBuf::try_write");
        let view = host.slice_mut(..10).unwrap();
        assert_eq!(refused(view.try_into_write()), "PinnedSliceMut::try_into_write");
        rig.release(&rig.stream);
        host.write().unwrap().fill(2);
        assert_eq!(rig.contents(&first), [1; LEN]);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_06_many_uses_on_many_streams_are_all_waited_for() {
    on_lazy_machines(1, |rig| {
        let mut host = rig.host(1);
        let streams: Vec<_> = (0..6).map(|_| rig.device.stream().unwrap()).collect();
        let mut gpu: Vec<_> = streams.iter().map(|_| rig.gpu()).collect();
        // More than are recorded separately, so that uses on one stream are merged.
        for part in 0..40 {
            let range = part * 16..part * 16 + 16;
            for (stream, gpu) in streams.iter().zip(&mut gpu) {
                let (from, to) = (host.slice(range.clone()), gpu.slice_mut(range.clone()));
                stream.upload(from.unwrap(), to.unwrap()).unwrap();
            }
        }
        for part in (0..40).rev() {
            host.slice_mut(part * 16..).unwrap().into_write().unwrap().fill(2);
        }
        for gpu in &gpu {
            assert_eq!(rig.contents(gpu)[..640], [1; 640]);
        }
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_06_a_consumer_waits_for_the_producer_of_another_stream() {
    on_lazy_machines(2, |rig| {
        let (host, mut gpu, mut back) = (rig.host(1), rig.gpu(), rig.host(0));
        let other = rig.device.stream().unwrap();
        rig.stall(&rig.stream);
        rig.stream.upload(&host, &mut gpu).unwrap();
        let ticket = other.download(&gpu, &mut back).unwrap();
        for _ in 0..20 {
            assert!(!ticket.is_done().unwrap());
        }
        assert_eq!(refused(back.try_read()), "PinnedBuf::try_read");
        assert_eq!(refused(back.slice(..10).unwrap().try_read()), "PinnedSlice::try_read");
        rig.release(&rig.stream);
        assert_eq!(back.read().unwrap(), [1; LEN]);
        // And the next producer waits for the consumer.
        rig.stall(&other);
        other.download(&gpu, &mut back).unwrap();
        let overwrite = rig.stream.fill(&mut gpu, 9).unwrap();
        for _ in 0..20 {
            assert!(!overwrite.is_done().unwrap());
        }
        rig.release(&other);
        assert_eq!(back.read().unwrap(), [1; LEN]);
        drop((host, gpu, back, other, ticket, overwrite));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_06_streams_agree_on_the_chosen_device() {
    let device = common::device();
    let pool = common::pool(&device).build().unwrap();
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let mut host = pool.alloc::<u32>(1 << 18).unwrap();
    let mut gpu = device.alloc::<u32>(1 << 18).unwrap();
    for round in 0..50 {
        first.fill(&mut gpu, round).unwrap();
        second.download(&gpu, &mut host).unwrap();
        first.fill(&mut gpu, !round).unwrap();
        assert!(host.read().unwrap().iter().all(|&element| element == round));
    }
}

#[test]
fn rule_12_a_query_has_three_answers() {
    on_lazy_machines(1, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        let done = rig.stream.upload(&host, &mut gpu).unwrap();
        done.wait().unwrap();
        rig.stall(&rig.stream);
        let pending = rig.stream.upload(&host, &mut gpu).unwrap();
        assert!(done.is_done().unwrap());
        assert!(!pending.is_done().unwrap());
        rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
        assert!(done.is_done().unwrap(), "what is known is not asked again");
        assert_eq!(pending.is_done().unwrap_err().kind(), ErrorKind::DeviceLost);
    });
}

#[test]
fn rule_12_a_wait_with_a_timeout_has_four() {
    on_lazy_machines(1, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        let done = rig.stream.upload(&host, &mut gpu).unwrap();
        done.wait_timeout(Duration::from_secs(1000)).unwrap();
        rig.stall(&rig.stream);
        let pending = rig.stream.upload(&host, &mut gpu).unwrap();
        done.wait_timeout(Duration::ZERO).unwrap();
        for timeout in [Duration::ZERO, Duration::from_millis(2)] {
            let begun = Instant::now();
            let error = pending.wait_timeout(timeout).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(begun.elapsed() >= timeout);
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| pending.wait_timeout(Duration::MAX));
            rig.release(&rig.stream);
            waits.join().unwrap().unwrap();
        });
        rig.stall(&rig.stream);
        let lost = rig.stream.upload(&host, &mut gpu).unwrap();
        rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
        let error = lost.wait_timeout(Duration::from_secs(1000)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
    });
}

#[test]
fn rule_12_handles_carry_their_device() {
    for seed in 0..12 {
        let emulator = common::emulator(Execution::Lazy, seed);
        let devices = devices_of(&emulator);
        let pool = common::pool(&devices[0]).build().unwrap();
        let streams: Vec<_> = devices.iter().map(|device| device.stream().unwrap()).collect();
        let mut host = pool.alloc::<u32>(LEN).unwrap();
        host.write().unwrap().fill(5);
        let mut gpu: Vec<_> = devices.iter().map(|d| d.alloc::<u32>(LEN).unwrap()).collect();
        let [near, far] = &mut gpu[..] else { unreachable!("two devices") };
        // Alternates between the devices: nothing may depend on the previous call.
        let wrong = streams[1].upload(&host, &mut *near).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::WrongDevice);
        streams[0].upload(&host, &mut *near).unwrap();
        streams[1].copy(&*near, &mut *far).unwrap();
        host.write().unwrap().fill(6);
        streams[0].upload(&host, &mut *near).unwrap();
        streams[1].download(&*far, &mut host).unwrap();
        assert_eq!(host.read().unwrap(), [5; LEN]);
        // It is freed after the last use, which is on a stream of the other device.
        streams[0].copy(&*far, &mut *near).unwrap();
        drop((gpu, host, pool, streams, devices));
        assert_eq!(emulator.findings(), []);
        assert_eq!((emulator.usage().device_bytes, emulator.usage().streams), (0, 0));
    }
}

#[test]
fn rule_12_objects_of_two_drivers_do_not_mix() {
    let (ours, theirs) = (Rig::new(Execution::Eager, 0, 2), Rig::new(Execution::Eager, 0, 2));
    let (mut host, mut gpu) = (ours.host(1), ours.gpu());
    let foreign = theirs.gpu();
    let refused = [
        theirs.stream.upload(&host, &mut theirs.gpu()).unwrap_err(),
        theirs.stream.upload(&host, &mut gpu).unwrap_err(),
        ours.stream.download(&foreign, &mut host).unwrap_err(),
        ours.stream.copy(&foreign, &mut gpu).unwrap_err(),
        ours.stream.wait_for(&theirs.stream.record().unwrap()).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::WrongDevice), "{refused:?}");
    host.try_write().unwrap();
    assert!(ours.device != theirs.device);
}

/// A batch does not ask every buffer of one pool for its driver.
#[test]
fn rule_12_a_batch_finds_the_one_buffer_of_another_driver() {
    let [ours, theirs] = [(); 2].map(|()| Rig::new(Execution::Lazy, 0, 4));
    for place in 0..4 {
        for on_device in [false, true] {
            let of = |n: usize, here: bool| if n == place && here { &theirs } else { &ours };
            let mut hosts: Vec<_> = (0..4).map(|n| of(n, !on_device).host(1)).collect();
            let mut gpus: Vec<_> = (0..4).map(|n| of(n, on_device).gpu()).collect();
            let refused = [
                ours.stream.upload_batch(hosts.iter().zip(&mut gpus)).unwrap_err(),
                ours.stream.download_batch(gpus.iter().zip(&mut hosts)).unwrap_err(),
            ];
            for error in refused {
                assert_eq!(error.kind(), ErrorKind::WrongDevice, "{place} {on_device}");
            }
            for host in &mut hosts {
                host.try_write().unwrap();
            }
        }
    }
}

#[test]
fn rule_13_a_blocking_stream_waits_for_the_legacy_stream_and_others_do_not() {
    let rig = Rig::new(Execution::Eager, 0, 1);
    let options = StreamOptions::new().blocking(true);
    let (blocking, free) = (rig.device.stream_with(options).unwrap(), &rig.stream);
    let legacy = rig.device.legacy_stream();
    rig.stall(&legacy);
    legacy.fill(&mut rig.gpu(), 1).unwrap();
    let (held, passed) = (blocking.record().unwrap(), free.record().unwrap());
    assert!(!held.is_done().unwrap());
    assert!(passed.is_done().unwrap());
    rig.release(&legacy);
    assert!(held.is_done().unwrap());

    rig.stall(&blocking);
    blocking.fill(&mut rig.gpu(), 1).unwrap();
    let held = legacy.record().unwrap();
    assert!(!held.is_done().unwrap());
    rig.release(&blocking);
    assert!(held.is_done().unwrap());
}

#[test]
fn rule_13_default_streams_are_chosen_by_argument() {
    let device = common::device();
    let legacy = device.legacy_stream().as_raw();
    // SAFETY: 0 and 1 name the legacy default stream, which is never destroyed.
    let borrowed = [0, 1].map(|handle| unsafe {
        device.borrow_stream(std::ptr::without_provenance_mut(handle)).as_raw()
    });
    assert_eq!(borrowed, [legacy; 2]);
    assert_ne!(device.per_thread_stream().as_raw(), legacy);
    for stream in [device.legacy_stream(), device.per_thread_stream()] {
        let mut gpu = device.alloc::<u32>(LEN).unwrap();
        stream.fill(&mut gpu, 4).unwrap();
        let pool = common::pool(&device).build().unwrap();
        let mut host = pool.alloc::<u32>(LEN).unwrap();
        stream.download(&gpu, &mut host).unwrap();
        assert_eq!(host.read().unwrap(), [4; LEN]);
    }
}

#[test]
fn rule_13_a_per_thread_stream_refuses_other_threads() {
    fn check(device: &Device) {
        let pool = common::pool(device).build().unwrap();
        let stream = device.per_thread_stream();
        let (mut host, mut gpu) = (pool.alloc::<u32>(LEN).unwrap(), device.alloc(LEN).unwrap());
        host.write().unwrap().fill(8);
        let ticket = stream.upload(&host, &mut gpu).unwrap();
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                let refused = [
                    stream.fill(&mut gpu, 9).unwrap_err(),
                    stream.record().unwrap_err(),
                    stream.synchronize().unwrap_err(),
                    stream.launch_host(|| ()).unwrap_err(),
                ];
                assert!(refused.iter().all(|error| error.kind() == ErrorKind::WrongThread));
                // Any thread may wait, and use its own default stream.
                ticket.wait().unwrap();
                let mut back = pool.alloc::<u32>(LEN).unwrap();
                device.per_thread_stream().download(&gpu, &mut back).unwrap();
                assert_eq!(back.read().unwrap(), [8; LEN]);
            });
            elsewhere.join().unwrap();
        });
        // The thread has ended, and its stream with it. The buffers know that they are idle.
        host.write().unwrap().fill(1);
    }
    check(&common::device());
    for seed in 0..8 {
        check(&devices_of(&common::emulator(Execution::Lazy, seed))[0]);
    }
}
