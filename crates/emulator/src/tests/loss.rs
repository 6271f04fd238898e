//! Devices that are lost, and the driver that unloads.

use super::*;
use pinlane_driver::Call;

/// Machines of both kinds, with seeds that pick every answer that there is.
fn rigs() -> impl Iterator<Item = Rig> {
    let eager = |seed| Rig::new(Emulator::builder().seed(seed));
    (0..8).flat_map(move |seed| [eager(seed), Rig::lazy(seed)])
}

/// A stream of device 0 that is stalled, and one of device 1 that waits for it.
fn stuck_and_follower(rig: &Rig) -> [RawStream; 2] {
    let (stuck, follower, a) = (rig.stream(0), rig.stream(1), rig.memory(0));
    rig.emulator.stall(stuck).unwrap();
    rig.fill(stuck, a, 1).unwrap();
    let event = rig.mark(stuck);
    rig.wait(follower, event).unwrap();
    [stuck, follower]
}

#[test]
fn losing_a_device_ends_every_wait_for_its_work() {
    const CODE: CudaCode = CudaCode::LAUNCH_FAILURE;
    let mut seen = HashSet::new();
    for rig in rigs() {
        let [stuck, follower] = stuck_and_follower(&rig);
        let (host, b) = (rig.host(), rig.memory(1));
        rig.fill(follower, b, 7).unwrap();
        rig.download(follower, host, b).unwrap();
        let before = bytes(host);
        let released = std::thread::scope(|scope| {
            let waits = [stuck, follower].map(|stream| {
                let rig = &rig;
                scope.spawn(move || rig.synchronize(stream))
            });
            rig.emulator.lose_device(0, CODE).unwrap();
            let [lost, other] = waits.map(|wait| wait.join().unwrap());
            assert_eq!(lost, Err(CODE));
            other
        });
        // The seed decides whether the other device's stream continues. Its answers are true either
        // way.
        let again = rig.synchronize(follower);
        let query = rig.query(follower);
        let left = rig.emulator.usage().pending_operations;
        if released.is_ok() {
            assert_eq!((again, query), (Ok(()), Ok(Poll::Done)));
            assert!(left <= 2, "only what is stuck on the lost device");
            assert_eq!(bytes(host), [7; BYTES]);
        } else {
            assert_eq!((released, again), (Err(CODE), Err(CODE)));
            assert!(query.is_err() || query == Ok(Poll::NotReady));
            assert_eq!(bytes(host), before);
            assert!(left >= 3, "none of them ever runs");
        }
        let elsewhere = rig.stream(1);
        rig.fill(elsewhere, rig.memory(1), 8).unwrap();
        rig.synchronize(elsewhere).unwrap();
        seen.insert(released.is_ok());
    }
    assert_eq!(seen.len(), 2, "the seeds pick both");
}

/// Otherwise a caller that asks twice to be sure, as the pool does, would never stop.
#[test]
fn a_query_that_has_told_of_a_loss_tells_so_again() {
    let mut told = 0;
    for rig in rigs() {
        let [_, follower] = stuck_and_follower(&rig);
        rig.emulator.lose_device(0, CudaCode::LAUNCH_FAILURE).unwrap();
        let query = || rig.query(follower);
        if (0..10).any(|_| query().is_err()) {
            (0..10).for_each(|_| assert!(query().is_err()));
            told += 1;
        }
    }
    assert!(told > 0);
}

/// The wait for the allocation is over, or dropped, with the device that it was on.
#[test]
fn a_copy_from_a_lost_device_is_no_misuse_of_the_other() {
    for rig in rigs() {
        let (first, second, ours) = (rig.stream(0), rig.stream(1), rig.memory(1));
        rig.emulator.stall(first).unwrap();
        let theirs = rig.alloc(first, BYTES).unwrap();
        let event = rig.mark(first);
        rig.wait(second, event).unwrap();
        rig.copy_peer(second, (ours, 1), (theirs, 0)).unwrap();
        rig.emulator.lose_device(0, CudaCode::LAUNCH_FAILURE).unwrap();
        let _ = rig.synchronize(second);
        assert_eq!(rig.emulator.findings(), []);
        assert!(rig.driver.memory_info(1).is_ok());
    }
}

/// An upload that fails gives its source back: no later call can show when the copy has read it.
#[test]
fn what_a_copy_to_a_lost_device_reads_does_not_matter() {
    for code in [CudaCode::LAUNCH_FAILURE, CudaCode::CUDART_UNLOADING] {
        for rig in rigs() {
            let (stream, host, a) = (rig.stream(0), rig.host(), rig.memory(0));
            rig.emulator.stall(stream).unwrap();
            rig.upload(stream, a, host).unwrap();
            rig.emulator.lose_device(0, code).unwrap();
            rig.emulator.release(stream).unwrap();
            write(host, &[1; BYTES]);
            (0..20).for_each(|_| assert_eq!(rig.synchronize(stream), Err(code)));
            assert_eq!(rig.found(), []);
        }
    }
}

#[test]
fn rule_30_an_unloading_driver_fails_every_call_and_copies_may_go_on() {
    const CODE: CudaCode = CudaCode::CUDART_UNLOADING;
    let mut went_on = HashSet::new();
    for (number, rig) in rigs().enumerate() {
        let [stuck, follower] = stuck_and_follower(&rig);
        let (host, other, b, far) = (rig.host(), rig.host(), rig.memory(1), rig.stream(1));
        rig.download(follower, host, b).unwrap();
        rig.emulator.stall(far).unwrap();
        rig.download(far, other, b).unwrap();
        rig.launch(stuck, || unreachable!("the driver has unloaded")).unwrap();
        if number % 2 == 0 {
            rig.emulator.lose_device(1, CudaCode::ILLEGAL_ADDRESS).unwrap();
        }
        let before = (bytes(host), bytes(other));
        rig.emulator.inject(Fault::once(Call::MemoryInfo, CODE));
        assert_eq!(rig.driver.memory_info(0), Err(CODE));
        [stuck, far].iter().for_each(|&stream| rig.emulator.release(stream).unwrap());
        for stream in [stuck, follower, far] {
            assert_eq!(rig.synchronize(stream), Err(CODE));
            assert_eq!(rig.query(stream), Err(CODE));
        }
        assert_eq!(rig.driver.device_count(), Err(CODE));
        assert_eq!(rig.driver.versions(), Err(CODE));
        assert_eq!(rig.driver.memory_info(1), Err(CODE), "also where another error was first");
        assert_eq!(rig.free_host(host), Err(CODE));
        went_on.insert((bytes(host), bytes(other)) != before);
        assert_eq!(rig.found(), []);
    }
    assert_eq!(went_on.len(), 2, "the seeds pick both");
}
