//! Graphs: each launch copies what is there then, whatever else uses the buffers, and whatever is
//! dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use pinlane::driver::{Call, Driver, RawStream};
use pinlane::emulated::{CaptureMode, Emulator, Execution, Fault};
use pinlane::graph::{Key, Part};
use pinlane::{Capture, CudaCode, Device, DeviceBuf, ErrorKind, Graph, PinnedBuf, Result, Stream};

use crate::common::faults::{Run, at_every_call};
use crate::common::support::{BLOCK, LEN, Rig, raw};

type Host = Key<PinnedBuf<u32>>;
type Gpu = Key<DeviceBuf<u32>>;

/// The rig on machines that run work at once, as late as they can, and in between.
fn on_machines(blocks: usize, test: impl Fn(&Rig)) {
    for (execution, seeds) in [(Execution::Eager, 1), (Execution::Lazy, 3), (Execution::Random, 5)]
    {
        for seed in 0..seeds {
            let rig = Rig::new(execution, seed, blocks);
            test(&rig);
            rig.assert_nothing_is_left();
        }
    }
}

/// An upload and a download of one block each.
struct Round {
    graph: Graph,
    input: Host,
    gpu: Gpu,
    output: Host,
}

fn round(rig: &Rig) -> Result<Round> {
    let mut capture = rig.device.capture()?;
    let input = capture.own(rig.pool.alloc::<u32>(LEN)?);
    let gpu = capture.own(rig.device.alloc::<u32>(LEN)?);
    let output = capture.own(rig.pool.alloc::<u32>(LEN)?);
    capture.upload(input, gpu)?;
    capture.download(gpu, output)?;
    Ok(Round { graph: capture.finish()?, input, gpu, output })
}

impl Round {
    fn write(&mut self, value: u32) -> Result<()> {
        self.graph.slice_mut(self.input)?.into_write()?.fill(value);
        Ok(())
    }

    fn assert_result(&self, value: u32) -> Result<()> {
        let result = self.graph.get(self.output)?.read()?;
        assert!(result.iter().all(|&word| word == value), "{} for {value}", result[0]);
        Ok(())
    }
}

#[test]
fn each_launch_copies_what_is_there_then() {
    on_machines(4, |rig| {
        let mut round = round(rig).unwrap();
        for value in 1..6 {
            round.write(value).unwrap();
            round.graph.launch(&rig.stream).unwrap();
            round.assert_result(value).unwrap();
        }
        assert_eq!(round.graph.bytes(), 2 * BLOCK);
    });
}

/// Launches on one stream after another, and other work on others in between.
#[test]
fn launches_and_other_work_are_ordered() {
    on_machines(6, |rig| {
        let streams: Vec<Stream> = (0..3).map(|_| rig.device.stream().unwrap()).collect();
        let mut round = round(rig).unwrap();
        let mut copy = rig.host(0);
        for value in 1..12 {
            let stream = |number: u32| &streams[(value + number) as usize % 3];
            let from = rig.host(value);
            stream(0).upload(&from, round.graph.slice_mut(round.gpu).unwrap()).unwrap();
            stream(1).download(round.graph.get(round.gpu).unwrap(), &mut copy).unwrap();
            drop(from);
            round.write(100 * value).unwrap();
            round.graph.launch(stream(2)).unwrap();
            round.graph.launch(stream(0)).unwrap();
            assert_eq!(copy.read().unwrap()[..], [value; LEN]);
            let result = rig.contents(round.graph.get(round.gpu).unwrap());
            assert_eq!(result, [100 * value; LEN]);
            round.assert_result(100 * value).unwrap();
        }
    });
}

#[test]
fn the_first_launch_waits_for_what_the_buffers_did_before() {
    on_machines(4, |rig| {
        let other = rig.device.stream().unwrap();
        let (from, mut gpu) = (rig.host(7), rig.gpu());
        rig.stall(&other);
        other.upload(&from, &mut gpu).unwrap();
        let mut capture = rig.device.capture().unwrap();
        let (gpu, output) = (capture.own(gpu), capture.own(rig.host(0)));
        capture.download(gpu, output).unwrap();
        let mut graph = capture.finish().unwrap();
        let ticket = graph.launch(&rig.stream).unwrap();
        assert!(!ticket.is_done().unwrap());
        rig.release(&other);
        ticket.wait().unwrap();
        assert_eq!(graph.get(output).unwrap().read().unwrap()[..], [7; LEN]);
        rig.stalled.lock().unwrap().clear();
    });
}

