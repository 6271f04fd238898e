//! Recordings of graphs: what each launch consists of.

use pinlane::driver::{Driver, RawStream};
use pinlane::emulated::{CaptureMode, Execution};
use pinlane::graph::Key;
use pinlane::trace::{Action, Kind, Launch, Operation, Recording, Trace};
use pinlane::{DeviceBuf, Graph, PinnedBuf};
use serde_json::{Value, json};

use crate::common::support::{BLOCK, LEN, Rig, raw};

/// What the device's spans with this name launched.
fn launches<'t>(trace: &'t Trace, name: &str) -> Vec<&'t Launch> {
    let all = trace.spans().iter().filter(|span| span.kind == Kind::OnDevice && span.name == name);
    all.map(|span| &**span.launch.as_ref().expect("a launch")).collect()
}

/// Of each operation: the action, the branch, the bytes, and the buffer and the address of each
/// operand, with whether it is written.
type Seen = (Action, u32, usize, Vec<(usize, u64, bool)>);

fn seen(operation: &Operation) -> Seen {
    let operands = operation.operands.iter();
    let operands = operands.map(|it| (it.buffer, it.address, it.is_written)).collect();
    (operation.action, operation.branch, operation.bytes, operands)
}

fn totals(launch: &Launch) -> Vec<(Action, usize, usize)> {
    launch.totals.iter().map(|total| (total.action, total.count, total.bytes)).collect()
}

/// The arguments of the device's spans with this name, in the JSON.
fn arguments(trace: &Trace, name: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(&trace.to_json()).expect("valid JSON");
    let events = json["traceEvents"].as_array().unwrap();
    let is_it = |event: &&Value| event["name"] == name && event["cat"] == "device";
    events.iter().filter(is_it).map(|event| event["args"].clone()).collect()
}

fn address(host: &PinnedBuf<u32>) -> u64 {
    host.as_ptr().addr() as u64
}

/// A fill, an upload of a half, and foreign work that copies; on another branch a download.
struct Step {
    graph: Graph,
    input: Key<PinnedBuf<u32>>,
    output: Key<PinnedBuf<u32>>,
    /// The device's buffers, numbers 2 to 4.
    gpus: [u64; 3],
}

fn step(rig: &Rig) -> Step {
    let mut capture = rig.device.capture().unwrap();
    let [input, output] = [1, 0].map(|value| capture.own(rig.host(value)));
    let gpus: [Key<DeviceBuf<u32>>; 3] = [(); 3].map(|()| capture.own(rig.gpu()));
    let addresses = gpus.map(|key| capture.get(key).unwrap().as_device_ptr());
    let [filled, copied, result] = gpus;
    capture.fill(filled, 7).unwrap();
    capture.upload(input.slice(..LEN / 2), filled.slice(LEN / 2..)).unwrap();
    let (driver, [from, to, _]): (&dyn Driver, _) = (&rig.emulator, addresses);
    let uses = ([filled.reading()], [copied.writing()]);
    // SAFETY: the work is a copy on the given stream, of the named buffers.
    let called = unsafe {
        capture.foreign(&uses.0, &uses.1, |stream| {
            let stream = RawStream { device: 0, handle: stream.addr() };
            driver.copy_d2d(stream, to, from, BLOCK)
        })
    };
    called.unwrap().unwrap();
    capture.branch(3).unwrap();
    capture.download(result, output).unwrap();
    capture.download(result.slice(..0), output.slice(..0)).unwrap(); // nothing
    Step { graph: capture.finish().unwrap(), input, output, gpus: addresses }
}

