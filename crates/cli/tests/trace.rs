//! `pinlane trace` on the emulated device.

use std::path::PathBuf;

use serde_json::Value;

use crate::run::{json, pinlane};

/// A path of this test's own.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pinlane-cli-{}-{name}", std::process::id()))
}

#[test]
fn a_pipeline_is_written_as_json_and_drawn() {
    let (out, svg) = (path("pipeline.json"), path("pipeline.svg"));
    let (out, svg) = (out.to_str().unwrap(), svg.to_str().unwrap());
    let report = json(&[
        "trace", "pipeline", "--device", "emulated", "--mib", "1", "--out", out, "--svg", svg,
    ]);
    assert_eq!((&report["emulated"], &report["missing"]), (&true.into(), &0.into()));
    assert_eq!(report["note"], "emulated device: says nothing about speed");
    let summary = &report["summary"];
    assert_eq!(summary["copies"], 8, "four up, four down: {summary}");
    assert_eq!(summary["bytes"], 8 << 20);
    assert_eq!(summary["kernels"], 4);
    assert!(summary["kernels_ms"].as_f64().unwrap() >= 3.9, "{summary}");

    let trace: Value = serde_json::from_str(&std::fs::read_to_string(out).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!((named("Stream::busy"), named("thread_name") > 3), (8, true), "enqueued and run");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    for file in [out, svg] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn copies_of_launches_count_once_each_by_their_directions() {
    let out = path("graph.json");
    let out = out.to_str().unwrap();
    let report = json(&["trace", "graph", "--device", "emulated", "--mib", "1", "--out", out]);
    let summary = &report["summary"];
    for (key, value) in [
        ("copies", 0),
        ("bytes", 0),
        ("launches", 4),
        ("launched_copies", 8),
        ("launched_bytes", 8 << 20),
        ("uploaded_bytes", 4 << 20),
        ("downloaded_bytes", 4 << 20),
        ("copied_bytes", 0),
        ("kernels", 0),
    ] {
        assert_eq!(summary[key], value, "{key}: {summary}");
    }
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(out).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let first = |event: &'_ Value| event["args"]["operations"][0].as_str().map(str::to_owned);
    let uploads: Vec<String> = events.iter().filter_map(first).collect();
    assert_eq!(uploads.len(), 4);
    assert!(uploads[0] != uploads[1] && uploads[0] == uploads[2], "two inputs: {uploads:?}");
    std::fs::remove_file(out).unwrap();

    let text = pinlane(&["trace", "graph", "--device", "emulated", "--mib", "1"]).stdout;
    assert!(text.contains("graphs   4 launches, in "), "{text}");
    assert!(text.contains("bytes    4.2 MB uploaded, 4.2 MB downloaded, 0.0 MB copied"), "{text}");
    let text = pinlane(&["trace", "pipeline", "--device", "emulated", "--mib", "1"]).stdout;
    assert!(!text.contains("graphs "), "{text}");
    assert!(text.contains("bytes    4.2 MB uploaded, 4.2 MB downloaded, 0.0 MB copied"), "{text}");
}

#[test]
fn copies_come_from_either_kind_of_memory() {
    for (memory, staged) in [("pageable", true), ("page-locked", false)] {
        for streams in ["1", "2"] {
            let report = json(&[
                "trace",
                "copies",
                "--device",
                "emulated",
                "--memory",
                memory,
                "--streams",
                streams,
                "--mib",
                "2",
            ]);
            let summary = &report["summary"];
            assert_eq!(summary["bytes"], 8 << 20, "{memory}, {streams}");
            assert_eq!(summary["stage_ms"].as_f64().unwrap() > 0.0, staged, "{memory}, {streams}");
        }
    }
}

#[test]
fn a_file_is_uploaded() {
    let file = path("file.bin");
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    let name = file.to_str().unwrap();
    let report = json(&["trace", "load", "--file", name, "--device", "emulated"]);
    assert_eq!(report["summary"]["bytes"], 3 << 20);
    std::fs::remove_file(&file).unwrap();

    let gone = pinlane(&["trace", "load", "--file", name, "--device", "emulated"]);
    assert_eq!(gone.code, 1);
    assert!(gone.stderr.contains(name), "{}", gone.stderr);
    assert_eq!(pinlane(&["trace", "load"]).code, 2);
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let output = pinlane(&[
        "trace",
        "copies",
        "--mib",
        "1",
        "--device",
        "emulated",
        "--out",
        "/nowhere/trace.json",
    ]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("/nowhere/trace.json"), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1);
}