/// What a launch still uses is neither reused nor freed when the graph is dropped.
#[test]
fn dropped_graphs_keep_their_memory_until_the_launch_is_done() {
    on_machines(3, |rig| {
        let mut round = round(rig).unwrap();
        round.write(1).unwrap();
        rig.stall(&rig.stream);
        let ticket = round.graph.launch(&rig.stream).unwrap();
        drop(round.graph);
        // The pool has room for three blocks, and two of them are in use.
        let first = rig.pool.alloc::<u32>(LEN).unwrap();
        let full = rig.pool.try_alloc::<u32>(LEN).map(drop).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::NotReady);
        assert!(!ticket.is_done().unwrap());
        rig.release(&rig.stream);
        ticket.wait().unwrap();
        drop((first, rig.host(2), rig.host(3)));
    });
}

#[test]
fn the_buffers_come_back_with_the_launch_that_uses_them() {
    on_machines(4, |rig| {
        let mut round = round(rig).unwrap();
        round.write(5).unwrap();
        rig.stall(&rig.stream);
        round.graph.launch(&rig.stream).unwrap();
        let mut buffers = round.graph.into_buffers();
        let mut input = buffers.take(round.input).unwrap();
        let output = buffers.take(round.output).unwrap();
        assert_eq!(input.try_write().unwrap_err().kind(), ErrorKind::NotReady);
        assert_eq!(output.try_read().unwrap_err().kind(), ErrorKind::NotReady);
        let again = buffers.take(round.output).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidValue);
        rig.release(&rig.stream);
        assert_eq!(output.read().unwrap()[..], [5; LEN]);
    });
}

/// Two inputs and two outputs take turns in one graph.
#[test]
fn buffers_take_turns() {
    on_machines(8, |rig| {
        let mut round = round(rig).unwrap();
        round.graph.slice_mut(round.output).unwrap().into_write().unwrap().fill(0);
        let (mut input, mut output) = (rig.host(0), rig.host(0));
        let mut shown = 0;
        for value in 1..10 {
            input.write().unwrap().fill(value);
            // The other pair may still be in use.
            input = round.graph.rebind(round.input, input).unwrap();
            output = round.graph.rebind(round.output, output).unwrap();
            round.graph.launch(&rig.stream).unwrap();
            assert_eq!(output.read().unwrap()[..], [shown; LEN]);
            shown = value;
        }
        round.assert_result(9).unwrap();
    });
}

#[test]
fn only_what_fits_is_bound_instead() {
    on_machines(8, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (input, gpu) = (capture.own(rig.host(1)), capture.own(rig.gpu()));
        let (filled, shared) = (capture.own(rig.gpu()), capture.own(Arc::new(rig.gpu())));
        capture.upload(input.slice(10..), gpu.slice(..LEN - 10)).unwrap();
        capture.fill(filled.slice(..10), 4).unwrap();
        capture.copy(shared.slice(..10), filled.slice(20..30)).unwrap();
        let mut graph = capture.finish().unwrap();
        let short = rig.pool.alloc::<u32>(LEN - 1).unwrap();
        let kinds = [
            graph.rebind(input, short).unwrap_err().error.kind(),
            graph.rebind(filled, rig.gpu()).unwrap_err().error.kind(),
            round(rig).unwrap().graph.rebind(input, rig.host(0)).unwrap_err().error.kind(),
        ];
        let expected = [ErrorKind::LengthMismatch, ErrorKind::Unsupported, ErrorKind::InvalidValue];
        assert_eq!(kinds, expected);
        drop(graph.rebind(input, rig.host(3)).unwrap());
        drop(graph.rebind(gpu, rig.gpu()).unwrap());
        rig.stream.fill(graph.slice_mut(gpu).unwrap(), 0).unwrap();
        graph.launch(&rig.stream).unwrap();
        let result = rig.contents(graph.get(gpu).unwrap());
        assert!(result[..LEN - 10] == [3; LEN - 10] && result[LEN - 10..] == [0; 10]);
        assert_eq!(rig.contents(graph.get(filled).unwrap())[..10], [4; 10]);
    });
}

