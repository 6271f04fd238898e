//! Rules 4 and 7: calls that fail, at every point where that could lose track of the device.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::{CudaCode, ErrorKind};

use crate::support::{BLOCK, LEN, Rig, on_lazy_machines, watched};

const ANY: CudaCode = CudaCode::UNKNOWN;

/// Every call that waits or queries.
const WAITS: [Call; 4] =
    [Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize, Call::StreamQuery];

fn fail_forever(emulator: &Emulator, calls: &[Call]) {
    calls.iter().for_each(|&call| emulator.inject(Fault::forever(call, ANY)));
}

#[test]
fn rule_04_a_failed_wait_gives_no_contents_and_quarantines_the_block() {
    on_lazy_machines(2, |rig| {
        let (mut host, gpu) = (rig.host(1), rig.gpu());
        let lost = host.as_ptr();
        rig.stream.download(&gpu, &mut host).unwrap();
        fail_forever(&rig.emulator, &WAITS);
        for _ in 0..2 {
            assert_eq!(host.read().unwrap_err().cuda_code(), Some(ANY));
            assert_eq!(host.write().unwrap_err().cuda_code(), Some(ANY));
            assert_eq!(host.try_read().unwrap_err().cuda_code(), Some(ANY));
        }
        drop(host);
        let other = rig.pool.alloc::<u32>(LEN).unwrap();
        assert_ne!(other.as_ptr(), lost);
        assert_eq!(rig.pool.stats().quarantined_bytes, BLOCK);
        // Not even when the device can again report that it is done.
        rig.emulator.clear_faults();
        rig.stream.synchronize().unwrap();
        let spent = rig.pool.alloc::<u32>(LEN).unwrap_err();
        assert_eq!(spent.kind(), ErrorKind::BudgetExhausted);
        drop(other);
        for _ in 0..4 {
            assert_ne!(rig.host(2).as_ptr(), lost);
        }
        assert_eq!(rig.pool.stats().quarantined_bytes, BLOCK);
        let Rig { emulator, pool, .. } = rig;
        drop(pool);
        assert_eq!(emulator.usage().host_bytes, BLOCK, "never freed");
        assert_eq!(emulator.findings(), []);
    });
}

