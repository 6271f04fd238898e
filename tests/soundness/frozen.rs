//! Frozen buffers: owners of page-locked memory that no operation writes (rules 1, 2, 4, 14, 17).

use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::thread;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, Error, ErrorKind, FrozenBuf};

use crate::common::process::{in_a_forked_child, is_alone};
use crate::support::{BLOCK, LEN, Rig, on_lazy_machines};

#[test]
fn rule_01_freezing_waits_for_the_download() {
    on_lazy_machines(1, |rig| {
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stream.fill(&mut gpu, 7).unwrap();
        rig.stream.download(&gpu, &mut host).unwrap();
        let frozen = host.freeze().unwrap();
        assert_eq!(*frozen, [7; LEN]);
        assert_eq!(AsRef::<[u8]>::as_ref(&frozen).len(), BLOCK);
        assert_eq!(frozen.as_slice().try_read().unwrap(), [7; LEN]);
        drop((frozen, gpu));
        rig.assert_nothing_is_left();
    });
}

/// A copy that only reads the buffer delays nothing but the next write.
#[test]
fn rule_01_what_was_frozen_is_written_after_its_copies() {
    on_lazy_machines(1, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stall(&rig.stream);
        rig.stream.upload(&host, gpu.slice_mut(..).unwrap()).unwrap();
        let frozen = host.freeze().unwrap();
        let (part, to) = (frozen.as_slice().slice(..256).unwrap(), gpu.slice_mut(..256).unwrap());
        rig.stream.upload(part, to).unwrap();
        let mut host = frozen.into_inner();
        assert_eq!(host.try_write().unwrap_err().kind(), ErrorKind::NotReady);
        rig.release(&rig.stream);
        host.write().unwrap().fill(2);
        assert_eq!(rig.contents(&gpu), [1; LEN]);
        drop((host, gpu));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_01_foreign_work_may_read_a_frozen_buffer() {
    on_lazy_machines(1, |rig| {
        let frozen = rig.host(1).freeze().unwrap();
        rig.stall(&rig.stream);
        // SAFETY: nothing is launched.
        unsafe { rig.stream.foreign(&[&frozen], &mut [], |_| ()) }.unwrap();
        let mut host = frozen.into_inner();
        assert_eq!(host.try_write().unwrap_err().kind(), ErrorKind::NotReady);
        rig.release(&rig.stream);
        host.write().unwrap();
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_02_a_frozen_buffer_dropped_in_flight_is_not_reused_before_its_copy() {
    on_lazy_machines(1, |rig| {
        let (frozen, mut gpu) = (rig.host(1).freeze().unwrap(), rig.gpu());
        let address = frozen.as_ptr();
        rig.stream.upload(&frozen, &mut gpu).unwrap();
        drop(frozen);
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
fn rule_02_many_owners_on_many_threads_outlive_the_pool() {
    on_lazy_machines(1, |rig| {
        let frozen = Arc::new(rig.host(3).freeze().unwrap());
        let Rig { emulator, device, pool, stream, .. } = rig;
        drop((pool, stream));
        let owners = [(); 4].map(|()| {
            let (frozen, device) = (frozen.clone(), device.clone());
            thread::spawn(move || {
                let (stream, mut gpu) = (device.stream().unwrap(), device.alloc(LEN).unwrap());
                stream.upload(&*frozen, &mut gpu).unwrap();
                assert_eq!(**frozen, [3; LEN]);
                drop(frozen);
                let mut back = vec![0; LEN];
                stream.download_slice(&gpu, &mut back).unwrap();
                assert_eq!(back, [3; LEN]);
            })
        });
        drop(frozen);
        owners.into_iter().for_each(|owner| owner.join().unwrap());
        drop(device);
        crate::support::assert_nothing_is_left(&emulator);
    });
}

#[test]
fn rule_04_a_failed_wait_freezes_nothing_and_gives_the_buffer_back() {
    const ANY: CudaCode = CudaCode::UNKNOWN;
    on_lazy_machines(1, |rig| {
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stream.fill(&mut gpu, 5).unwrap();
        rig.stream.download(&gpu, &mut host).unwrap();
        for wait in [Call::EventSynchronize, Call::StreamSynchronize] {
            rig.emulator.inject(Fault::forever(wait, ANY));
        }
        let refused = host.freeze().unwrap_err();
        assert_eq!(refused.error.cuda_code(), Some(ANY));
        rig.emulator.clear_faults();
        assert_eq!(*refused.value.freeze().unwrap(), [5; LEN]);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_14_a_forked_child_freezes_nothing_and_drops_quietly() {
    if !is_alone(module_path!(), "rule_14_a_forked_child_freezes_nothing_and_drops_quietly") {
        return;
    }
    let rig = Rig::new(Execution::Lazy, 0, 3);
    let mut gpu = rig.gpu();
    let [frozen, in_flight] = [1, 2].map(|value| rig.host(value).freeze().unwrap());
    let host = rig.host(3);
    rig.stream.upload(&in_flight, &mut gpu).unwrap();
    let calls = crate::support::all_calls(&rig.emulator);
    in_a_forked_child(|| {
        let forked = |error: &Error| error.kind() == ErrorKind::ForkedProcess;
        let in_freeze = |error: &Error| error.operation() == "PinnedBuf::freeze" && forked(error);
        let refused = host.freeze().is_err_and(|refused| in_freeze(&refused.error));
        drop(in_flight);
        let unread = frozen.into_inner().read().is_err_and(|error| forked(&error));
        let quiet = crate::support::all_calls(&rig.emulator) == calls;
        i32::from(!(refused && unread && quiet))
    });
    assert_eq!(rig.contents(&gpu), [2; LEN]);
    rig.assert_no_misuse();
}

/// What `bytes::Bytes::from_owner` and Arrow's `Allocation` ask of an owner.
#[test]
fn rule_17_other_crates_may_own_a_frozen_buffer() {
    fn owner<O: AsRef<[u8]> + Send + Sync + RefUnwindSafe + 'static>() {}
    owner::<FrozenBuf<u8>>();
    owner::<FrozenBuf<f32>>();
}