/// Two graphs read the same weights.
#[test]
fn what_is_only_read_is_shared() {
    on_machines(6, |rig| {
        let mut weights = rig.gpu();
        rig.stream.fill(&mut weights, 6).unwrap();
        let weights = Arc::new(weights);
        let graph = |weights: &Arc<DeviceBuf<u32>>| {
            let mut capture = rig.device.capture().unwrap();
            let output = capture.own(rig.host(0));
            let weights = capture.own(Arc::clone(weights));
            capture.download(weights, output).unwrap();
            (capture.finish().unwrap(), output)
        };
        let (mut first, mut second) = (graph(&weights), graph(&weights));
        let other = rig.device.stream().unwrap();
        first.0.launch(&rig.stream).unwrap();
        second.0.launch(&other).unwrap();
        for (graph, output) in [&first, &second] {
            assert_eq!(graph.get(*output).unwrap().read().unwrap()[..], [6; LEN]);
        }
        first.0.launch(&other).unwrap();
        drop((first, second));
        // The launches are uses of the buffer that comes back.
        let mut weights = Arc::into_inner(weights).unwrap();
        rig.stream.fill(&mut weights, 7).unwrap();
        assert_eq!(rig.contents(&weights), [7; LEN]);
    });
}

fn wrong(capture: &mut Capture, host: Host, gpu: impl Into<Part<DeviceBuf<u32>>>) -> ErrorKind {
    capture.upload(host, gpu).unwrap_err().kind()
}

#[test]
fn a_capture_survives_what_it_refuses() {
    on_machines(4, |rig| {
        let far = Device::of_emulator(&rig.emulator, 1).unwrap();
        let stranger = rig.device.capture().unwrap().own(rig.gpu());
        let mut capture = rig.device.capture().unwrap();
        let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
        let there = capture.own(far.alloc::<u32>(LEN).unwrap());
        assert_eq!(wrong(&mut capture, host, gpu.slice(1..)), ErrorKind::LengthMismatch);
        assert_eq!(wrong(&mut capture, host, gpu.slice(..LEN + 1)), ErrorKind::OutOfRange);
        assert_eq!(wrong(&mut capture, host, there), ErrorKind::WrongDevice);
        assert_eq!(wrong(&mut capture, host, stranger), ErrorKind::InvalidValue);
        let overlap = capture.copy(gpu.slice(..10), gpu.slice(9..19)).unwrap_err();
        assert_eq!(overlap.kind(), ErrorKind::InvalidValue);
        capture.upload(host, gpu).unwrap();
        capture.upload(host.slice(..0), gpu.slice(..0)).unwrap();
        let mut graph = capture.finish().unwrap();
        let elsewhere = graph.launch(&far.stream().unwrap()).unwrap_err();
        assert_eq!(elsewhere.kind(), ErrorKind::WrongDevice);
        graph.launch(&rig.stream).unwrap();
        assert_eq!(rig.contents(graph.get(gpu).unwrap()), [8; LEN]);
    });
}

/// If foreign work makes a call that cannot be captured, there is no graph of the rest.
#[test]
fn a_capture_fails_as_a_whole_and_gives_its_buffers_back() {
    on_machines(4, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
        capture.upload(host, gpu).unwrap();
        let driver: Arc<dyn Driver> = Arc::new(rig.emulator.clone());
        // SAFETY: the work is a query, of the given stream.
        let queried = unsafe {
            capture.foreign(&[], &[gpu.writing()], |stream| {
                let stream = RawStream { device: 0, handle: stream.addr() };
                driver.stream_query(stream).unwrap_err()
            })
        };
        assert_eq!(queried.unwrap_err().kind(), ErrorKind::StreamCapturing);
        assert_eq!(wrong(&mut capture, host, gpu), ErrorKind::StreamCapturing);
        let refused = capture.finish().unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::StreamCapturing);
        let mut buffers = refused.value;
        assert_eq!(buffers.take(host).unwrap().read().unwrap()[..], [8; LEN]);
        assert_eq!(buffers.take(gpu).unwrap().len(), LEN);
    });
}