#[test]
fn rule_04_an_error_that_passes_is_asked_again() {
    on_lazy_machines(1, |rig| {
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stream.upload(&host, &mut gpu).unwrap();
        rig.emulator.inject(Fault::once(Call::StreamSynchronize, ANY));
        host.write().unwrap_err();
        host.write().unwrap().fill(2);
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_04_one_failure_does_not_cut_the_other_waits_short() {
    on_lazy_machines(1, |rig| {
        let mut host = rig.host(1);
        let streams = [(); 3].map(|()| rig.device.stream().unwrap());
        let mut gpus = [(); 3].map(|()| rig.gpu());
        for (stream, gpu) in streams.iter().zip(&mut gpus) {
            stream.upload(&host, gpu).unwrap();
        }
        let before = rig.emulator.calls(Call::StreamSynchronize);
        rig.emulator.inject(Fault::once(Call::StreamSynchronize, ANY));
        host.write().unwrap_err();
        assert_eq!(rig.emulator.calls(Call::StreamSynchronize) - before, 3);
    });
}

#[test]
fn rule_04_device_memory_whose_users_are_unknown_is_quarantined() {
    on_lazy_machines(2, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        let other = rig.device.stream().unwrap();
        let bytes = LEN * size_of::<u32>();
        rig.stream.upload(&host, &mut gpu).unwrap();
        // A use of a part, so that it does not replace the upload in the buffer's uses.
        other.fill(gpu.slice_mut(..LEN / 2).unwrap(), 3).unwrap();
        rig.emulator.inject(Fault::once(Call::StreamWaitEvent, ANY));
        drop(gpu);
        assert_eq!(rig.device.quarantined_bytes(), bytes);
        assert_eq!(rig.emulator.calls(Call::DeviceFree), 0);
        rig.emulator.inject(Fault::once(Call::DeviceFree, ANY));
        drop(rig.gpu());
        assert_eq!(rig.device.quarantined_bytes(), 2 * bytes);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_04_a_lost_device_ends_every_wait() {
    watched(|| {
        on_lazy_machines(4, |rig| {
            let (mut host, mut gpu) = (rig.host(1), rig.gpu());
            rig.stall(&rig.stream);
            let ticket = rig.stream.upload(&host, &mut gpu).unwrap();
            rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
            assert_eq!(ticket.is_done().unwrap_err().kind(), ErrorKind::DeviceLost);
            assert_eq!(ticket.wait().unwrap_err().kind(), ErrorKind::DeviceLost);
            assert_eq!(host.write().unwrap_err().kind(), ErrorKind::DeviceLost);
            assert_eq!(rig.stream.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
            drop((host, gpu));
            assert_eq!(rig.pool.alloc::<u32>(LEN).unwrap_err().kind(), ErrorKind::DeviceLost);
            assert_eq!(rig.pool.stats().quarantined_bytes, BLOCK);
            rig.assert_no_misuse();
        });
    });
}

/// Small copies share events only on a stream whose handle is unknown outside the crate.
fn fence_each_copy(rig: &Rig) {
    let _ = rig.stream.as_raw();
}

#[test]
fn rule_07_a_group_without_an_event_is_waited_for_with_its_stream() {
    for call in [Call::EventCreate, Call::EventRecord] {
        on_lazy_machines(1, move |rig| {
            let (mut host, mut gpu, mut copied) = (rig.host(1), rig.gpu(), rig.gpu());
            let other = rig.device.stream().unwrap();
            let before = rig.emulator.calls(call);
            rig.emulator.inject(Fault::forever(call, ANY));
            let ticket = rig.stream.upload(&host, &mut gpu).unwrap();
            assert_eq!(rig.emulator.calls(call), before, "no event of its own");
            // A consumer on another stream has no event to wait for, so the host waits.
            other.copy(&gpu, &mut copied).unwrap();
            assert!(ticket.is_done().unwrap());
            rig.stream.upload(&host, &mut gpu).unwrap();
            host.write().unwrap().fill(2);
            rig.emulator.clear_faults();
            assert_eq!(rig.contents(&gpu), [1; LEN]);
            assert_eq!(rig.contents(&copied), [1; LEN]);
            drop((ticket, host, gpu, copied, other));
            rig.assert_nothing_is_left();
        });
    }
}

#[test]
fn rule_07_without_an_event_nothing_is_enqueued() {
    let rig = Rig::new(Execution::Lazy, 0, 1);
    fence_each_copy(&rig);
    let (mut host, mut gpu) = (rig.host(1), rig.gpu());
    rig.emulator.inject(Fault::once(Call::EventCreate, ANY));
    let error = rig.stream.upload(&host, &mut gpu).unwrap_err();
    assert_eq!(error.operation(), "cudaEventCreateWithFlags");
    assert_eq!(rig.emulator.calls(Call::CopyH2D), 0);
    host.try_write().expect("nothing uses it");
    rig.stream.upload(&host, &mut gpu).unwrap();
}

#[test]
fn rule_07_a_copy_that_cannot_be_fenced_is_waited_for() {
    on_lazy_machines(1, |rig| {
        fence_each_copy(&rig);
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.emulator.inject(Fault::once(Call::EventRecord, ANY));
        let ticket = rig.stream.upload(&host, &mut gpu).unwrap();
        assert_eq!(rig.emulator.calls(Call::StreamSynchronize), 1);
        assert!(ticket.is_done().unwrap());
        host.try_write().unwrap().fill(2);
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        drop((ticket, host, gpu));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_07_a_copy_neither_fenced_nor_waited_for_is_not_forgotten() {
    on_lazy_machines(1, |rig| {
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.emulator.inject(Fault::once(Call::EventRecord, ANY));
        rig.emulator.inject(Fault::once(Call::StreamSynchronize, ANY));
        rig.stall(&rig.stream);
        let error = rig.stream.upload(&host, &mut gpu).unwrap_err();
        assert_eq!(error.operation(), "cudaEventRecord");
        assert_eq!(rig.emulator.calls(Call::CopyH2D), 1, "it was enqueued");
        let early = host.try_write().unwrap_err();
        assert_eq!(early.kind(), ErrorKind::NotReady);
        rig.release(&rig.stream);
        host.write().unwrap().fill(2);
        // A consumer on another stream has no event to wait for, but must still be ordered.
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        drop((host, gpu));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_07_a_later_fence_covers_the_one_that_failed() {
    on_lazy_machines(2, |rig| {
        fence_each_copy(&rig);
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.emulator.inject(Fault::once(Call::EventRecord, ANY));
        rig.emulator.inject(Fault::once(Call::StreamSynchronize, ANY));
        rig.stream.upload(&host, &mut gpu).unwrap_err();
        rig.stream.record().unwrap().wait().unwrap();
        let before = rig.emulator.calls(Call::StreamSynchronize);
        host.write().unwrap().fill(2);
        assert_eq!(rig.emulator.calls(Call::StreamSynchronize), before);
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        rig.assert_no_misuse();
    });
}

/// Each call of fencing fails once, at each of its occurrences.
#[test]
fn rule_07_faults_at_every_point_lose_nothing() {
    const CALLS: [Call; 6] = [
        Call::EventCreate,
        Call::EventRecord,
        Call::StreamSynchronize,
        Call::StreamWaitEvent,
        Call::EventQuery,
        Call::EventSynchronize,
    ];
    for (call, nth, seed) in CALLS
        .into_iter()
        .flat_map(|call| (1..12).flat_map(move |nth| [0, 1].map(|s| (call, nth, s))))
    {
        let rig = Rig::new(Execution::Lazy, seed, 4);
        // The synchronize is reached only after a record that failed.
        if call == Call::StreamSynchronize {
            rig.emulator.inject(Fault::forever(Call::EventRecord, ANY));
        }
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        let (other, mut copy) = (rig.device.stream().unwrap(), rig.gpu());
        rig.emulator.inject(Fault::once(call, ANY).nth(nth));
        for round in 0..4 {
            if let Ok(host) = host.write() {
                host.fill(round);
            }
            let _ = rig.stream.upload(&host, &mut gpu);
            let _ = other.copy(&gpu, &mut copy);
            let _ = other.download(&gpu, &mut host);
            let _ = host.read().map(|host| host[0]);
            drop(std::mem::replace(&mut host, rig.pool.alloc(LEN).unwrap()));
        }
        drop((host, gpu, copy));
        assert_eq!(rig.emulator.findings(), [], "{call:?} number {nth}, seed {seed}");
    }
}
