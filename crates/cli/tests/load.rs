//! `pinlane load` on the emulated device.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{json, pinlane};

/// The data set that comes with the crate.
fn digits() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/digits.safetensors");
    file.to_str().unwrap().to_owned()
}

#[test]
fn every_tensor_arrives() {
    let file = digits();
    let load = ["load", "--device", "emulated", "--loads", "3", "--verify-all", &file, &file];
    let report = json(&load);
    assert_eq!(report["note"], "emulated device: says nothing about speed");
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), 2);
    for totals in files {
        assert_eq!(totals["loads"], 3);
        assert!(totals["tensors"].as_u64().unwrap() > 0);
        assert_eq!(totals["checksums_equal"], totals["tensors"]);
        assert_eq!(totals["downloaded_bit_exact"], totals["tensors"]);
    }
    let mapped = json(&["load", "--device", "emulated", "--mapped", "--verify-all", &file]);
    let totals = &mapped["files"][0];
    assert_eq!((&totals["mapped"], &files[0]["mapped"]), (&true.into(), &false.into()));
    assert_eq!(totals["downloaded_bit_exact"], totals["tensors"]);
    let text = pinlane(&load).stdout;
    for word in ["phases    device ", "verified", "checksum, bytes", "says nothing about speed"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
}

#[test]
fn what_is_no_safetensors_file_is_refused() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("load");
    fs::create_dir_all(&folder).unwrap();
    let short = folder.join("short.safetensors");
    fs::write(&short, &fs::read(digits()).unwrap()[..1000]).unwrap();
    for (file, message) in [
        (short.to_str().unwrap(), "fetch it again"),
        ("/nowhere/model.safetensors", "cannot read"),
        (folder.to_str().unwrap(), "not a regular file"),
    ] {
        let output = pinlane(&["load", "--device", "emulated", file]);
        assert_eq!(output.code, 1, "{file}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{file}");
        assert!(output.stderr.contains(message), "{file}: {}", output.stderr);
    }
}

#[test]
fn a_command_line_without_a_file_is_wrong() {
    for arguments in [
        &["load"][..],
        &["load", "--loads", "0", "file"],
        &["load", "--fast", "file"],
        &["load", "--direct", "--mapped", "file"],
    ] {
        let output = pinlane(arguments);
        assert_eq!(output.code, 2, "{arguments:?}: {}", output.stderr);
    }
}