/// If CUDA refuses a copy, there is no graph of the others.
#[test]
fn a_capture_fails_if_a_copy_is_refused() {
    on_machines(4, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
        capture.upload(host, gpu).unwrap();
        rig.emulator.inject(Fault::once(Call::CopyH2D, CudaCode::UNKNOWN));
        assert_eq!(wrong(&mut capture, host, gpu), ErrorKind::Cuda);
        assert_eq!(wrong(&mut capture, host, gpu), ErrorKind::Cuda);
        assert_eq!(capture.finish().unwrap_err().error.kind(), ErrorKind::Cuda);
    });
}

/// The same in a capture of other code, which ends without a graph.
#[test]
fn a_joined_capture_fails_as_a_whole() {
    on_machines(4, |rig| {
        let stream = rig.device.stream().unwrap();
        let driver: Arc<dyn Driver> = Arc::new(rig.emulator.clone());
        rig.emulator.stream_begin_capture(raw(&stream), CaptureMode::Global).unwrap();
        // SAFETY: there will be no graph of the other code.
        let mut capture = unsafe { stream.join_capture() }.unwrap();
        let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
        capture.upload(host, gpu).unwrap();
        // SAFETY: the work is a query, of the given stream.
        let queried = unsafe {
            capture.foreign(&[], &[gpu.writing()], |_| driver.stream_query(raw(&stream)).is_err())
        };
        assert_eq!(queried.unwrap_err().kind(), ErrorKind::StreamCapturing);
        assert_eq!(capture.finish().unwrap_err().error.kind(), ErrorKind::StreamCapturing);
        rig.emulator.stream_end_capture(raw(&stream)).unwrap_err();
    });
}

/// After a panic in foreign work nobody knows what it has captured.
#[test]
fn a_capture_fails_if_foreign_work_panics() {
    on_machines(4, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
        capture.upload(host, gpu).unwrap();
        let work = AssertUnwindSafe(|| {
            // SAFETY: there is no work.
            unsafe { capture.foreign(&[], &[gpu.writing()], |_| resume_unwind(Box::new(()))) }
        });
        assert!(catch_unwind(work).is_err());
        assert_eq!(wrong(&mut capture, host, gpu), ErrorKind::InvalidValue);
        let mut buffers = capture.finish().unwrap_err().value;
        assert_eq!(buffers.take(host).unwrap().read().unwrap()[..], [8; LEN]);
    });
}

/// Borrowed memory may be that of another buffer of the graph.
#[test]
fn a_copy_is_not_bound_to_memory_that_overlaps() {
    on_machines(4, |rig| {
        let owner = rig.gpu();
        let mut capture = rig.device.capture().unwrap();
        // SAFETY: `owner` outlives the graph, and is not used.
        let borrow = |from: u64| unsafe {
            rig.device.borrow_memory::<u32>(owner.as_device_ptr() + 4 * from, 100).unwrap()
        };
        let (src, dst) = (capture.own(borrow(0)), capture.own(borrow(100)));
        capture.copy(src, dst).unwrap();
        let mut graph = capture.finish().unwrap();
        let refused = graph.rebind(src, borrow(50)).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::InvalidValue);
        drop(graph.rebind(src, borrow(200)).unwrap());
        rig.stream.record().unwrap().wait().unwrap();
    });
}

/// Work that the test enqueues itself: a copy of a buffer within the device.
fn copy_within(driver: &dyn Driver, stream: *mut std::ffi::c_void, dst: u64, src: u64) {
    let stream = RawStream { device: 0, handle: stream.addr() };
    // SAFETY: the stream is the one that is given to foreign work, and the caller's buffers have a
    // block each.
    unsafe { driver.copy_d2d(stream, dst, src, BLOCK) }.unwrap();
}

