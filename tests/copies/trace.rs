//! Recordings: their contents, and that they change nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pinlane::driver::{Call, RawStream};
use pinlane::emulated::{Emulator, Execution};
use pinlane::trace::{Kind, Recording, Span, Trace, Track};
use pinlane::{CudaCode, Device, ErrorKind, PinnedPool, Refused};
use serde_json::Value;

/// The device's spans with this name.
fn on_device<'t>(trace: &'t Trace, name: &str) -> Vec<&'t Span> {
    let device = trace.spans().iter().filter(|span| span.kind == Kind::OnDevice);
    device.filter(|span| span.name == name).collect()
}

fn kinds(trace: &Trace) -> BTreeSet<String> {
    trace.spans().iter().map(|span| format!("{:?}", span.kind)).collect()
}

#[test]
fn a_recording_shows_copies_waits_and_what_threads_do() {
    let device = Device::emulated().unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();
    let bytes = 40 << 20; // more than the ring
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(bytes).unwrap();
    stream.upload_slice(&vec![7; bytes], &mut gpu).unwrap().wait().unwrap();
    let mut back = vec![0; bytes];
    stream.download_slice(&gpu, &mut back).unwrap();
    stream.busy(Duration::from_millis(3)).unwrap().wait().unwrap();
    let trace = recording.stop().unwrap();

    assert_eq!(trace.missing(), 0);
    for (name, most) in [("Stream::upload_slice", 4 << 20), ("Stream::download_slice", 4 << 20)] {
        let portions = on_device(&trace, name);
        assert_eq!(portions.iter().map(|span| span.bytes).sum::<usize>(), bytes, "{name}");
        assert!(portions.iter().all(|span| span.bytes <= most), "{name}");
        let tracks: BTreeSet<_> = portions.iter().map(|span| &span.track).collect();
        assert_eq!(tracks.len(), 1, "one stream: {tracks:?}");
    }
    let staged = trace.spans().iter().filter(|span| span.kind == Kind::Stage);
    assert_eq!(staged.map(|span| span.bytes).sum::<usize>(), 2 * bytes);
    let busy = on_device(&trace, "Stream::busy")[0];
    assert!(busy.end - busy.start >= Duration::from_millis(3), "{busy:?}");
    assert_eq!(on_device(&trace, "Device::alloc")[0].bytes, bytes);
    assert_eq!(
        kinds(&trace),
        ["Enqueue", "OnDevice", "PageLock", "Stage", "Wait"].map(str::to_owned).into()
    );
    for pair in trace.spans().windows(2) {
        assert!(pair[0].start <= pair[1].start && pair[0].start <= pair[0].end, "{pair:?}");
    }
    // The spans of a stream do not overlap.
    let mut streams: Vec<_> = trace.spans().iter().filter(|s| s.kind == Kind::OnDevice).collect();
    streams.sort_by_key(|span| (&span.track, span.start));
    for pair in streams.windows(2).filter(|pair| pair[0].track == pair[1].track) {
        assert!(pair[0].end <= pair[1].start + Duration::from_micros(2), "{pair:?}");
    }
}

#[test]
fn a_device_that_is_not_recorded_makes_no_more_calls() {
    let calls = |recorded: bool| {
        let emulator = Emulator::new();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        if recorded {
            let recording = Recording::new();
            device.record(&recording).unwrap();
            recording.stop().unwrap(); // from here on it is off again
        }
        let counted = || {
            [Call::EventCreate, Call::EventRecord, Call::StreamCreate, Call::EventElapsed]
                .map(|call| emulator.calls(call))
        };
        let before = counted();
        let stream = device.stream().unwrap();
        let mut gpu = device.alloc::<u8>(4096).unwrap();
        let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build().unwrap();
        let host = pool.alloc::<u8>(4096).unwrap();
        stream.upload(&host, &mut gpu).unwrap().wait().unwrap();
        let after = counted();
        std::array::from_fn::<_, 4, _>(|at| after[at] - before[at])
    };
    assert_eq!(calls(false), calls(true));
}

