//! Calls that fail, once or forever, and a device that is lost: memory that may be in use is not
//! freed.

use super::*;
use pinlane::emulated::{Builder, Emulator};
use pinlane::{DeviceBuf, PinnedSliceMut, Result, Stream};

use crate::common::faults::{Case, Run, at_calls, at_every_call, each_call, in_processes};
use crate::common::process::is_alone;

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

/// Memory that is owned, on two streams, while calls fail: each owner is dropped or given back, or
/// leaks and is counted.
fn owns(run: &Run) -> usize {
    let rig = Rig::on(run.emulator.clone(), 4);
    let (other, mut gpu) = (rig.device.stream().unwrap(), rig.gpu());
    let mut drops: Vec<Box<dyn Fn() -> usize>> = Vec::new();
    run.begin();
    for value in 2..6 {
        let (owner, dropped) = counted(value);
        drops.push(Box::new(dropped));
        let mut registered = match rig.device.register(owner) {
            Ok(registered) => registered,
            Err(refused) => {
                run.explains(&refused.error);
                continue;
            }
        };
        let mut round_trip = || -> Result<()> {
            rig.stream.upload(&registered, &mut gpu)?;
            registered.write()?.fill(!value);
            other.download(&gpu, &mut registered)?;
            assert_eq!(*registered.read()?, [value; LEN]);
            other.download(&gpu, &mut registered)?;
            Ok(())
        };
        let arrived = round_trip();
        let is_there = arrived.is_ok();
        run.explains_all([arrived]);
        if value % 2 == 0 {
            continue; // dropped, in use
        }
        match registered.into_inner() {
            Ok(owner) => assert!(!is_there || owner.elements == [value; LEN]),
            Err(refused) => run.explains(&refused.error),
        }
    }
    run.end();
    let kept = rig.device.quarantined_bytes();
    let gone: usize = drops.iter().map(|drops| drops()).sum();
    assert_eq!(gone + kept / BYTES, drops.len());
    let Rig { device, .. } = rig;
    drop((gpu, other));
    device.quarantined_bytes()
}

#[test]
fn rule_04_faults_at_every_point_free_nothing_in_use() {
    at_every_call("registered memory", &two_devices(), 150, owns);
}

/// Memory that is only read, on two streams, while calls fail: each owner is dropped or given back,
/// or leaks and is counted.
fn uploads(run: &Run) -> usize {
    let rig = Rig::on(run.emulator.clone(), 4);
    let (other, mut gpu) = (rig.device.stream().unwrap(), rig.gpu());
    let mut drops: Vec<Box<dyn Fn() -> usize>> = Vec::new();
    run.begin();
    for value in 2..6 {
        let (owner, dropped) = counted(value);
        drops.push(Box::new(dropped));
        let registered = match rig.device.register_read_only(owner) {
            Ok(registered) => registered,
            Err(refused) => {
                assert_eq!(refused.value.elements, [value; LEN]);
                run.explains(&refused.error);
                continue;
            }
        };
        let up = [&rig.stream, &other].map(|stream| stream.upload(&registered, &mut gpu).map(drop));
        run.explains_all(up);
        assert_eq!(*registered, [value; LEN], "read, whatever fails");
        if value % 2 == 0 {
            continue; // dropped, in use
        }
        match registered.into_inner() {
            Ok(mut owner) => owner.elements.fill(!value),
            Err(refused) => run.explains(&refused.error),
        }
    }
    run.end();
    let kept = rig.device.quarantined_bytes();
    let gone: usize = drops.iter().map(|drops| drops()).sum();
    assert_eq!(gone + kept / BYTES, drops.len());
    let Rig { device, .. } = rig;
    drop((gpu, other));
    device.quarantined_bytes()
}

#[test]
fn rule_24_faults_at_every_point_lose_no_owner_of_memory_to_read() {
    at_every_call("memory to read only", &two_devices(), 150, uploads);
}

/// Uploads the view, overwrites it, and begins to download it again.
fn there_and_back(
    streams: [&Stream; 2],
    gpu: &mut DeviceBuf<u32>,
    view: &mut PinnedSliceMut<'_, u32>,
    paint: u32,
) -> Result<()> {
    streams[0].upload(view.as_slice(), &mut *gpu)?;
    view.reborrow().into_write()?.fill(paint);
    streams[1].download(&*gpu, view.reborrow())?;
    Ok(())
}

/// Memory that is borrowed, on two streams, while calls fail: when it comes back, the device is
/// done with it.
fn borrows(run: &Run) -> usize {
    let rig = Rig::on(run.emulator.clone(), 4);
    let (other, mut gpu) = (rig.device.stream().unwrap(), rig.gpu());
    // Memory that stays page-locked must not be freed.
    let mut slices = Vec::new();
    run.begin();
    for value in 2..6 {
        let mut slice = vec![value; LEN];
        let mut arrived = Ok(());
        let ended = rig.device.with_registered(&mut slice, |mut view| {
            arrived = there_and_back([&rig.stream, &other], &mut gpu, &mut view, !value);
        });
        let is_there = arrived.is_ok() && ended.is_ok();
        run.explains_all([arrived, ended]);
        assert!(!is_there || slice == [value; LEN]);
        slice.fill(1);
        slices.push(slice);
    }
    run.end();
    let idle = [&rig.stream, &other].iter().all(|stream| stream.synchronize().is_ok());
    assert!(idle || run.is_lost());
    assert!(slices.iter().all(|slice| slice == &[1; LEN]), "written later");
    let Rig { device, .. } = rig;
    drop((gpu, other));
    device.quarantined_bytes()
}

#[test]
fn rule_02_faults_at_every_point_give_nothing_back_in_use() {
    let usable = |case: &Case| !case.loses();
    at_calls("borrowed memory", &two_devices(), 150, &each_call(), usable, borrows);
}

/// A device that is lost with the memory in use ends the process.
#[test]
fn rule_02_losses_at_every_point_end_the_process_or_the_borrow() {
    const TEST: &str = "rule_02_losses_at_every_point_end_the_process_or_the_borrow";
    if is_alone(module_path!(), TEST) {
        in_processes("borrowed memory and losses", &two_devices(), 150, Case::loses, borrows);
    }
}

fn two_devices() -> Builder {
    Emulator::builder().devices(2)
}

/// Copies that were enqueued earlier continue, and no call can tell when they end.
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
