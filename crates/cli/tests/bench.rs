//! `pinlane bench` on the emulated device.

use std::fs;
use std::path::PathBuf;

use crate::run::{json, pinlane};

const LABEL: &str = "emulated device: says nothing about speed";
const CHARTS: [&str; 7] = ["up", "down", "both", "small", "scattered", "pool", "overlap"];

/// A folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn every_output_has_every_chart_and_the_label() {
    let folder = folder("bench");
    let csv = folder.join("points.csv");
    let plots = folder.join("plots");
    let (csv_name, plots_name) = (csv.to_str().unwrap(), plots.to_str().unwrap());
    let report = json(&[
        "bench", "--device", "emulated", "--quick", "--csv", csv_name, "--plots", plots_name,
    ]);
    assert_eq!((&report["emulated"], &report["note"]), (&true.into(), &LABEL.into()));
    let charts = report["charts"].as_array().unwrap();
    assert!(charts.iter().map(|chart| chart["id"].as_str().unwrap()).eq(CHARTS));
    for chart in charts {
        for series in chart["series"].as_array().unwrap() {
            let points = series["points"].as_array().unwrap();
            assert!(points.len() >= 2, "{chart}");
            assert!(points.iter().all(|point| point[1].as_f64().unwrap() > 0.0), "{chart}");
        }
    }
    assert!(charts[0]["ceiling"]["value"].as_f64().unwrap() > 0.0);

    let text = fs::read_to_string(csv).unwrap();
    assert!(text.lines().skip(1).all(|line| line.contains(LABEL)), "{text}");
    for chart in CHARTS {
        assert!(text.contains(&format!(",{chart},")), "no {chart} in {text}");
        let svg = fs::read_to_string(plots.join(format!("{chart}.svg"))).unwrap();
        assert!(svg.contains(LABEL), "{svg}");
        assert!(["GB/s<", "ns<", "us<"].iter().any(|unit| svg.contains(unit)), "{svg}");
        assert!(fs::read(plots.join(format!("{chart}.png"))).unwrap().starts_with(b"\x89PNG"));
    }
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let earlier = folder("compare").join("earlier.json");
    let arguments = ["bench", "--device", "emulated", "--quick", "--only", "up,pool"];
    let run = json(&arguments);
    fs::write(&earlier, run.to_string()).unwrap();
    let earlier = earlier.to_str().unwrap();
    let compared = json(&[&arguments[..], &["--compare", earlier]].concat());
    let points = run["charts"].as_array().unwrap().iter().flat_map(|chart| {
        chart["series"].as_array().unwrap().iter().map(|s| s["points"].as_array().unwrap().len())
    });
    assert_eq!(compared["compared"]["points"], points.sum::<usize>());
    let text = pinlane(&[&arguments[..], &["--compare", earlier]].concat()).stdout;
    assert!(text.contains("%)") && text.contains("in brackets: the change since"), "{text}");
    assert!(text.starts_with(&format!("Emulated device 0 ({LABEL})\n")), "{text}");
}

#[test]
fn what_is_no_earlier_run_is_refused_before_anything_is_measured() {
    let folder = folder("no-run");
    let other = folder.join("other.json");
    fs::write(&other, "{\"command\": \"doctor\"}").unwrap();
    let garbage = folder.join("garbage.json");
    fs::write(&garbage, "not a run").unwrap();
    for (file, message) in [
        (other, "not a run of `pinlane bench`"),
        (garbage, "not JSON"),
        (folder.join("missing.json"), "cannot read"),
    ] {
        let output = pinlane(&["bench", "--compare", file.to_str().unwrap()]);
        assert_eq!(output.code, 1, "{}", output.stderr);
        assert!(output.stderr.contains(message), "{}", output.stderr);
        assert!(output.stderr.contains("pinlane bench --json"), "{}", output.stderr);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let output = pinlane(&[
        "bench",
        "--device",
        "emulated",
        "--quick",
        "--only",
        "pool",
        "--csv",
        "/nowhere/points",
    ]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("/nowhere/points: cannot write"), "{}", output.stderr);
}