/// A timeline names the calls of the program.
#[test]
fn each_wait_has_the_name_of_the_call_that_waits() {
    let emulator = Emulator::builder().execution(Execution::Lazy).build();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build().unwrap();
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(4096).unwrap();
    let mut host = pool.alloc_zeroed::<u8>(4096).unwrap();
    let mut own = device.register(vec![0u8; 4096]).unwrap();
    let mut large = device.alloc::<u8>(8 << 20).unwrap();
    stream.upload(&host, &mut gpu).unwrap().wait().unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();

    stream.upload(&host, &mut gpu).unwrap();
    host.write().unwrap();
    stream.download(&gpu, &mut host).unwrap();
    host.read().unwrap();
    stream.download(&gpu, &mut host).unwrap();
    host.slice(..10).unwrap().read().unwrap();
    stream.upload(&host, &mut gpu).unwrap();
    host.slice_mut(..10).unwrap().into_write().unwrap();
    stream.download(&gpu, &mut own).unwrap();
    own.write().unwrap();
    stream.download(&gpu, &mut own).unwrap();
    own.into_inner().unwrap();
    stream.busy(Duration::ZERO).unwrap().wait().unwrap();
    stream.busy(Duration::ZERO).unwrap().wait_timeout(Duration::from_secs(60)).unwrap();
    stream.busy(Duration::ZERO).unwrap();
    stream.synchronize().unwrap();
    stream.download_slice(&large, &mut vec![0; 8 << 20]).unwrap();
    stream.upload_slice(&vec![0; 8 << 20], &mut large).unwrap();

    let trace = recording.stop().unwrap();
    let waits = trace.spans().iter().filter(|span| span.kind == Kind::Wait);
    let mut names: Vec<_> = waits.map(|span| span.name).collect();
    names.dedup();
    let expected = [
        "PinnedBuf::write",
        "PinnedBuf::read",
        "PinnedSlice::read",
        "PinnedSliceMut::into_write",
        "PinnedBuf::write",
        "Registered::into_inner",
        "Ticket::wait",
        "Ticket::wait_timeout",
        "Stream::synchronize",
        "Stream::download_slice",
    ];
    assert_eq!(names[..expected.len()], expected);
    assert!(
        names[expected.len()..].iter().all(|name| *name == "Stream::upload_slice"),
        "{names:?}"
    );
}

/// A recording that cannot be stopped continues, and is not lost.
#[test]
fn a_recording_that_is_not_stopped_comes_back() {
    let device = Device::emulated().unwrap();
    let stream = device.stream().unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();
    let (send, refused) = std::sync::mpsc::channel();
    let function = move || send.send(recording.stop().unwrap_err()).unwrap();
    stream.launch_host(function).unwrap().wait().unwrap();
    let Refused { value: recording, error } = refused.recv().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.operation(), "Recording::stop");
    stream.busy(Duration::from_millis(1)).unwrap();
    let trace = recording.stop().unwrap();
    assert_eq!(on_device(&trace, "Stream::busy").len(), 1);
}

#[test]
fn two_devices_share_a_recording_and_none_has_two() {
    let emulator = Emulator::builder().devices(2).build();
    let devices = [0, 1].map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap());
    let (recording, other) = (Recording::new(), Recording::new());
    for device in &devices {
        device.record(&recording).unwrap();
        device.record(&recording).unwrap(); // once more does no harm
        assert_eq!(device.record(&other).unwrap_err().kind(), ErrorKind::InvalidValue);
        let stream = device.stream().unwrap();
        stream.busy(Duration::from_millis(1)).unwrap();
    }
    let trace = recording.stop().unwrap();
    let of = |track: &Track| match track {
        Track::OfStream { device, .. } => Some(*device),
        Track::OfThread { .. } => None,
    };
    let seen: BTreeSet<_> = trace.spans().iter().filter_map(|span| of(&span.track)).collect();
    assert_eq!(seen, [0, 1].into());
    devices[0].record(&other).unwrap(); // the first one has ended
    drop(other);
    devices[0].record(&Recording::new()).unwrap();
}

#[test]
fn what_a_device_cannot_tell_is_missing_and_the_rest_is_there() {
    let emulator = Emulator::builder().execution(Execution::Lazy).build();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();
    let stream = device.stream().unwrap();
    stream.busy(Duration::from_millis(1)).unwrap().wait().unwrap();
    emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
    assert!(stream.busy(Duration::from_millis(1)).and_then(|ticket| ticket.wait()).is_err());
    let trace = recording.stop().unwrap();
    assert!(trace.missing() > 0);
    assert!(on_device(&trace, "Stream::busy").len() <= 1, "{trace:?}");
}

/// Dropping a recording frees its events, without another use of the device.
#[test]
fn the_events_of_a_recording_go_with_it() {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let stream = device.stream().unwrap();
    stream.busy(Duration::ZERO).unwrap().wait().unwrap();
    let before = emulator.usage();
    for in_host_function in [false, true] {
        let recording = Recording::new();
        device.record(&recording).unwrap();
        for _ in 0..100 {
            stream.busy(Duration::ZERO).unwrap().wait().unwrap();
        }
        assert!(emulator.usage().events >= before.events + 200);
        if in_host_function {
            let (send, threads) = std::sync::mpsc::channel();
            let other = device.stream().unwrap();
            let dropped = other.launch_host(move || {
                drop(recording);
                send.send(()).unwrap();
            });
            dropped.unwrap().wait().unwrap();
            threads.recv().unwrap();
        } else {
            drop(recording);
        }
        let gone = || emulator.usage().events < before.events + 10;
        let patience = std::time::Instant::now();
        while !gone() && patience.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(gone(), "{:?}", emulator.usage());
    }
}

