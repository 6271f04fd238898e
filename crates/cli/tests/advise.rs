//! `pinlane advise` on the emulated device.

use crate::run::{json, pinlane};

fn advise(arguments: &[&str]) -> serde_json::Value {
    json(&[&["advise", "--device", "emulated"], arguments].concat())
}

#[test]
fn every_way_of_pageable_memory_is_predicted_and_measured() {
    for direction in ["up", "down"] {
        let report = advise(&["--count", "20", "--bytes", "4K", "--direction", direction]);
        assert_eq!(report["workload"]["direction"], direction);
        assert_eq!(report["workload"]["bytes"], 4096);
        assert_eq!(report["note"], "emulated device: says nothing about speed");
        let ways = report["ways"].as_array().unwrap();
        assert_eq!(ways.len(), 5, "{ways:?}");
        for way in ways {
            for time in ["predicted_seconds", "measured_seconds"] {
                let seconds = way[time].as_f64().unwrap();
                assert!(seconds > 0.0 && seconds < 60.0, "{way}");
            }
        }
        let seconds = |way: &serde_json::Value| way["measured_seconds"].as_f64().unwrap();
        let fastest = ways
            .iter()
            .filter(|way| !way["way"].as_str().unwrap().starts_with("kept"))
            .min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
            .unwrap();
        let batch = ways.iter().find(|way| way["way"] == "one batch").unwrap();
        let is_worth_it = seconds(batch) >= 1.05 * seconds(fastest);
        assert_eq!(report["best"], if is_worth_it { fastest } else { batch }["way"]);
    }
}

#[test]
fn page_locked_memory_has_other_ways_and_answers() {
    let report = advise(&["--bytes", "1M", "--memory", "page-locked", "--cores", "1"]);
    assert_eq!(report["ways"].as_array().unwrap().len(), 2);
    assert_eq!(report["workload"]["cores"], 1);
    let answer = |question: &str| {
        let answers = report["considerations"].as_array().unwrap();
        let found = answers.iter().find(|a| a["question"].as_str().unwrap().contains(question));
        found.unwrap_or_else(|| panic!("no {question} in {answers:?}"))["answer"].as_str().unwrap()
    };
    assert!(answer("page-locked?").starts_with("It is"));
    assert!(answer("cores").starts_with("None"));
    assert!(answer("non-blocking").starts_with("Yes"));
}

#[test]
fn a_large_workload_is_measured_in_part() {
    let report = advise(&["--count", "1000000", "--bytes", "64", "--memory", "page-locked"]);
    assert_eq!(report["measured_pieces"], 10_000);
    let text =
        pinlane(&["advise", "--device", "emulated", "--bytes", "64K", "--count", "3"]).stdout;
    assert!(text.contains("3 pieces of 64 KiB, 192 KiB in all, from pageable memory"), "{text}");
    assert!(text.contains("<- take this") && !text.contains("scaled"), "{text}");
}

#[test]
fn a_workload_that_makes_no_sense_is_refused() {
    for (arguments, code, message) in [
        (&["--bytes", "0"][..], 2, "such as 4096, 64K"),
        (&["--bytes", "4K", "--count", "0"], 2, "--count"),
        (&["--bytes", "4K", "--direction", "left"], 2, "left"),
        (&["--count", "1"], 2, "--bytes"),
        (&["--bytes", "900000G", "--count", "1000000"], 1, "too much"),
    ] {
        let output = pinlane(&[&["advise", "--device", "emulated"], arguments].concat());
        assert_eq!(output.code, code, "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{arguments:?}: {}", output.stderr);
    }
}
