//! Groups, their events and the search for what is complete, on the emulated device.
//!
//! A *barrier* stops a stream at a position: it waits for another stream, which is stalled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::submit::{GROUP, Submission};
use super::{Fencing, Timeline};
use crate::device::{Device, create_stream};
use crate::driver::emulated::{Emulator, Execution, Fault, Repeat};
use crate::driver::{Call, Driver, DriverResult, Poll, StreamFlags};
use crate::error::{CudaCode, ErrorKind};

struct Rig {
    emulator: Emulator,
    device: Device,
    stream: Arc<Timeline>,
    gate: Arc<Timeline>,
}

impl Rig {
    fn new(execution: Execution, seed: u64) -> Rig {
        Rig::of(&Emulator::builder().execution(execution).seed(seed).build())
    }

    fn of(emulator: &Emulator) -> Rig {
        let emulator = emulator.clone();
        let device = Device::of_emulator(&emulator, 0).expect("no faults");
        let stream = || create_stream(device.context(), StreamFlags::default()).expect("no faults");
        let (stream, gate) = (stream(), stream());
        Rig { emulator, stream, gate, device }
    }

    fn eager() -> Rig {
        Rig::new(Execution::Eager, 0)
    }

    fn submit(&self, fencing: Fencing) -> u64 {
        self.try_submit(fencing).expect("no faults").fence.position
    }

    fn try_submit(&self, fencing: Fencing) -> crate::error::Result<Submission<DriverResult<()>>> {
        let driver = self.stream.open("test")?;
        self.stream.submit_to(driver, "test", fencing, |driver, raw| {
            // SAFETY: the stream is live.
            unsafe { driver.busy(raw, 1) }
        })
    }

    fn small(&self) -> u64 {
        self.submit(Fencing::Shared)
    }

    /// Nothing that is enqueued from now on is complete before [`open_gate`](Self::open_gate).
    fn barrier(&self) {
        self.emulator.stall(self.gate.raw()).expect("live");
        let stuck = self.gate.submit("test", |_, _| ()).expect("no faults");
        self.stream.wait_for(&self.gate, stuck.fence.position, "a test").expect("no faults");
    }

    fn open_gate(&self) {
        self.emulator.release(self.gate.raw()).expect("live");
    }

    fn calls(&self, call: Call) -> u64 {
        self.emulator.calls(call)
    }

    fn end(&self) -> u64 {
        self.stream.lock().end()
    }

    fn is_retired_below(&self, end: u64) -> bool {
        (0..end).all(|position| self.stream.is_retired(position))
    }

    fn assert_clean(self) {
        let Rig { emulator, device, stream, gate } = self;
        drop((stream, gate, device));
        assert_eq!(emulator.findings(), []);
        let usage = emulator.usage();
        assert_eq!((usage.streams, usage.events, usage.pending_operations), (0, 0, 0));
    }
}

#[test]
fn small_copies_share_an_event_and_others_do_not() {
    let rig = Rig::eager();
    (0..3 * GROUP).for_each(|position| assert_eq!(rig.small(), position));
    assert_eq!(rig.calls(Call::EventRecord), 3);
    for _ in 0..3 {
        rig.submit(Fencing::Own);
    }
    assert_eq!(rig.calls(Call::EventRecord), 6);
    // The group is closed before what may take longer.
    rig.small();
    rig.submit(Fencing::Own);
    assert_eq!(rig.calls(Call::EventRecord), 8);
    rig.assert_clean();
}

#[test]
fn an_exposed_stream_fences_every_operation() {
    let rig = Rig::eager();
    rig.stream.expose();
    for _ in 0..5 {
        rig.small();
    }
    assert_eq!(rig.calls(Call::EventRecord), 5);
    rig.assert_clean();
}

#[test]
fn whoever_asks_first_fences_the_group() {
    for wait in [false, true] {
        let rig = Rig::eager();
        let positions: Vec<_> = (0..4).map(|_| rig.small()).collect();
        assert!(!rig.stream.is_complete(positions[1]));
        if wait {
            rig.stream.wait(positions[1], "a test").unwrap();
        } else {
            assert_eq!(rig.stream.poll(positions[1]).unwrap(), Poll::Done);
        }
        assert_eq!(rig.calls(Call::EventRecord), 1);
        assert!(rig.is_retired_below(rig.end()), "the event came after them all");
        assert!(positions.iter().all(|&p| rig.stream.poll(p).unwrap() == Poll::Done));
        assert_eq!(rig.calls(Call::EventQuery), u64::from(!wait), "no more questions");
        rig.assert_clean();
    }
}

