//! `pinlane doctor` on the emulated device.

use crate::run::{json, pinlane};

#[test]
fn no_gpu_is_normal() {
    let report = json(&["doctor", "--device", "emulated"]);
    assert_eq!(report["command"], "doctor");
    assert_eq!(report["emulated"], true);
    assert_eq!(report["wrong"], 0);
    let findings = report["findings"].as_array().unwrap();
    let named = |name: &str| {
        let found = findings.iter().find(|finding| finding["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {findings:?}"))
    };
    for name in ["kernel", "processor", "memory", "memlock", "build", "driver"] {
        assert_ne!(named(name)["found"], "", "{name}");
    }
    let emulated = named("emulated device");
    assert_eq!(emulated["state"], "ok");
    assert!(emulated["found"].as_str().unwrap().contains("says nothing about speed"));
    assert!(emulated["figures"]["up_gb_per_s"].as_f64().unwrap() > 0.0);
}

/// What a build without CUDA lacks is said once.
#[test]
fn a_build_without_cuda_says_so_once() {
    let report = json(&["doctor"]);
    let findings = report["findings"].as_array().unwrap();
    let found = |name: &str| findings.iter().find(|finding| finding["name"] == name);
    let has_cuda = found("build").unwrap()["state"] == "ok";
    let says_so = |finding: &&serde_json::Value| {
        ["found", "remedy"].iter().any(|part| {
            let text = finding[part].as_str().unwrap_or_default();
            text.contains("PINLANE_CUDA")
        })
    };
    if !has_cuda {
        let names: Vec<_> = findings.iter().filter(says_so).map(|it| &it["name"]).collect();
        assert_eq!(names, ["build"]);
        assert!(found("gpu").is_none() && found("emulated device").is_some(), "{findings:?}");
    }
}

#[test]
fn every_note_has_a_remedy() {
    let report = json(&["doctor", "--device", "emulated"]);
    for finding in report["findings"].as_array().unwrap() {
        assert_eq!(finding["state"] == "ok", finding["remedy"].is_null(), "{finding}");
    }
}

#[test]
fn the_text_fits_a_page_and_has_no_colours_in_a_pipe() {
    let output = pinlane(&["doctor", "--device", "emulated"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stdout.ends_with("worth a note\n"), "{}", output.stdout);
    assert!(!output.stdout.contains('\x1b'));
    assert!(output.stdout.contains("kernel"));
}
