//! Rule 23: a graph launches work on memory that it owns.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pinlane::emulated::Execution;
use pinlane::graph::Key;
use pinlane::{ErrorKind, Graph, PinnedBuf};

use crate::common::process::{in_a_forked_child, is_alone};
use crate::support::{LEN, Rig, all_calls, assert_nothing_is_left, eventually, on_lazy_machines};

/// A graph that downloads `value`, filled on the device, and the key of the destination.
fn downloading(rig: &Rig, value: u32) -> (Graph, Key<PinnedBuf<u32>>) {
    let mut capture = rig.device.capture().unwrap();
    let (gpu, output) = (capture.own(rig.gpu()), capture.own(rig.host(0)));
    capture.fill(gpu, value).unwrap();
    capture.download(gpu, output).unwrap();
    (capture.finish().unwrap(), output)
}

#[test]
fn rule_23_a_forgotten_graph_leaks_its_memory_and_nothing_else() {
    on_lazy_machines(3, |rig| {
        let (mut graph, _) = downloading(&rig, 7);
        rig.stall(&rig.stream);
        graph.launch(&rig.stream).unwrap();
        forget(graph);
        let (first, second) = (rig.host(1), rig.host(2));
        rig.release(&rig.stream);
        rig.stream.synchronize().unwrap();
        assert_eq!(first.read().unwrap()[..], [1; LEN]);
        assert_eq!(second.read().unwrap()[..], [2; LEN]);
        rig.assert_no_misuse();
        assert_eq!(rig.emulator.usage().graphs, 2);
    });
}

/// The two halves of a launch, the operation and its record, are one call.
#[test]
fn rule_23_a_launch_that_is_under_way_is_waited_for() {
    on_lazy_machines(3, |rig| {
        let (mut graph, output) = downloading(&rig, 7);
        for _ in 0..3 {
            graph.launch(&rig.stream).unwrap();
            assert_eq!(graph.get(output).unwrap().read().unwrap()[..], [7; LEN]);
            graph.slice_mut(output).unwrap().into_write().unwrap().fill(1);
        }
        let other = rig.device.stream().unwrap();
        graph.launch(&other).unwrap();
        rig.stream.upload(&rig.host(5), &mut rig.gpu()).unwrap();
        graph.launch(&rig.stream).unwrap();
        drop((graph, other));
        rig.stream.synchronize().unwrap();
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_23_a_graph_may_be_dropped_in_a_host_function() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let rig = Rig::new(execution, 0, 2);
        let (mut graph, _) = downloading(&rig, 7);
        let capture = {
            let mut capture = rig.device.capture().unwrap();
            let (host, gpu) = (capture.own(rig.host(1)), capture.own(rig.gpu()));
            capture.upload(host, gpu).unwrap();
            capture
        };
        graph.launch(&rig.stream).unwrap();
        rig.stream.launch_host(move || drop((graph, capture))).unwrap().wait().unwrap();
        // Its memory comes back after it: here, that is not yet known.
        rig.pool.trim().unwrap();
        let Rig { emulator, device, pool, stream, .. } = rig;
        eventually("both graphs are gone", || emulator.usage().graphs == 0);
        drop((device, pool, stream));
        assert_nothing_is_left(&emulator);
    }
}

/// A graph that ends in a host function is destroyed a little later, by another thread. Nothing
/// that it names is unlocked before, even if its buffers are dropped at once.
fn ends_in_a_host_function(seeds: u64, end: impl Fn(&Rig) -> Box<dyn FnOnce() + Send>) {
    for execution in [Execution::Eager, Execution::Lazy, Execution::Random] {
        for seed in 0..seeds {
            let rig = Rig::new(execution, seed, 4);
            let function = end(&rig);
            rig.stream.launch_host(function).unwrap().wait().unwrap();
            rig.pool.trim().unwrap();
            rig.assert_no_misuse();
            rig.assert_nothing_is_left();
        }
    }
}

#[test]
fn rule_23_the_buffers_of_a_graph_may_be_dropped_in_a_host_function() {
    ends_in_a_host_function(60, |rig| {
        let (mut graph, _) = downloading(rig, 7);
        graph.launch(&rig.stream).unwrap();
        Box::new(move || drop(graph.into_buffers()))
    });
}

#[test]
fn rule_23_the_buffers_of_a_capture_may_be_dropped_in_a_host_function() {
    ends_in_a_host_function(60, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (host, gpu) = (capture.own(rig.host(1)), capture.own(rig.gpu()));
        capture.upload(host, gpu).unwrap();
        Box::new(move || drop(capture.into_buffers()))
    });
}

