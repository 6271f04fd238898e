//! Branches of graphs: they run at the same time, and what shares a buffer is in order.

use std::ffi::c_void;
use std::sync::Mutex;

use pinlane::driver::{Call, Driver, RawStream};
use pinlane::emulated::{CaptureMode, Emulator, Execution, Fault, Repeat};
use pinlane::{Capture, CudaCode, ErrorKind, Graph, Result};

use crate::common::faults::{Run, at_every_call};
use crate::common::support::{BLOCK, LEN, Rig, raw};

/// The rig on a machine that runs work at once, one that runs it late, and many in between.
fn on_machines(blocks: usize, test: impl Fn(&Rig)) {
    for (execution, seeds) in [(Execution::Eager, 1), (Execution::Lazy, 4), (Execution::Random, 20)]
    {
        for seed in 0..seeds {
            let rig = Rig::new(execution, seed, blocks);
            test(&rig);
            rig.assert_nothing_is_left();
        }
    }
}

#[test]
fn work_that_shares_a_buffer_is_in_order_on_any_branches() {
    on_machines(6, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let [first, second, seen, copy] = [1, 2, 0, 0].map(|value| capture.own(rig.host(value)));
        let [gpu, other] = [(); 2].map(|()| capture.own(rig.gpu()));
        capture.upload(first, gpu).unwrap();
        capture.branch(1).unwrap();
        capture.copy(gpu, other).unwrap(); // after the write of the first
        capture.branch(2).unwrap();
        capture.download(gpu, seen).unwrap(); // after the same write
        capture.branch(0).unwrap();
        capture.upload(second, gpu).unwrap(); // after both reads
        capture.branch(2).unwrap();
        capture.download(other, copy).unwrap(); // after the write of the second
        capture.branch(1).unwrap();
        capture.copy(gpu, other).unwrap(); // after that read and the last upload
        let mut graph = capture.finish().unwrap();
        for value in 1..4 {
            let from = graph.slice_mut(first).unwrap();
            from.into_write().unwrap().fill(10 * value);
            graph.launch(&rig.stream).unwrap();
            for (key, expected) in [(seen, 10 * value), (copy, 10 * value)] {
                assert_eq!(graph.get(key).unwrap().read().unwrap()[..], [expected; LEN]);
            }
            assert_eq!(rig.contents(graph.get(other).unwrap()), [2; LEN]);
        }
    });
}

/// An upload on one branch, and a download of something else on another.
fn both_ways(rig: &Rig) -> Result<Graph> {
    let mut capture = rig.device.capture()?;
    let [next, result] = [3, 0].map(|value| capture.own(rig.host(value)));
    let [input, output] = [(); 2].map(|()| capture.own(rig.gpu()));
    // ANCHOR: branches
    capture.upload(next, input)?;
    capture.branch(1)?; // beside the upload
    capture.download(output, result)?;
    // ANCHOR_END: branches
    Ok(capture.finish()?)
}

/// What comes before a launch is before all its branches, and what comes later is after all.
#[test]
fn a_launch_is_one_operation_however_many_branches_it_has() {
    on_machines(4, |rig| {
        rig.stall(&rig.stream);
        let mut graph = both_ways(rig).unwrap();
        let ticket = graph.launch(&rig.stream).unwrap();
        assert!(!ticket.is_done().unwrap());
        rig.release(&rig.stream);
        graph.launch(&rig.device.stream().unwrap()).unwrap();
        assert_eq!(graph.bytes(), 2 * BLOCK);
        drop(graph);
        ticket.wait().unwrap();
        rig.stalled.lock().unwrap().clear();
    });
}

/// Which branches have come to their host functions.
static CAME: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "C" fn come(branch: *mut c_void) {
    CAME.lock().unwrap().push(branch.addr());
}

/// Captures a host function.
fn capture_call(rig: &Rig, capture: &mut Capture, branch: usize) {
    let driver: &dyn Driver = &rig.emulator;
    let data = std::ptr::without_provenance_mut(branch);
    // SAFETY: the work is a host function on the given stream, which uses no buffer; it may be
    // called at any time, and does not unwind.
    let captured = unsafe {
        capture.foreign(&[], &[], |stream| {
            driver.launch_host(RawStream { device: 0, handle: stream.addr() }, come, data)
        })
    };
    captured.unwrap().unwrap();
}

#[test]
fn branches_run_in_any_order() {
    let mut orders = Vec::new();
    for seed in 0..40 {
        let rig = Rig::new(Execution::Random, seed, 1);
        let mut capture = rig.device.capture().unwrap();
        for branch in [1, 2] {
            capture.branch(branch).unwrap();
            (0..2).for_each(|_| capture_call(&rig, &mut capture, branch as usize));
        }
        let mut graph = capture.finish().unwrap();
        CAME.lock().unwrap().clear();
        graph.launch(&rig.stream).unwrap().wait().unwrap();
        orders.push(CAME.lock().unwrap().clone());
        drop(graph);
        rig.assert_nothing_is_left();
    }
    for expected in [[1, 1, 2, 2], [1, 2, 1, 2], [2, 1, 2, 1]] {
        assert!(orders.contains(&expected.into()), "{expected:?} in {orders:?}");
    }
}

