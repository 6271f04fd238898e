//! Rule 11: graph capture.

use std::thread;

use pinlane::ErrorKind;
use pinlane::emulated::Execution;

use crate::support::{LEN, Rig, on_lazy_machines, raw};

#[test]
fn rule_11_a_capturing_stream_is_refused_and_the_capture_lives() {
    on_lazy_machines(2, |rig| {
        let (mut host, mut gpu, mut other) = (rig.host(1), rig.gpu(), rig.gpu());
        let mut sum = rig.device.alloc::<u64>(1).unwrap();
        let elsewhere = rig.device.stream().unwrap().record().unwrap();
        let stream = &rig.stream;
        rig.emulator.begin_capture(raw(stream)).unwrap();
        // SAFETY: nothing is launched.
        let foreign = unsafe { stream.foreign(&[&host], &mut [], |_| panic!("not called")) };
        let refused = [
            stream.upload(&host, &mut gpu).unwrap_err(),
            stream.download(&gpu, &mut host).unwrap_err(),
            stream.copy(&gpu, &mut other).unwrap_err(),
            stream.fill(&mut gpu, 1).unwrap_err(),
            stream.checksum(&gpu, &mut sum).unwrap_err(),
            stream.upload(host.slice(..0).unwrap(), gpu.slice_mut(..0).unwrap()).unwrap_err(),
            stream.record().unwrap_err(),
            stream.wait_for(&elsewhere).unwrap_err(),
            stream.busy(std::time::Duration::ZERO).unwrap_err(),
            stream.launch_host(|| ()).unwrap_err(),
            foreign.map(|((), _)| ()).unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == ErrorKind::StreamCapturing));
        host.try_write().expect("nothing uses the buffer");
        assert_eq!(rig.emulator.end_capture(raw(stream)), Ok(0), "alive, and nothing recorded");
        stream.upload(&host, &mut gpu).unwrap().wait().unwrap();
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_11_work_elsewhere_leaves_a_capture_alone() {
    on_lazy_machines(2, |rig| {
        let (mut host, mut gpu) = (rig.host(1), rig.gpu());
        // A use from before the capture is queried and waited for during the capture.
        let before = rig.stream.upload(&host, &mut gpu).unwrap();
        rig.emulator.begin_capture(raw(&rig.stream)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let stream = rig.device.stream().unwrap();
                for round in 2..10 {
                    while !before.is_done().unwrap() {}
                    host.write().unwrap().fill(round);
                    stream.upload(&host, &mut gpu).unwrap();
                    drop(rig.pool.alloc::<u32>(LEN).unwrap());
                    drop(rig.gpu());
                }
                stream.synchronize().unwrap();
            });
        });
        assert_eq!(rig.emulator.end_capture(raw(&rig.stream)), Ok(0));
        assert_eq!(rig.contents(&gpu), [9; LEN]);
        drop((host, gpu, before));
        rig.assert_nothing_is_left();
    });
}

/// Foreign work can be captured on a stream that pinlane created. Blocks and device memory that are
/// dropped during the capture must not join the graph.
#[test]
fn rule_11_drops_do_not_join_a_capture() {
    let rig = Rig::new(Execution::Eager, 0, 2);
    let (host, mut gpu) = (rig.host(1), rig.gpu());
    // Enough queries for pinlane to see that the allocation is complete. The copy is the only use
    // left.
    for _ in 0..200 {
        drop(rig.gpu());
    }
    rig.stall(&rig.stream);
    rig.stream.upload(&host, &mut gpu).unwrap();
    rig.emulator.begin_capture(raw(&rig.stream)).unwrap();
    drop((host, gpu));
    assert_eq!(rig.emulator.end_capture(raw(&rig.stream)), Ok(0));
    rig.release(&rig.stream);
    rig.stream.synchronize().unwrap();
    rig.assert_nothing_is_left();
}

#[test]
fn rule_11_the_legacy_stream_is_refused_while_a_blocking_stream_captures() {
    let rig = Rig::new(Execution::Eager, 0, 1);
    let options = pinlane::StreamOptions::new().blocking(true);
    let blocking = rig.device.stream_with(options).unwrap();
    rig.emulator.begin_capture(raw(&blocking)).unwrap();
    let refused = rig.device.legacy_stream().fill(&mut rig.gpu(), 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StreamCapturing);
    assert_eq!(rig.emulator.end_capture(raw(&blocking)), Ok(0));
}