#[test]
fn a_launch_says_what_it_consists_of_and_follows_a_rebound_buffer() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let rig = Rig::new(execution, 0, 3);
        let Step { mut graph, input, output, gpus } = step(&rig);
        graph.launch(&rig.stream).unwrap(); // before anybody records
        let recording = Recording::new();
        rig.device.record(&recording).unwrap();
        let before = address(graph.get(input).unwrap());
        let to = address(graph.get(output).unwrap());
        graph.launch(&rig.stream).unwrap();
        graph.launch(&rig.stream).unwrap();
        let fresh = rig.host(2);
        let after = address(&fresh);
        let old = graph.rebind(input, fresh).unwrap();
        graph.launch(&rig.stream).unwrap();
        let trace = recording.stop().unwrap();

        assert_eq!(trace.missing(), 0);
        let all = launches(&trace, "Graph::launch");
        let expected = |from: u64| -> Vec<Seen> {
            let [filled, copied, result] = gpus;
            let middle = filled + BLOCK as u64 / 2;
            vec![
                (Action::Fill, 0, BLOCK, vec![(2, filled, true)]),
                (Action::Upload, 0, BLOCK / 2, vec![(0, from, false), (2, middle, true)]),
                (Action::Foreign, 0, BLOCK, vec![(2, filled, false), (3, copied, true)]),
                (Action::Download, 3, BLOCK, vec![(1, to, true), (4, result, false)]),
            ]
        };
        assert_ne!(before, after);
        assert_eq!(all.len(), 3);
        for (launch, from) in all.iter().zip([before, before, after]) {
            assert_eq!(launch.operations.iter().map(seen).collect::<Vec<_>>(), expected(from));
            let upload = &launch.operations[1].operands;
            assert_eq!((upload[1].offset, upload[1].bytes), (BLOCK / 2, BLOCK / 2));
            let counts = [(Action::Fill, BLOCK), (Action::Upload, BLOCK / 2)];
            let rest = [(Action::Foreign, BLOCK), (Action::Download, BLOCK)];
            let counts = [counts, rest].concat().into_iter().map(|(what, bytes)| (what, 1, bytes));
            assert_eq!(totals(launch), counts.collect::<Vec<_>>());
            assert_eq!(launch.left_out, 0);
        }

        let args = &arguments(&trace, "Graph::launch")[2];
        assert_eq!(args["bytes"], 7 * BLOCK / 2);
        assert_eq!(args["upload"], json!({ "count": 1, "bytes": BLOCK / 2 }));
        let [filled, _, result] = gpus;
        let middle = filled + BLOCK as u64 / 2;
        let lines = &args["operations"];
        let upload = format!("from buffer 0 ({after:#x}), to buffer 2+2048 ({middle:#x})");
        assert_eq!(lines[1], format!("branch 0: upload, 2048 bytes, {upload}"));
        let download = format!("from buffer 4 ({result:#x}), to buffer 1 ({to:#x})");
        assert_eq!(lines[3], format!("branch 3: download, 4096 bytes, {download}"));
        assert_eq!((lines.as_array().unwrap().len(), args.get("left_out")), (4, None));
        assert!(trace.to_svg().contains("\n1 x upload, 2048 bytes\n"), "{}", trace.to_svg());
        drop((graph, old));
        rig.assert_nothing_is_left();
    }
}

/// Nothing but launches has such arguments, and a thread's span has them neither.
#[test]
fn only_the_device_has_the_parts_of_a_launch() {
    let rig = Rig::new(Execution::Eager, 0, 2);
    let mut graph = step(&rig).graph;
    let mut gpu = rig.gpu();
    let recording = Recording::new();
    rig.device.record(&recording).unwrap();
    rig.stream.fill(&mut gpu, 1).unwrap();
    graph.launch(&rig.stream).unwrap();
    let trace = recording.stop().unwrap();
    let described: Vec<_> = trace.spans().iter().filter(|span| span.launch.is_some()).collect();
    assert_eq!(described.len(), 1);
    assert_eq!((described[0].kind, described[0].name), (Kind::OnDevice, "Graph::launch"));
    assert_eq!(trace.spans().iter().filter(|span| span.name == "Graph::launch").count(), 2);
}