#[test]
fn a_pending_group_is_fenced_once() {
    let rig = Rig::eager();
    rig.barrier();
    let before = rig.calls(Call::EventRecord);
    let positions: Vec<_> = (0..4).map(|_| rig.small()).collect();
    for _ in 0..3 {
        assert!(positions.iter().all(|&p| rig.stream.poll(p).unwrap() == Poll::NotReady));
    }
    assert_eq!(rig.calls(Call::EventRecord) - before, 1);
    rig.open_gate();
    assert!(positions.iter().all(|&p| rig.stream.poll(p).unwrap() == Poll::Done));
    rig.assert_clean();
}

/// The wait of a stream for another may take forever: no small copy before it is kept pending by
/// it.
#[test]
fn a_wait_for_another_stream_closes_the_group() {
    let rig = Rig::eager();
    let before = rig.small();
    rig.barrier();
    let behind = rig.small();
    assert_eq!(rig.stream.poll(before).unwrap(), Poll::Done);
    assert_eq!(rig.stream.poll(behind).unwrap(), Poll::NotReady);
    rig.open_gate();
    assert_eq!(rig.stream.poll(behind).unwrap(), Poll::Done);
    rig.assert_clean();
}

#[test]
fn another_stream_can_wait_for_a_group() {
    let rig = Rig::eager();
    rig.barrier();
    let position = rig.small();
    let follower = create_stream(rig.device.context(), StreamFlags::default()).unwrap();
    follower.wait_for(&rig.stream, position, "a test").unwrap();
    let after = follower.submit("test", |_, _| ()).unwrap().fence.position;
    assert_eq!(follower.poll(after).unwrap(), Poll::NotReady);
    rig.open_gate();
    assert_eq!(follower.poll(after).unwrap(), Poll::Done);
    drop(follower);
    rig.assert_clean();
}

/// A wait that is enqueued holds for all work enqueued after it.
#[test]
fn a_stream_waits_once_for_what_it_is_after_already() {
    let rig = Rig::eager();
    rig.barrier();
    let positions: Vec<u64> = (0..3).map(|_| rig.submit(Fencing::Own)).collect();
    let follower = create_stream(rig.device.context(), StreamFlags::default()).unwrap();
    let waits = || rig.calls(Call::StreamWaitEvent);
    let before = waits();
    follower.wait_for(&rig.stream, positions[1], "a test").unwrap();
    assert_eq!(waits() - before, 1);
    for &earlier in &positions[..2] {
        follower.wait_for(&rig.stream, earlier, "a test").unwrap();
    }
    assert_eq!(waits() - before, 1, "it is after these");
    follower.wait_for(&rig.stream, positions[2], "a test").unwrap();
    assert_eq!(waits() - before, 2, "but not after this one");

    let refused = rig.submit(Fencing::Own);
    let fault = Fault::once(Call::StreamWaitEvent, CudaCode::UNKNOWN);
    rig.emulator.inject(fault);
    assert!(follower.wait_for(&rig.stream, refused, "a test").is_err());
    follower.wait_for(&rig.stream, refused, "a test").unwrap();
    assert_eq!(waits() - before, 4, "a wait that was refused is none");
    rig.open_gate();
    drop(follower);
    rig.assert_clean();
}

/// One call finds everything that is complete, and nothing else.
#[test]
fn advance_finds_all_that_is_complete_with_few_queries() {
    let kinds: [fn(u64) -> Fencing; 3] = [
        |_| Fencing::Shared,
        |_| Fencing::Own,
        |n| if n % 3 == 0 { Fencing::Own } else { Fencing::Shared },
    ];
    for (kind, total, complete) in (0..3)
        .flat_map(|kind| (0..70).step_by(3).map(move |total| (kind, total)))
        .flat_map(|(kind, total)| (0..=total).map(move |complete| (kind, total, complete)))
    {
        let rig = Rig::eager();
        for n in 0..complete {
            rig.submit(kinds[kind](n));
        }
        let end = rig.end();
        if complete < total {
            rig.barrier();
        }
        let end = rig.end().max(end);
        let stuck: Vec<_> = (complete..total).map(|n| rig.submit(kinds[kind](n))).collect();

        let case = format!("kind {kind}, {complete} of {total}");
        let before = rig.calls(Call::EventQuery);
        rig.stream.advance().unwrap();
        let queries = rig.calls(Call::EventQuery) - before;
        assert!(rig.is_retired_below(end), "{case}");
        assert!(stuck.iter().all(|&position| !rig.stream.is_complete(position)), "{case}");
        let doublings = u64::from(total.checked_ilog2().unwrap_or(0));
        let bound = if complete == total { 2 } else { 2 * doublings + 3 };
        assert!(queries <= bound, "{case}: {queries} queries");

        // A stream that is stuck at its front. The first look goes back to it; later ones begin
        // there.
        for bound in [doublings / 2 + 2, 1, 1] {
            let before = rig.calls(Call::EventQuery);
            rig.stream.advance().unwrap();
            let queries = rig.calls(Call::EventQuery) - before;
            assert!(queries <= bound, "{case}: {queries} queries");
        }
        rig.open_gate();
        // The oldest and the newest event; then an event for an open group.
        let before = rig.calls(Call::EventQuery);
        rig.stream.advance().unwrap();
        let queries = rig.calls(Call::EventQuery) - before;
        assert!(rig.is_retired_below(rig.end()), "{case}");
        assert!(queries <= 3, "{case}: {queries} queries");
        rig.assert_clean();
    }
}

