//! Rules 1 to 3: memory in flight outlives whatever the program drops, forgets or cancels.

use std::future::Future;
use std::mem::forget;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pinlane::ErrorKind;
use pinlane::emulated::Execution;

use crate::common;
use crate::support::{BLOCK, LEN, Rig, block_on, on_lazy_machines, watched};

#[test]
fn rule_01_writing_the_source_waits_for_the_copy() {
    on_lazy_machines(4, |rig| {
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stream.upload(&host, &mut gpu).unwrap();
        assert_eq!(host.read().unwrap()[0], 1, "reading the source is no conflict");
        host.write().unwrap().fill(2);
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        drop((host, gpu));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_01_a_view_waits_for_its_own_bytes_only() {
    on_lazy_machines(4, |rig| {
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stall(&rig.stream);
        let (part, to) = (host.slice(..256).unwrap(), gpu.slice_mut(..256).unwrap());
        rig.stream.upload(part, to).unwrap();
        host.slice_mut(256..).unwrap().into_write().unwrap().fill(2);
        let overlapping = host.slice_mut(255..).unwrap().try_into_write();
        assert_eq!(overlapping.unwrap_err().kind(), ErrorKind::NotReady);
        rig.release(&rig.stream);
        host.slice_mut(255..).unwrap().into_write().unwrap().fill(3);
        assert_eq!(rig.contents(&gpu)[..256], [1; 256]);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_01_reading_the_destination_waits_for_the_copy() {
    let device = common::device();
    let pool = common::pool(&device).build().unwrap();
    let stream = device.stream().unwrap();
    let mut host = pool.alloc::<u32>(1 << 20).unwrap();
    let mut gpu = device.alloc::<u32>(1 << 20).unwrap();
    for round in 0..20 {
        host.write().unwrap().fill(round);
        stream.upload(&host, &mut gpu).unwrap();
        host.write().unwrap().fill(!round);
        stream.download(&gpu, &mut host).unwrap();
        assert!(host.read().unwrap().iter().all(|&element| element == round));
    }
}

#[test]
fn rule_02_a_block_dropped_in_flight_is_not_reused_before_its_copy() {
    on_lazy_machines(1, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        let address = host.as_ptr();
        rig.stream.upload(&host, &mut gpu).unwrap();
        drop(host);
        assert_eq!(rig.pool.stats().in_flight_bytes, BLOCK);
        // There is room for one block only: this waits for the copy.
        let host = rig.host(2);
        assert_eq!(host.as_ptr(), address);
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        drop((host, gpu));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_02_a_borrowed_stream_keeps_its_owner_while_a_buffer_waits_for_it() {
    on_lazy_machines(1, |rig| {
        let own = rig.device.stream().unwrap();
        let is_kept = Arc::new(());
        let owner = (own.clone(), Arc::clone(&is_kept));
        // SAFETY: a stream of this device, which lives as long as `owner`.
        let borrowed = unsafe { rig.device.borrow_stream_of(owner, own.as_raw()) };
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stall(&own);
        borrowed.upload(&host, &mut gpu).unwrap();
        drop(borrowed);
        assert_eq!(Arc::strong_count(&is_kept), 2);
        rig.release(&own);
        host.write().unwrap().fill(2);
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        drop((host, gpu));
        assert_eq!(Arc::strong_count(&is_kept), 1);
        rig.assert_no_misuse();
    });
}

#[test]
#[allow(clippy::forget_non_drop)] // views have no `Drop`, and must not need one
fn rule_02_forgetting_leaks_memory_and_nothing_else() {
    on_lazy_machines(3, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        let mut back = rig.host(0);
        forget(rig.stream.upload(host.slice(..).unwrap(), gpu.slice_mut(..).unwrap()).unwrap());
        forget((host.slice(..).unwrap(), gpu.slice_mut(..).unwrap()));
        forget(rig.stream.download(&gpu, back.as_slice_mut()).unwrap());
        forget(back.slice_mut(3..5).unwrap());
        forget(rig.stream.clone());
        assert_eq!(back.read().unwrap(), [1; LEN]);
        let forgotten = host.as_ptr();
        rig.stream.upload(&host, &mut gpu).unwrap();
        forget(host);
        for _ in 0..4 {
            let (first, second) = (rig.host(2), rig.pool.alloc::<u32>(LEN));
            assert_ne!(first.as_ptr(), forgotten);
            let spent = second.unwrap_err();
            assert_eq!(spent.kind(), ErrorKind::BudgetExhausted, "it counts forever");
        }
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        forget(gpu);
        rig.assert_no_misuse();
        let emulator = rig.emulator.clone();
        drop((rig, back));
        assert_eq!(emulator.findings(), []);
        let usage = emulator.usage();
        assert!(usage.host_bytes > 0 && usage.device_bytes > 0, "they were forgotten: {usage:?}");
    });
}

#[test]
fn rule_03_a_future_dropped_mid_copy_changes_nothing() {
    on_lazy_machines(1, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stall(&rig.stream);
        {
            let mut copy = pin!(rig.stream.upload(&host, &mut gpu).unwrap());
            let polled = copy.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
        }
        drop(host);
        let early = rig.pool.try_alloc::<u32>(LEN).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::NotReady);
        rig.release(&rig.stream);
        drop(rig.host(2));
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        drop(gpu);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_03_a_future_is_ready_when_its_copy_is() {
    watched(|| {
        let device = common::device();
        let pool = common::pool(&device).build().unwrap();
        let stream = device.stream().unwrap();
        let (mut host, mut gpu) =
            (pool.alloc::<u8>(1 << 20).unwrap(), device.alloc(1 << 20).unwrap());
        host.write().unwrap().fill(7);
        let upload = stream.upload(&host, &mut gpu).unwrap();
        let download = stream.download(&gpu, &mut host).unwrap();
        // In reverse order, and one of them twice.
        block_on(download.clone()).unwrap();
        block_on(upload).unwrap();
        assert!(download.is_done().unwrap());
        block_on(download).unwrap();
        assert_eq!(host.try_read().unwrap()[1 << 19], 7);
    });
}

#[test]
fn rule_03_a_failed_copy_ends_its_future() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 0, 1);
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stall(&rig.stream);
        let copy = rig.stream.upload(&host, &mut gpu).unwrap();
        let waiting = std::thread::spawn(|| block_on(copy));
        rig.emulator.lose_device(0, pinlane::CudaCode::ILLEGAL_ADDRESS).unwrap();
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
    });
}