#[test]
fn a_large_graph_is_cut_and_its_totals_are_not() {
    const COUNT: usize = 1000;
    let rig = Rig::new(Execution::Eager, 0, 1);
    let mut capture = rig.device.capture().unwrap();
    let (host, gpu) = (capture.own(rig.host(1)), capture.own(rig.gpu()));
    for at in 0..COUNT {
        capture.branch(at as u32 % 2).unwrap();
        capture.upload(host.slice(at..=at), gpu.slice(at..=at)).unwrap();
    }
    // SAFETY: there is no work.
    unsafe { capture.foreign(&[gpu.reading(); 11], &[gpu.writing()], |_| ()) }.unwrap();
    let mut graph = capture.finish().unwrap();
    let recording = Recording::new();
    rig.device.record(&recording).unwrap();
    graph.launch(&rig.stream).unwrap();
    let trace = recording.stop().unwrap();
    let launch = launches(&trace, "Graph::launch")[0];
    assert_eq!((launch.operations.len(), launch.left_out), (100, COUNT + 1 - 100));
    assert_eq!(totals(launch), [(Action::Upload, COUNT, 4 * COUNT), (Action::Foreign, 1, BLOCK)]);
    let args = &arguments(&trace, "Graph::launch")[0];
    assert_eq!(args["operations"].as_array().unwrap().len(), 100);
    assert_eq!((&args["left_out"], &args["upload"]["count"]), (&json!(901), &json!(COUNT)));
}

/// A line stays short, however many buffers foreign work names.
#[test]
fn a_line_names_a_few_buffers_and_counts_the_rest() {
    let rig = Rig::new(Execution::Eager, 0, 1);
    let mut capture = rig.device.capture().unwrap();
    let [gpu, last] = [(); 2].map(|()| capture.own(rig.gpu()));
    // SAFETY: there is no work.
    unsafe { capture.foreign(&[gpu.reading(); 11], &[last.writing()], |_| ()) }.unwrap();
    let mut graph = capture.finish().unwrap();
    let recording = Recording::new();
    rig.device.record(&recording).unwrap();
    graph.launch(&rig.stream).unwrap();
    let trace = recording.stop().unwrap();
    let line = launches(&trace, "Graph::launch")[0].operations[0].to_string();
    assert!(line.starts_with("branch 0: foreign, 4096 bytes, from buffer 0 (0x"), "{line}");
    assert!(line.ends_with("), and 4 more") && line.matches("from buffer 0").count() == 8);
}

/// A graph that other code launches.
#[test]
fn a_launch_by_other_code_says_what_it_consists_of() {
    let rig = Rig::new(Execution::Lazy, 0, 1);
    let stream = rig.device.stream().unwrap();
    rig.emulator.stream_begin_capture(raw(&stream), CaptureMode::Global).unwrap();
    // SAFETY: the graph of the other code is destroyed below, before ours is dropped, and is
    // launched by `launch_foreign` only.
    let mut capture = unsafe { stream.join_capture() }.unwrap();
    let (input, gpu) = (capture.own(rig.host(1)), capture.own(rig.gpu()));
    capture.upload(input, gpu).unwrap();
    let mut ours = capture.finish().unwrap();
    let graph = rig.emulator.stream_end_capture(raw(&stream)).unwrap();
    let executable = rig.emulator.graph_instantiate(graph, false).unwrap();
    let recording = Recording::new();
    rig.device.record(&recording).unwrap();
    // SAFETY: the closure launches the graph on the given stream, and nothing else.
    let launched = unsafe {
        ours.launch_foreign(&rig.stream, |handle| {
            rig.emulator.graph_launch(executable, RawStream { device: 0, handle: handle.addr() })
        })
    };
    launched.unwrap().0.unwrap();
    let trace = recording.stop().unwrap();
    let launch = launches(&trace, "Graph::launch_foreign")[0];
    assert_eq!(totals(launch), [(Action::Upload, 1, BLOCK)]);
    rig.stream.synchronize().unwrap();
    rig.emulator.graph_destroy(executable).unwrap();
    rig.emulator.graph_destroy(graph).unwrap();
    drop(ours);
}