/// A look records nothing, and queries the stream if there is no event.
#[test]
fn a_look_finds_what_is_complete_and_nothing_else() {
    let rig = Rig::eager();
    rig.barrier();
    let fenced = rig.submit(Fencing::Own);
    let small = rig.small();
    let records = rig.calls(Call::EventRecord);
    for position in [fenced, small] {
        rig.stream.look(position);
        assert!(!rig.stream.is_complete(position));
    }
    rig.open_gate();
    rig.stream.look(small);
    assert!(rig.is_retired_below(small + 1), "all before it are complete, too");
    let again = rig.submit(Fencing::Own);
    rig.stream.look(again);
    assert!(rig.stream.is_complete(again));
    assert_eq!(rig.calls(Call::EventRecord), records + 1);
    rig.assert_clean();
}

/// Queries of a lazy machine say no a few times; asking again and again ends, with groups open or
/// not.
#[test]
fn advance_gets_there_in_the_end() {
    for (seed, total) in (0..6).flat_map(|seed| (0..40).step_by(3).map(move |n| (seed, n))) {
        let rig = Rig::new(Execution::Lazy, seed);
        for _ in 0..total {
            rig.small();
        }
        let mut rounds = 0;
        while !rig.is_retired_below(total) {
            rig.stream.advance().unwrap();
            rounds += 1;
            assert!(rounds < 200, "seed {seed}: {total} small copies are never found");
        }
        rig.assert_clean();
    }
}

/// A call fails, once or from then on, while groups are open and the end of the stream is stuck.
#[test]
fn faults_never_make_a_position_complete() {
    const CALLS: [Call; 4] =
        [Call::EventCreate, Call::EventRecord, Call::EventQuery, Call::StreamQuery];
    for (call, nth, repeat, late, complete) in CALLS
        .into_iter()
        .flat_map(|call| (1..4).map(move |nth| (call, nth)))
        .flat_map(|(call, nth)| [Repeat::Once, Repeat::Forever].map(|repeat| (call, nth, repeat)))
        .flat_map(|(call, nth, repeat)| [false, true].map(|late| (call, nth, repeat, late)))
        .flat_map(|(call, nth, repeat, late)| {
            [0, 3, 12].map(|some| (call, nth, repeat, late, some))
        })
    {
        let rig = Rig::eager();
        let done: Vec<_> = (0..complete).map(|_| rig.small()).collect();
        rig.barrier();
        let stuck: Vec<_> = (0..5).map(|_| rig.small()).collect();
        if call == Call::StreamQuery {
            // It is called only after a record has failed.
            rig.emulator.inject(Fault::forever(Call::EventRecord, CudaCode::UNKNOWN));
        }
        rig.emulator.inject(Fault { call, nth, code: CudaCode::UNKNOWN, repeat, late });
        for &position in done.iter().chain(&stuck) {
            let answer = rig.stream.poll(position);
            assert!(!stuck.contains(&position) || !matches!(answer, Ok(Poll::Done)));
            let _ = rig.stream.advance();
            assert!(stuck.iter().all(|&position| !rig.stream.is_complete(position)));
        }
        rig.open_gate();
        // Everything is found without faults, and also if only events fail.
        if matches!(call, Call::EventCreate | Call::EventRecord) {
            assert_eq!(rig.stream.poll(stuck[4]).unwrap(), Poll::Done);
        }
        rig.emulator.clear_faults();
        rig.stream.advance().unwrap();
        assert!(rig.is_retired_below(stuck[4] + 1));
        rig.assert_clean();
    }
}