#[test]
fn foreign_work_is_captured_in_its_place() {
    on_machines(4, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (input, output) = (capture.own(rig.host(1)), capture.own(rig.host(0)));
        let (gpu, copy) = (capture.own(rig.gpu()), capture.own(rig.gpu()));
        let from = capture.get(gpu).unwrap().as_device_ptr();
        let to = capture.get(copy).unwrap().as_device_ptr();
        capture.upload(input, gpu).unwrap();
        // SAFETY: the work is a copy on the given stream, of the named buffers.
        unsafe {
            capture.foreign(&[gpu.reading()], &[copy.writing()], |stream| {
                copy_within(&rig.emulator, stream, to, from)
            })
        }
        .unwrap();
        capture.download(copy, output).unwrap();
        let mut graph = capture.finish().unwrap();
        for value in [3, 4] {
            graph.slice_mut(input).unwrap().into_write().unwrap().fill(value);
            graph.launch(&rig.stream).unwrap();
            assert_eq!(graph.get(output).unwrap().read().unwrap()[..], [value; LEN]);
        }
        assert!(graph.rebind(copy, rig.gpu()).is_err());
    });
}

/// Other code captures a stream, and this crate's work joins.
#[test]
fn work_joins_the_capture_of_other_code() {
    on_machines(4, |rig| {
        let theirs: &Emulator = &rig.emulator;
        let stream = rig.device.stream().unwrap();
        // SAFETY: there is no graph.
        let early = unsafe { stream.join_capture() }.unwrap_err();
        assert_eq!(early.kind(), ErrorKind::InvalidValue);
        theirs.stream_begin_capture(raw(&stream), CaptureMode::Global).unwrap();
        // SAFETY: the graph of the other code is destroyed below, before ours is dropped, and is
        // launched by `launch_foreign` only.
        let mut capture = unsafe { stream.join_capture() }.unwrap();
        let (input, output) = (capture.own(rig.host(1)), capture.own(rig.host(0)));
        let gpu = capture.own(rig.gpu());
        capture.upload(input, gpu).unwrap();
        capture.download(gpu, output).unwrap();
        let mut ours = capture.finish().unwrap();
        let graph = theirs.stream_end_capture(raw(&stream)).unwrap();
        let executable = theirs.graph_instantiate(graph, false).unwrap();
        assert_eq!(ours.launch(&rig.stream).unwrap_err().kind(), ErrorKind::Unsupported);
        for value in [3, 4] {
            ours.slice_mut(input).unwrap().into_write().unwrap().fill(value);
            // SAFETY: the closure launches the graph on the given stream, and nothing else.
            unsafe {
                ours.launch_foreign(&rig.stream, |handle| {
                    let stream = RawStream { device: 0, handle: handle.addr() };
                    theirs.graph_launch(executable, stream).unwrap();
                })
            }
            .unwrap();
            assert_eq!(ours.get(output).unwrap().read().unwrap()[..], [value; LEN]);
        }
        theirs.graph_destroy(executable).unwrap();
        theirs.graph_destroy(graph).unwrap();
    });
}

#[test]
fn a_capture_that_is_dropped_leaves_nothing() {
    on_machines(4, |rig| {
        let mut capture = rig.device.capture().unwrap();
        let (host, gpu) = (capture.own(rig.host(8)), capture.own(rig.gpu()));
        capture.upload(host, gpu).unwrap();
        drop(capture);
        let empty = rig.device.capture().unwrap().finish();
        empty.unwrap().launch(&rig.stream).unwrap().wait().unwrap();
    });
}

/// Every call fails, once or from then on.
#[test]
fn graphs_while_calls_fail() {
    at_every_call("graphs", &Emulator::builder().devices(2), 150, |run: &Run| {
        let rig = Rig::on(run.emulator.clone(), 8);
        run.begin();
        let work = || -> Result<()> {
            let other = rig.device.stream()?;
            let mut round = round(&rig)?;
            for value in 1..4 {
                round.write(value)?;
                let stream = if value % 2 == 0 { &rig.stream } else { &other };
                round.graph.launch(stream)?;
                round.assert_result(value)?;
                let fresh = rig.pool.alloc::<u32>(LEN)?;
                drop(round.graph.rebind(round.input, fresh)?);
            }
            rig.stream.fill(round.graph.slice_mut(round.gpu)?, 9)?;
            round.write(5)?;
            round.graph.launch(&rig.stream)?;
            let mut buffers = round.graph.into_buffers();
            let output = buffers.take(round.output)?;
            assert!(output.read()?.iter().all(|&word| word == 5));
            Ok(())
        };
        run.explains_all([work()]);
        run.end();
        rig.device.quarantined_bytes() + rig.pool.stats().quarantined_bytes
    });
}