#[test]
fn rule_23_buffers_of_a_refused_capture_may_be_dropped_in_a_host_function() {
    ends_in_a_host_function(60, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (host, gpu) = (capture.own(rig.host(1)), capture.own(rig.gpu()));
        capture.upload(host, gpu).unwrap();
        Box::new(move || drop(capture.finish().unwrap_err().value))
    });
}

/// One graph captures into another. The other one goes first.
#[test]
fn rule_23_a_graph_and_one_that_it_has_joined_may_be_dropped_in_a_host_function() {
    ends_in_a_host_function(60, |rig| {
        let mut outer = rig.device.capture().unwrap();
        // SAFETY: nothing is enqueued.
        let stream = unsafe { outer.foreign(&[], &[], |stream| stream) }.unwrap();
        // SAFETY: the stream of the capture, which lives until `finish`.
        let stream = unsafe { rig.device.borrow_stream(stream) };
        // SAFETY: the outer graph is dropped first, and never launched.
        let mut inner = unsafe { stream.join_capture() }.unwrap();
        let (host, gpu) = (inner.own(rig.host(1)), inner.own(rig.gpu()));
        inner.upload(host, gpu).unwrap();
        let inner = inner.finish().unwrap();
        drop(stream);
        let outer = outer.finish().unwrap();
        Box::new(move || drop((outer, inner)))
    });
}

#[test]
fn rule_14_a_forked_child_launches_nothing_and_drops_quietly() {
    if !is_alone(module_path!(), "rule_14_a_forked_child_launches_nothing_and_drops_quietly") {
        return;
    }
    let rig = Rig::new(Execution::Lazy, 0, 4);
    let (mut graph, output) = downloading(&rig, 7);
    graph.launch(&rig.stream).unwrap();
    let (second, _) = downloading(&rig, 8);
    let mut capture = rig.device.capture().unwrap();
    let gpu = capture.own(rig.gpu());
    let mut graphs = Some((second, capture));
    in_a_forked_child(|| {
        let before = all_calls(&rig.emulator);
        let (second, mut capture) = graphs.take().expect("given");
        let refused = [
            graph.launch(&rig.stream).map(drop).unwrap_err(),
            graph.get(output).unwrap().read().map(drop).unwrap_err(),
            capture.fill(gpu, 1).unwrap_err(),
            rig.device.capture().map(drop).unwrap_err(),
        ];
        drop(second);
        let finished = capture.finish().map(drop).unwrap_err().error;
        let kinds = refused.iter().chain([&finished]).map(pinlane::Error::kind);
        let quiet = all_calls(&rig.emulator) == before;
        i32::from(!quiet || !kinds.into_iter().all(|kind| kind == ErrorKind::ForkedProcess))
    });
    drop(graphs);
    assert_eq!(graph.get(output).unwrap().read().unwrap()[..], [7; LEN]);
    drop(graph);
    rig.assert_nothing_is_left();
}

/// Threads that exist only in the parent hold a graph's locks at most forks.
#[test]
fn rule_14_a_forked_child_takes_no_lock_of_a_graph() {
    if !is_alone(module_path!(), "rule_14_a_forked_child_takes_no_lock_of_a_graph") {
        return;
    }
    let rig = Rig::new(Execution::Lazy, 0, 4);
    let (mut graph, output) = downloading(&rig, 7);
    graph.launch(&rig.stream).unwrap();
    let (graph, ended) = (&graph, &AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    graph.get(output).unwrap();
                }
            });
        }
        let forked = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..30 {
                in_a_forked_child(|| {
                    let refused = graph.get(output).unwrap().read().map(drop).unwrap_err();
                    i32::from(refused.kind() != ErrorKind::ForkedProcess)
                });
            }
        }));
        ended.store(true, Ordering::Relaxed);
        forked.unwrap_or_else(|panic| resume_unwind(panic));
    });
}