/// The same from the first submission on: it may be refused, but what was enqueued is found.
#[test]
fn faults_while_submitting_lose_nothing() {
    const CALLS: [Call; 5] = [
        Call::EventCreate,
        Call::EventRecord,
        Call::EventQuery,
        Call::EventSynchronize,
        Call::StreamSynchronize,
    ];
    for (call, nth, repeat, late, seed) in CALLS
        .into_iter()
        .flat_map(|call| (1..6).map(move |nth| (call, nth)))
        .flat_map(|(call, nth)| [Repeat::Once, Repeat::Forever].map(|repeat| (call, nth, repeat)))
        .flat_map(|(call, nth, repeat)| [false, true].map(|late| (call, nth, repeat, late)))
        .flat_map(|(call, nth, repeat, late)| [0, 1].map(|seed| (call, nth, repeat, late, seed)))
    {
        let rig = Rig::new(Execution::Lazy, seed);
        rig.emulator.inject(Fault { call, nth, code: CudaCode::UNKNOWN, repeat, late });
        let mut enqueued = Vec::new();
        for n in 0..40 {
            let fencing = if n % 7 == 0 { Fencing::Own } else { Fencing::Shared };
            if let Ok(submission) = rig.try_submit(fencing) {
                enqueued.push(submission.fence.position);
            }
            if let Some(&position) = enqueued.last() {
                let _ = if n % 5 == 0 { rig.stream.advance() } else { Ok(()) };
                let _ = if n % 3 == 0 { rig.stream.wait(position, "a test") } else { Ok(()) };
            }
        }
        rig.emulator.clear_faults();
        enqueued.iter().for_each(|&position| rig.stream.wait(position, "a test").unwrap());
        assert!(enqueued.iter().all(|&position| rig.stream.is_complete(position)));
        rig.assert_clean();
    }
}

#[test]
fn exposing_a_stream_closes_its_group_so_that_no_question_disturbs_a_capture() {
    let rig = Rig::eager();
    let position = [(); 3].map(|()| rig.small())[2];
    rig.stream.expose();
    assert_eq!(rig.calls(Call::EventRecord), 1);
    rig.emulator.begin_capture(rig.stream.raw()).unwrap();
    rig.stream.advance().unwrap();
    assert_eq!(rig.stream.poll(position).unwrap(), Poll::Done);
    assert_eq!(rig.emulator.end_capture(rig.stream.raw()), Ok(0));
    rig.assert_clean();
}

/// In a host function no event can be recorded, and so the group is open when the stream is
/// captured.
#[test]
fn a_group_that_is_open_on_a_captured_stream_is_left_alone() {
    let rig = Rig::eager();
    let position = rig.small();
    let stream = Arc::clone(&rig.stream);
    let helper = rig.device.stream().unwrap();
    helper.launch_host(move || stream.expose()).unwrap().wait().unwrap();
    drop(helper);
    assert_eq!(rig.stream.lock().open(), 0..1, "the test has what it is about");

    rig.emulator.begin_capture(rig.stream.raw()).unwrap();
    rig.stream.advance().unwrap();
    for error in [
        rig.stream.poll(position).unwrap_err(),
        rig.stream.wait(position, "a test").unwrap_err(),
        rig.gate.wait_for(&rig.stream, position, "a test").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::StreamCapturing);
    }
    assert_eq!(rig.emulator.end_capture(rig.stream.raw()), Ok(0), "alive, and nothing recorded");
    assert_eq!(rig.stream.poll(position).unwrap(), Poll::Done);
    rig.assert_clean();
}

/// Another thread gives the handle out between the copy and its mark.
#[test]
fn a_copy_that_is_overtaken_by_exposure_is_fenced() {
    let rig = Rig::eager();
    let driver = rig.stream.open("test").unwrap();
    let submitted = rig.stream.submit_to(driver, "test", Fencing::Shared, |driver, raw| {
        rig.stream.expose();
        // SAFETY: the stream is live.
        unsafe { driver.busy(raw, 1) }
    });
    let position = submitted.unwrap().fence.position;
    assert!(rig.stream.lock().open().is_empty());
    rig.stream.advance().unwrap();
    assert!(rig.stream.is_complete(position));
    rig.assert_clean();
}

