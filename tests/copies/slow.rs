//! Streams that are slow, and memory that runs out: in every mode nothing hangs, tears or leaks.

use std::sync::mpsc::channel;

use pinlane::driver::RawStream;
use pinlane::emulated::{Emulator, Execution};
use pinlane::{ErrorKind, PinnedPool, Result};

use crate::common::support::{BLOCK, LEN, Rig, patience, raw, watched};

const MODES: [Execution; 5] = [
    Execution::Eager,
    Execution::Lazy,
    Execution::Random,
    Execution::Chunked,
    Execution::Pct { depth: 2 },
];

fn on_all_machines(test: impl Fn(Rig) + Send + 'static) {
    watched(move || {
        for (seed, execution) in (0..15).zip(MODES.into_iter().cycle()) {
            let machine = Emulator::builder().devices(2).execution(execution).seed(seed);
            test(Rig::on(machine.build(), 64));
        }
    });
}

#[test]
fn who_polls_sees_a_slow_operation_pending_and_others_overtake_it() {
    on_all_machines(|rig| {
        let other = rig.device.stream().unwrap();
        let (host, mut gpu, mut second) = (rig.host(7), rig.gpu(), rig.gpu());
        rig.stream.synchronize().unwrap();
        rig.emulator.slow(raw(&rig.stream), 40).unwrap();
        let slow = rig.stream.upload(&host, &mut gpu).unwrap();
        let fast = other.upload(&host, &mut second).unwrap();
        let mut polls = 0;
        while !fast.is_done().unwrap() {
            polls += 1;
        }
        assert!(polls < 30 && !slow.is_done().unwrap(), "{polls} polls");
        while !slow.is_done().unwrap() {
            polls += 1;
        }
        assert!((20..400).contains(&polls), "{polls} polls");
        rig.emulator.slow(raw(&rig.stream), 0).unwrap();
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        drop((gpu, second, host, slow, fast, other));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn who_waits_for_a_slow_stream_lets_the_time_pass() {
    on_all_machines(|rig| {
        let other = rig.device.stream().unwrap();
        let (mut host, mut gpu) = (rig.host(7), rig.gpu());
        rig.emulator.slow(raw(&rig.stream), 1_000_000).unwrap();
        rig.stream.upload(&host, &mut gpu).unwrap();
        host.write().unwrap().fill(8);
        // Another stream waits for the slow one, on the device.
        other.download(&gpu, &mut host).unwrap();
        assert_eq!(*host.read().unwrap(), [7; LEN]);
        drop((gpu, host, other));
        rig.assert_nothing_is_left();
    });
}

/// The host makes no call in the meantime.
#[test]
fn a_host_function_behind_slow_work_is_called() {
    on_all_machines(|rig| {
        let other = rig.device.stream().unwrap();
        let (host, mut gpu) = (rig.host(7), rig.gpu());
        rig.emulator.slow(raw(&rig.stream), 1_000_000).unwrap();
        let upload = rig.stream.upload(&host, &mut gpu).unwrap();
        other.wait_for(&upload).unwrap();
        let (call, called) = channel();
        let calls = call.clone();
        rig.stream.launch_host(move || call.send(1).unwrap()).unwrap();
        other.launch_host(move || calls.send(2).unwrap()).unwrap();
        let mut all = [0; 2].map(|_| called.recv_timeout(patience()).expect("it is called"));
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        rig.stream.synchronize().unwrap();
        other.synchronize().unwrap();
        drop((gpu, host, upload, other));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn blocks_behind_a_slow_stream_are_not_reused_before_it_is_done() {
    on_all_machines(|rig| {
        let mut gpu = rig.gpu();
        rig.emulator.slow(raw(&rig.stream), 9).unwrap();
        // More than the pool has.
        for value in 0..100 {
            let host = rig.host(value);
            rig.stream.upload(&host, &mut gpu).unwrap();
        }
        assert_eq!(rig.contents(&gpu), [99; LEN]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn a_slow_stream_must_be_live() {
    let machine = Emulator::new();
    let nobody = RawStream { device: 0, handle: 0x1234_5678 };
    assert!(machine.slow(nobody, 3).is_err());
}

/// Uses a pool, a staged copy and registered memory.
fn work(rig: &Rig) -> Result<()> {
    let mut gpu = rig.device.alloc::<u32>(8 * LEN)?;
    let source: Vec<u32> = (0..8 * LEN as u32).collect();
    rig.stream.upload_slice(&source, &mut gpu)?;
    let mut back = vec![0; 8 * LEN];
    rig.stream.download_slice(&gpu, &mut back)?;
    assert!(back == source);
    let second = PinnedPool::builder(&rig.device).max_bytes(16 * BLOCK).build()?;
    let mut hosts = Vec::new();
    for pool in [&rig.pool, &second, &rig.pool] {
        let mut host = pool.alloc::<u32>(2 * LEN)?;
        rig.stream.download(gpu.slice(..2 * LEN)?, &mut host)?;
        assert!(host.read()? == &source[..2 * LEN]);
        hosts.push(host);
    }
    let mut registered = rig.device.register(source.clone())?;
    rig.stream.download(&gpu, &mut registered)?;
    assert!(registered.read()? == source);
    Ok(())
}

#[test]
fn memory_may_run_out_at_any_point() {
    on_all_machines(|rig| {
        work(&rig).unwrap();
        rig.pool.trim().unwrap();
        let (used, mut ended) = (rig.emulator.usage(), [0; 2]);
        // Limits the host's memory, step by step up to more than the work takes, then the device's.
        for blocks in (0..512).step_by(24) {
            rig.emulator.limit_page_locked(used.host_bytes + blocks * BLOCK);
            match work(&rig) {
                Ok(()) => ended[0] += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfHostMemory, "{error}"),
            }
            rig.pool.trim().unwrap();
        }
        rig.emulator.limit_page_locked(usize::MAX);
        for blocks in (0..32).step_by(3) {
            rig.emulator.limit_device_memory(used.device_bytes + blocks * 1000);
            match work(&rig) {
                Ok(()) => ended[1] += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfDeviceMemory, "{error}"),
            }
        }
        assert!((1..22).contains(&ended[0]) && ended[1] == 0, "{ended:?} came through");
        rig.emulator.limit_device_memory(1 << 30);
        work(&rig).unwrap();
        rig.assert_nothing_is_left();
    });
}
