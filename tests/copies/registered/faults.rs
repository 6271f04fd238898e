//! Calls that fail, once or for ever, and a device that is lost: nothing is freed that may be in
//! use.

use super::*;

#[test]
fn rule_04_an_error_that_passes_loses_nothing() {
    on_machines(|rig| {
        for call in WAITS {
            let (owner, drops) = counted(7);
            let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
            rig.stream.upload(&registered, &mut gpu).unwrap();
            rig.emulator.inject(Fault::once(call, ANY));
            drop(registered);
            rig.emulator.clear_faults();
            assert_eq!((drops(), rig.device.quarantined_bytes()), (1, 0));
            assert_eq!(rig.contents(&gpu), [7; LEN]);
            let mut slice = vec![1; LEN];
            rig.emulator.inject(Fault::once(call, ANY));
            rig.device
                .with_registered(&mut slice, |view| rig.stream.download(&gpu, view).unwrap())
                .unwrap();
            rig.emulator.clear_faults();
            assert_eq!(slice, [7; LEN]);
        }
        rig.assert_nothing_is_left();
    });
}

/// One way to wait is enough.
#[test]
fn rule_04_the_device_is_asked_in_every_way() {
    on_machines(|rig| {
        for spared in [Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize] {
            let mut gpu = rig.gpu();
            rig.stream.fill(&mut gpu, 4).unwrap();
            let mut slice = vec![1; LEN];
            let ended = rig.device.with_registered(&mut slice, |view| {
                rig.stream.download(&gpu, view).unwrap();
                // The event is there already.
                rig.stream.record().unwrap();
                let failing: Vec<Call> = WAITS.into_iter().filter(|&call| call != spared).collect();
                fail_forever(&rig, &failing);
            });
            rig.emulator.clear_faults();
            ended.unwrap();
            assert_eq!(slice, [4; LEN]);
        }
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_04_an_owner_whose_users_are_unknown_leaks_and_is_counted() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (mut registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.fill(&mut gpu, 8).unwrap();
        rig.stall(&rig.stream);
        rig.stream.download(&gpu, &mut registered).unwrap();
        fail_forever(&rig, &WAITS);
        let Refused { value: registered, error } = registered.into_inner().unwrap_err();
        assert_eq!(error.cuda_code(), Some(ANY));
        drop(registered);
        rig.emulator.clear_faults();
        rig.release(&rig.stream);
        rig.stream.synchronize().unwrap();
        assert_eq!((drops(), rig.device.quarantined_bytes()), (0, BYTES));
        assert_eq!(rig.emulator.calls(Call::HostUnregister), 0);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_04_an_owner_that_could_not_be_waited_for_can_be_asked_for_again() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        fail_forever(&rig, &[Call::HostUnregister]);
        let Refused { value: mut registered, error } = registered.into_inner().unwrap_err();
        assert_eq!(error.operation(), "cudaHostUnregister");
        registered.write().unwrap().fill(6);
        rig.stream.upload(&registered, &mut gpu).unwrap();
        rig.emulator.clear_faults();
        drop(registered.into_inner().unwrap());
        assert_eq!((drops(), rig.device.quarantined_bytes()), (1, 0));
        assert_eq!(rig.contents(&gpu), [6; LEN]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_04_what_stays_page_locked_is_kept_or_told() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let registered = rig.device.register(owner).unwrap();
        rig.emulator.inject(Fault::once(Call::HostUnregister, ANY));
        drop(registered);
        assert_eq!((drops(), rig.device.quarantined_bytes()), (0, BYTES));
        let mut slice = vec![1; LEN];
        rig.emulator.inject(Fault::once(Call::HostUnregister, ANY));
        let error = rig.device.with_registered(&mut slice, |_| ()).unwrap_err();
        assert_eq!(error.operation(), "cudaHostUnregister");
        slice.fill(2);
        assert_eq!(rig.emulator.usage().host_blocks, 2);
        rig.assert_no_misuse();
    });
}

/// Each call fails once, at each of its occurrences: the owner is dropped, or leaks and is counted.
#[test]
fn rule_04_faults_at_every_point_free_nothing_in_use() {
    const CALLS: [Call; 8] = [
        Call::HostRegister,
        Call::HostUnregister,
        Call::EventCreate,
        Call::EventRecord,
        Call::EventSynchronize,
        Call::EventQuery,
        Call::StreamSynchronize,
        Call::CopyH2D,
    ];
    for (call, nth) in CALLS.into_iter().flat_map(|call| (1..6).map(move |nth| (call, nth))) {
        let rig = Rig::new(Execution::Lazy, nth, 4);
        let mut gpu = rig.gpu();
        let (owner, drops) = counted(7);
        let mut slice = vec![1; LEN];
        rig.emulator.inject(Fault::once(call, ANY).nth(nth));
        let registered = rig.device.register(owner);
        let _ = rig.device.with_registered(&mut slice, |view| {
            let _ = rig.stream.upload(view.as_slice(), &mut gpu);
            if let Ok(registered) = &registered {
                let _ = rig.stream.upload(registered, &mut gpu);
            }
            let _ = rig.stream.download(&gpu, view);
        });
        slice.fill(0);
        drop(registered);
        let kept = rig.device.quarantined_bytes() / BYTES;
        assert_eq!(drops() + kept, 1, "{call:?} number {nth}");
        drop(gpu);
        assert_eq!(rig.emulator.findings(), [], "{call:?} number {nth}");
    }
}

/// Copies that were enqueued before go on, and nobody can ask for their end.
#[test]
fn rule_04_a_lost_device_may_still_use_what_was_registered() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
        let Refused { value: registered, error } = registered.into_inner().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        drop(registered);
        assert_eq!((drops(), rig.device.quarantined_bytes()), (0, BYTES));
        rig.assert_no_misuse();
    });
}

#[test]
fn borrowed_memory_that_is_known_to_be_unused_comes_back_from_a_lost_device() {
    on_machines(|rig| {
        let mut slice = vec![1; LEN];
        let ended = rig.device.with_registered(&mut slice, |view| {
            let mut gpu = rig.gpu();
            rig.stream.upload(view.as_slice(), &mut gpu).unwrap().wait().unwrap();
            rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
        });
        assert_eq!(ended.unwrap_err_kind(), ErrorKind::DeviceLost);
        slice.fill(2);
        rig.assert_no_misuse();
    });
}