#[test]
fn threads_that_submit_at_once_find_all_of_theirs() {
    for seed in 0..4 {
        let rig = Rig::new(Execution::Lazy, seed);
        std::thread::scope(|scope| {
            let rig = &rig;
            let threads = [0, 1, 2, 3].map(|thread| {
                scope.spawn(move || {
                    for round in 0..200 {
                        let position = rig.small();
                        match (round + thread) % 50 {
                            0 => rig.stream.wait(position, "a test").unwrap(),
                            1 => rig.stream.advance().unwrap(),
                            2 => drop(rig.stream.poll(position).unwrap()),
                            _ => continue,
                        }
                        assert!(
                            (round + thread) % 50 != 0 || rig.stream.is_complete(position),
                            "waited for"
                        );
                    }
                })
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        rig.stream.wait(rig.end() - 1, "a test").unwrap();
        rig.stream.synchronize("a test").unwrap();
        assert!(rig.is_retired_below(800));
        rig.assert_clean();
    }
}

/// One thread waits in the driver, and the other for that thread.
#[test]
fn a_thread_that_waits_for_another_goes_on_to_wait_for_its_own_event() {
    let rig = Rig::of(&Emulator::builder().races(false).build());
    rig.barrier();
    let early = rig.submit(Fencing::Own);
    let second = create_stream(rig.device.context(), StreamFlags::default()).expect("no faults");
    rig.emulator.stall(second.raw()).expect("live");
    let stuck = second.submit("test", |_, _| ()).expect("no faults");
    rig.stream.wait_for(&second, stuck.fence.position, "a test").expect("no faults");
    let late = rig.submit(Fencing::Own);
    let is_open = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = scope.spawn(|| rig.stream.wait(early, "a test").expect("no faults"));
        while rig.stream.waits_for.load(Ordering::Relaxed) != early {
            thread::yield_now();
        }
        let last = scope.spawn(|| {
            rig.stream.wait(late, "a test").expect("no faults");
            assert!(is_open.load(Ordering::SeqCst), "it waited for its own event");
        });
        rig.open_gate();
        first.join().expect("no panic");
        thread::sleep(Duration::from_millis(20));
        is_open.store(true, Ordering::SeqCst);
        rig.emulator.release(second.raw()).expect("live");
        last.join().expect("no panic");
    });
    assert_eq!(rig.stream.waits_for.load(Ordering::Relaxed), super::NOBODY);
}

/// No event can be had, so the host waits for the other stream. The stream was open before.
#[test]
fn a_stream_that_is_captured_while_the_host_waits_for_another_is_not_open() {
    let rig = Rig::eager();
    let captured = create_stream(rig.device.context(), StreamFlags::default()).expect("no faults");
    captured.expose();
    rig.barrier();
    let position = rig.small();
    let refused = Fault::forever(Call::EventCreate, CudaCode::MEMORY_ALLOCATION);
    rig.emulator.inject(refused);
    let waited = thread::scope(|scope| {
        let waits = scope.spawn(|| captured.wait_for(&rig.stream, position, "a test"));
        while rig.calls(Call::StreamSynchronize) == 0 {
            thread::yield_now();
        }
        rig.emulator.begin_capture(captured.raw()).expect("live");
        rig.open_gate();
        waits.join().expect("no panic")
    });
    let kind = waited.map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::StreamCapturing));
    rig.emulator.end_capture(captured.raw()).expect("nobody has invalidated it");
    rig.emulator.clear_faults();
    drop(captured);
    rig.assert_clean();
}

/// A worker or a deleter records. Other code does not know of it, and begins a capture.
#[test]
fn what_is_recorded_while_a_capture_begins_has_no_event() {
    let rig = Rig::eager();
    rig.stream.expose();
    let driver = rig.stream.open("test").expect("it is not captured");
    let begin = |_: &dyn Driver, raw| rig.emulator.begin_capture(raw).expect("live");
    let recorded = rig.stream.submit_to(driver, "test", Fencing::Recorded, begin).expect("opened");
    let kind = recorded.fenced.map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::StreamCapturing));
    // A stream that waited for the event would join the capture.
    let position = recorded.fence.position;
    let waits = rig.gate.wait_for(&rig.stream, position, "a test").map_err(|error| error.kind());
    assert_eq!(waits, Err(ErrorKind::StreamCapturing));
    rig.stream.advance().expect("no query");
    rig.emulator.end_capture(rig.stream.raw()).expect("nobody has invalidated it");
    rig.stream.wait(position, "a test").expect("an event is recorded now");
    rig.assert_clean();
}