/// A recording does not query an event that is part of a capture: the query would invalidate the
/// capture.
#[test]
fn a_capture_is_not_disturbed() {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();
    let stream = device.stream().unwrap();
    let raw = RawStream { device: 0, handle: stream.as_raw().addr() };
    // SAFETY: the launch begins a capture of the stream, which this test ends. It enqueues nothing.
    let (_, ticket) =
        unsafe { stream.foreign(&[], &mut [], |_| emulator.begin_capture(raw).unwrap()).unwrap() };
    let trace = recording.stop().unwrap();
    assert_eq!((trace.missing(), on_device(&trace, "Stream::foreign").len()), (1, 0));
    emulator.end_capture(raw).expect("the capture is valid");
    drop(ticket);
}

/// The stream was found open. During a wait other code could begin to capture it.
#[test]
fn recorded_work_waits_for_nothing_before_it_is_enqueued() {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let stream = device.stream().unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();
    let waits = || emulator.calls(Call::EventSynchronize);
    let before = waits();
    stream.busy(Duration::from_millis(1)).unwrap();
    assert_eq!(waits(), before);
    let trace = recording.stop().unwrap();
    assert_eq!((trace.missing(), on_device(&trace, "Stream::busy").len()), (0, 1));
}

/// There the clock cannot be made: the first work is missing, and makes it.
#[test]
fn a_recording_may_begin_in_a_host_function() {
    let device = Device::of_emulator(&Emulator::new(), 0).unwrap();
    let stream = device.stream().unwrap();
    let recording = Arc::new(Recording::new());
    let (begun, recorded) = (Arc::clone(&recording), device.clone());
    let begin = move || recorded.record(&begun).unwrap();
    stream.launch_host(begin).unwrap().wait().unwrap();
    for _ in 0..3 {
        stream.busy(Duration::from_millis(1)).unwrap();
    }
    let trace = Arc::into_inner(recording).expect("the function is over").stop().unwrap();
    assert_eq!((trace.missing(), on_device(&trace, "Stream::busy").len()), (1, 2));
}

#[test]
fn json_has_every_span_and_names_the_tracks() {
    let device = Device::emulated().unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();
    let recorded = std::thread::Builder::new().name("a \"quoted\" name".into()).spawn({
        let device = device.clone();
        move || {
            let stream = device.stream().unwrap();
            stream.busy(Duration::from_micros(500)).unwrap().wait().unwrap();
        }
    });
    recorded.unwrap().join().unwrap();
    let trace = recording.stop().unwrap();
    let json: Value = serde_json::from_str(&trace.to_json()).expect("valid JSON");
    let events = json["traceEvents"].as_array().unwrap();
    let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(complete.len(), trace.spans().len());
    for (event, span) in complete.iter().zip(trace.spans()) {
        assert_eq!(event["name"], span.name);
        let start = event["ts"].as_f64().unwrap();
        assert!((start - span.start.as_secs_f64() * 1e6).abs() < 0.01, "{event}");
    }
    let names: BTreeSet<_> = events
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert!(names.contains("a \"quoted\" name") && names.contains("device 0"), "{names:?}");
}

#[test]
fn a_drawing_has_a_row_for_each_track_and_units_on_its_axis() {
    let device = Device::emulated().unwrap();
    let recording = Recording::new();
    device.record(&recording).unwrap();
    let stream = device.stream().unwrap();
    for _ in 0..3 {
        stream.busy(Duration::from_millis(2)).unwrap().wait().unwrap();
    }
    let svg = recording.stop().unwrap().to_svg();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    for part in ["device 0, stream ", ">Stream::busy</text>", " ms</text>", ">device</text>"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    let count = |what: &str| svg.matches(what).count();
    assert_eq!(count("<text"), count("</text>"));
    assert!(svg.contains("<rect class=\"p\""), "it has a paper: {svg}");
    assert_eq!(count("<title>"), count("</title>"));
    // An empty recording makes a drawing too.
    let empty = Recording::new().stop().unwrap().to_svg();
    assert!(empty.contains("viewBox") && empty.ends_with("</svg>\n"), "{empty}");
}