/// In C foreign work is enqueued after the call that names its buffers.
#[test]
fn other_branches_wait_for_foreign_work_that_comes_after_its_call() {
    on_machines(2, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (from, output) = (capture.own(rig.gpu()), capture.own(rig.host(0)));
        let gpu = capture.own(rig.gpu());
        capture.fill(from, 7).unwrap();
        capture.branch(1).unwrap();
        // SAFETY: the work is enqueued below, before the next call on the capture.
        let stream =
            unsafe { capture.foreign(&[from.reading()], &[gpu.writing()], |stream| stream) };
        let stream = RawStream { device: 0, handle: stream.unwrap().addr() };
        let [src, dst] = [from, gpu].map(|key| capture.get(key).unwrap().as_device_ptr());
        // SAFETY: the stream is captured, and the graph owns both buffers.
        unsafe { rig.emulator.driver().copy_d2d(stream, dst, src, BLOCK) }.unwrap();
        capture.branch(2).unwrap();
        capture.download(gpu, output).unwrap();
        let mut graph = capture.finish().unwrap();
        graph.launch(&rig.stream).unwrap();
        assert_eq!(graph.get(output).unwrap().read().unwrap()[..], [7; LEN]);
    });
}

#[test]
fn a_branch_that_cuda_refuses_fails_the_capture_and_nothing_else() {
    on_machines(4, |rig| {
        let begun = |call, code| {
            let mut capture = rig.device.capture().unwrap();
            let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
            capture.upload(host, gpu).unwrap();
            rig.emulator.inject(Fault { call, nth: 1, code, repeat: Repeat::Once, late: false });
            let refused = capture.branch(1).unwrap_err();
            assert_eq!(refused.cuda_code(), Some(code));
            (capture, host, gpu)
        };
        let (mut capture, host, gpu) = begun(Call::StreamCreate, CudaCode::MEMORY_ALLOCATION);
        capture.download(gpu, host).expect("no branch was made");
        capture.finish().unwrap().launch(&rig.stream).unwrap();
        let (mut capture, host, gpu) = begun(Call::StreamWaitEvent, CudaCode::INVALID_VALUE);
        assert!(capture.download(gpu, host).is_err() && capture.branch(0).is_err());
        let mut buffers = capture.finish().unwrap_err().value;
        assert_eq!(buffers.take(host).unwrap().read().unwrap()[..], [8; LEN]);
        rig.stream.upload(&rig.host(1), &mut buffers.take(gpu).unwrap()).unwrap();
    });
}

/// Dropped with branches that are not joined: all of its streams end.
#[test]
fn a_capture_that_is_given_up_leaves_no_branch() {
    on_machines(4, |rig| {
        let begun = || {
            let mut capture = rig.device.capture().unwrap();
            let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
            for branch in 1..4 {
                capture.branch(branch).unwrap();
                capture.upload(host, gpu).unwrap();
            }
            capture
        };
        drop(begun());
        drop(begun().into_buffers());
    });
}

#[test]
fn a_capture_of_other_code_has_its_own_branches() {
    on_machines(2, |rig| {
        let stream = rig.device.stream().unwrap();
        let theirs = rig.emulator.clone();
        theirs.stream_begin_capture(raw(&stream), CaptureMode::Relaxed).unwrap();
        // SAFETY: there will be no graph of the other code.
        let mut capture = unsafe { stream.join_capture() }.unwrap();
        assert_eq!(capture.branch(1).unwrap_err().kind(), ErrorKind::Unsupported);
        drop(capture);
        let graph = theirs.stream_end_capture(raw(&stream)).unwrap();
        theirs.graph_destroy(graph).unwrap();
    });
}

/// Every call fails, once or from then on.
#[test]
fn branches_while_calls_fail() {
    at_every_call("branches", &Emulator::builder().devices(2), 150, |run: &Run| {
        let rig = Rig::on(run.emulator.clone(), 4);
        run.begin();
        let work = || -> Result<()> {
            let mut capture = rig.device.capture()?;
            let input = capture.own(rig.pool.alloc_zeroed::<u32>(LEN)?);
            let gpu = capture.own(rig.device.alloc::<u32>(LEN)?);
            let output = capture.own(rig.pool.alloc::<u32>(LEN)?);
            capture.upload(input, gpu)?;
            capture.branch(1)?;
            capture.download(gpu, output)?;
            let mut graph = capture.finish()?;
            graph.slice_mut(input)?.into_write()?.fill(5);
            graph.launch(&rig.stream)?;
            assert!(graph.get(output)?.read()?.iter().all(|&word| word == 5));
            Ok(())
        };
        run.explains_all([work()]);
        run.end();
        rig.device.quarantined_bytes() + rig.pool.stats().quarantined_bytes
    });
}
