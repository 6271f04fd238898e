//! The example `load_safetensors`, run like its users run it: with arguments, to a report or an
//! error.
//!
//! The example's `main.rs` is compiled into this test, so that a test cannot meet a stale binary.

#[allow(dead_code)] // `main`
#[path = "../../examples/load_safetensors/main.rs"]
mod example;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::{Value, json};

/// Runs the example on the device that `PINLANE_TEST_DEVICE` names. Returns its report, or its exit
/// code and message.
fn run(arguments: &[&str]) -> Result<String, (u8, String)> {
    let device = match std::env::var("PINLANE_TEST_DEVICE").as_deref() {
        Err(_) | Ok("emulated") => "emulated",
        Ok("cuda") => "0",
        Ok(other) => panic!("PINLANE_TEST_DEVICE={other}: set it to emulated or cuda"),
    };
    let arguments =
        ["--device", device].into_iter().chain(arguments.iter().copied()).map(OsString::from);
    let mut out = Vec::new();
    match example::run(arguments, &digits_file(), &mut out, &ProgressBar::hidden()) {
        Ok(()) => Ok(String::from_utf8(out).expect("the report is text")),
        Err(error) => {
            assert!(out.is_empty(), "no report beside an error");
            Err((error.exit_code(), error.to_string()))
        }
    }
}

/// A file in the temporary folder, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("pinlane-load-{}-{name}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn with(name: &str, contents: &[u8]) -> Scratch {
        let file = Scratch::new(name);
        std::fs::write(&file.0, contents).expect("the temporary folder takes files");
        file
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file_of(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// A file of U8 tensors of these lengths, whose bytes have no short period.
fn file_of_tensors(lengths: &[usize]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (index, &length) in lengths.iter().enumerate() {
        let info = json!({"dtype": "U8", "shape": [length], "data_offsets": [end, end + length]});
        header.insert(format!("t{index}"), info);
        end += length;
    }
    let data: Vec<u8> = (0..end as u64).map(|i| (i * i % 65_521 % 251) as u8).collect();
    file_of(&Value::Object(header).to_string(), &data)
}

/// The file in the project's folder, or in the one where the program runs.
fn digits_file() -> PathBuf {
    let tests = std::env::var_os("CARGO_MANIFEST_DIR");
    let project = tests.map(|folder| Path::new(&folder).join("..")).unwrap_or_default();
    project.join("examples/data/digits.safetensors")
}

fn digits() -> Vec<u8> {
    std::fs::read(digits_file()).expect("checked in")
}

/// The cells of the row that begins with `tensor`.
fn row(report: &str, tensor: &str) -> String {
    let mut lines = report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let cells = lines.find(|cells| cells.first() == Some(&tensor));
    let cells = cells.unwrap_or_else(|| panic!("no row {tensor} in\n{report}"));
    let verified = cells.iter().position(|cell| cell.starts_with("checksum")).expect("verified");
    format!("{} | {}", cells[..verified].join(" "), cells[verified..].join(" "))
}

#[test]
fn without_arguments_the_digits_load() {
    let report = run(&[]).expect("the digits load");
    for (tensor, expected) in [
        ("test.labels", "test.labels I64 [360] 2880 | checksum, bytes"),
        ("train.labels", "train.labels I64 [1437] 11496 | checksum"),
        ("pixel.deviation", "pixel.deviation F32 [8, 8] 256 | checksum"),
        ("pixel.mean", "pixel.mean F32 [8, 8] 256 | checksum"),
        ("test.images", "test.images F32 [360, 8, 8] 92160 | checksum"),
        ("train.images", "train.images F32 [1437, 8, 8] 367872 | checksum, bytes"),
    ] {
        assert_eq!(row(&report, tensor), expected);
    }
    assert!(report.contains("loaded    6 tensors, 474920 bytes in "), "{report}");
    assert!(
        report.contains("verified  6 checksums equal, 2 tensors downloaded bit-exact"),
        "{report}"
    );
}

#[test]
fn the_digits_are_what_their_readme_says() {
    let file = digits();
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("well-formed");
    let floats = |name: &str| -> Vec<f32> {
        let (values, rest) = tensors.tensor(name).expect(name).data().as_chunks::<4>();
        assert!(rest.is_empty());
        values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    for name in ["train.labels", "test.labels"] {
        let (labels, _) = tensors.tensor(name).expect(name).data().as_chunks::<8>();
        assert!(labels.iter().all(|label| i64::from_le_bytes(*label) < 10), "{name}");
    }
    let train = floats("train.images");
    for image in [&train, &floats("test.images")] {
        assert!(image.iter().all(|&p| (0.0..=1.0).contains(&p) && (p * 16.0).fract() == 0.0));
    }
    for (at, mean) in floats("pixel.mean").into_iter().enumerate() {
        let pixels: Vec<f64> = train.iter().skip(at).step_by(64).copied().map(f64::from).collect();
        let expected = pixels.iter().sum::<f64>() / pixels.len() as f64;
        assert!((f64::from(mean) - expected).abs() < 1e-7, "pixel {at}");
    }
}

/// Lengths around the sizes of slots and blocks, a length of 0, and a tensor of many slots.
/// `--verify-all` compares each byte with the file.
#[test]
fn small_slots_and_small_rings_are_bit_exact() {
    let lengths = [1, 0, 255, 256, 257, 100_003, 0, 4096, 70_000, 3];
    let file = Scratch::with("slots", &file_of_tensors(&lengths));
    for options in [
        &["--slot-bytes", "4096", "--ring-bytes", "8192"][..],
        &["--slot-bytes", "4096", "--ring-bytes", "8192", "--threads", "1", "--loads", "3"],
        &["--slot-bytes", "32768", "--threads", "5"],
        &["--slot-bytes", "65536", "--direct"],
        &["--mapped", "--loads", "3"],
        &["--loads", "1"],
    ] {
        let arguments = [options, &["--verify-all", file.path()]].concat();
        let report = match run(&arguments) {
            Ok(report) => report,
            Err((1, error)) if error.contains("its file system refuses O_DIRECT") => continue,
            Err(error) => panic!("{options:?}: {error:?}"),
        };
        assert!(report.contains("10 checksums equal, 10 tensors downloaded bit-exact"), "{report}");
        assert_eq!(row(&report, "t1"), "t1 U8 [0] 0 | checksum, bytes");
        assert_eq!(row(&report, "t5"), "t5 U8 [100003] 100003 | checksum, bytes");
        let once = options == ["--loads", "1"];
        assert_eq!(report.contains("\nagain     "), !once, "{report}");
    }
}

#[test]
fn the_totals_are_written_as_json() {
    let file = Scratch::with("totals", &file_of_tensors(&[1 << 20, 1 << 18]));
    let json = Scratch::new("totals.json");
    run(&["--loads", "3", "--json", json.path(), file.path()]).expect("it loads");
    let text = std::fs::read_to_string(&json.0).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["tensors"], 2);
    assert_eq!(report["bytes"], (1 << 20) + (1 << 18));
    assert_eq!(report["loads"], 3);
    assert_eq!(report["direct"], false);
    assert_eq!(report["file"], file.path());
    assert!(report["device"].as_str().is_some_and(|name| !name.is_empty()));
    let seconds = |name: &str| report[name].as_f64().filter(|&s| s > 0.0).expect(name);
    assert!(seconds("first_load_seconds") > seconds("allocation_seconds"));
    for name in ["first_load_gb_per_s", "load_seconds", "load_gb_per_s", "verify_seconds"] {
        seconds(name);
    }
    assert_eq!(report["checksums_equal"], 2);
}

#[test]
fn a_ring_that_is_none_is_a_clear_error() {
    let (code, message) =
        run(&["--slot-bytes", "4096", "--ring-bytes", "8191"]).expect_err("one slot");
    assert_eq!(code, 1);
    assert!(message.starts_with("Device::set_staging: "), "{message}");
}

/// The memory that is page-locked does not grow with the file.
#[test]
fn the_ring_stays_within_its_budget() {
    use example::load::{Reading, load};
    use example::tensor_file::TensorFile;
    let file = Scratch::with("budget", &file_of_tensors(&[1 << 20, 1 << 18]));
    let emulator = pinlane::emulated::Emulator::new();
    let device = pinlane::Device::of_emulator(&emulator, 0).expect("an emulated device");
    let staging =
        pinlane::staging::Staging::new().ring_bytes(65_536).slot_bytes(8192).first_bytes(1024);
    device.set_staging(staging).expect("nothing copied yet");
    let stream = device.stream().expect("a stream");
    let opened = TensorFile::open(&file.0).expect("well-formed");
    let loaded = load(&opened, Reading::Cached, &device, &stream, 2).expect("it loads");
    assert!((8192..=65_536).contains(&emulator.usage().host_bytes), "{emulator:?}");
    assert_eq!(emulator.usage().device_blocks, 1);
    assert_eq!(loaded.again.len(), 1);
}

#[test]
fn a_file_without_tensors_and_one_without_bytes_load() {
    for (header, tensors) in [
        ("{}", "0 tensors, 0 bytes"),
        (r#"{"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}}"#, "1 tensors, 0 bytes"),
    ] {
        let file = Scratch::with(&format!("none-{}", header.len()), &file_of(header, &[]));
        let report = run(&[file.path()]).expect(header);
        assert!(report.contains(tensors), "{report}");
    }
}

/// The error is one line that names the file, the cause and the remedy, with exit code 1.
#[test]
fn a_bad_file_is_a_clear_error() {
    let good = digits();
    let one = |shape: &str, end: usize| {
        format!(r#"{{"a":{{"dtype":"U8","shape":{shape},"data_offsets":[0,{end}]}}}}"#)
    };
    let longer = [&good[..], b"12345"].concat();
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("empty", vec![], "0 bytes: too short to be a safetensors file; fetch it again"),
        ("stub", good[..7].into(), "7 bytes: too short to be a safetensors file; fetch it again"),
        ("cut-header", good[..100].into(), "truncated: a header of "),
        (
            "cut-data",
            good[..good.len() - 1].into(),
            "1 bytes too short: the header promises 474920",
        ),
        ("longer", longer, "5 bytes too long: the header promises 474920"),
        (
            "text",
            b"This is a letter to a friend, and no tensors at all.".into(),
            "claims a header of 2338328219631577172 bytes, but the format allows 100000000; is it",
        ),
        (
            "oversized",
            [&100_000_001u64.to_le_bytes()[..], &[b' '; 64]].concat(),
            "claims a header of 100000001 bytes, but the format allows 100000000; is it",
        ),
        ("json", file_of("{\"a\":", &[]), "the header is corrupt: EOF while parsing"),
        ("utf8", file_of("{\"a\u{1b}\n", &[]), "the header is corrupt: "),
        ("binary", [&[4, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 4]].concat(), "the header is corrupt: "),
        (
            "dtype",
            file_of(&one("[4]", 4).replace("U8", "U7"), &[0; 4]),
            ": the tensor `a` has the unknown dtype `U7`; build this loader with a newer crate",
        ),
        ("shape", file_of(&one("[5]", 4), &[0; 4]), "the header is corrupt: invalid shape"),
        (
            "overflow",
            file_of(&one("[4294967296,4294967296]", 4), &[0; 4]),
            "the header is corrupt: ",
        ),
        (
            "gap",
            file_of(&one("[4]", 4).replace("[0,4]", "[1,5]"), &[0; 5]),
            "the header is corrupt: invalid offset for tensor `a`",
        ),
    ];
    for (name, contents, expected) in cases {
        let file = Scratch::with(name, contents);
        let (code, message) = run(&[file.path()]).expect_err(name);
        assert_eq!(code, 1, "{name}");
        assert!(message.starts_with(&format!("{}: ", file.path())), "{name}: {message}");
        assert!(message.contains(expected), "{name}: {message}");
        assert!(message.contains("; "), "{name} names no remedy: {message}");
        assert!(!message.chars().any(char::is_control), "{name} is not one line: {message:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_a_clear_error() {
    let missing = Scratch::new("missing");
    let (code, message) = run(&[missing.path()]).expect_err("no file");
    assert_eq!(code, 1);
    let expected = format!("{}: cannot read: No such file or directory", missing.path());
    assert!(message.starts_with(&expected) && message.ends_with("; check the path"), "{message}");

    let folder = std::env::temp_dir();
    let (code, message) = run(&[folder.to_str().expect("a plain name")]).expect_err("a folder");
    assert_eq!(code, 1);
    assert!(message.ends_with("not a regular file; name a .safetensors file"), "{message}");
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let file = Scratch::with("no-report", &file_of_tensors(&[8]));
    let nowhere = Scratch::new("no-folder");
    let path = format!("{}/report.json", nowhere.path());
    let arguments = ["--device", "emulated", "--json", &path, file.path()].map(OsString::from);
    let error = example::run(
        arguments.into_iter(),
        &digits_file(),
        &mut Vec::new(),
        &ProgressBar::hidden(),
    )
    .expect_err("no such folder");
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().starts_with(&format!("{path}: cannot write: ")), "{error}");
}

#[test]
fn a_wrong_command_line_gets_the_usage() {
    for (arguments, expected) in [
        (&["--frobnicate"][..], "unknown option --frobnicate\n"),
        (&["--loads"], "--loads needs a value\n"),
        (&["--loads", "0"], "--loads 0: give a number from 1 to 1000\n"),
        (&["--threads", "many"], "--threads many: give a number"),
        (&["--slot-bytes", "-1"], "--slot-bytes -1: give a number"),
        (&["--device", "-1"], "--device -1: give a GPU's number, or emulated\n"),
        (&["a", "b"], "one file at a time: b is too much\n"),
    ] {
        let (code, message) = run(arguments).expect_err(expected);
        assert_eq!(code, 2, "{message}");
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains("usage: load_safetensors [OPTIONS] [FILE]"), "{message}");
    }
    let help = run(&["--help"]).expect("help is no error");
    assert!(help.contains("usage: load_safetensors [OPTIONS] [FILE]"));
}

/// The run verifies the device's memory: it fails when the file differs from it.
#[test]
fn a_device_that_disagrees_with_the_file_is_found() {
    use example::load::{Reading, load};
    use example::tensor_file::TensorFile;
    use example::verify::verify;
    let contents = file_of_tensors(&[5000; 10]);
    let device = pinlane::Device::emulated().expect("an emulated device");
    let stream = device.stream().expect("a stream");
    for (tensor, found) in [(8, "byte 4999 differs"), (9, "its checksum is ")] {
        let file = Scratch::with(&format!("differs-{tensor}"), &contents);
        let opened = TensorFile::open(&file.0).expect("well-formed");
        let loaded = load(&opened, Reading::Cached, &device, &stream, 1).expect("it loads");
        let mut changed = contents.clone();
        let last = contents.len() - (9 - tensor) * 5000 - 1;
        changed[last] ^= 1;
        std::fs::write(&file.0, changed).expect("the temporary folder takes files");
        let error = verify(&opened, &loaded, &device, &stream, false, |_| {})
            .err()
            .expect("the file has changed");
        let expected =
            format!("tensor t{tensor} (5000 bytes) on the device is not the one in the file");
        assert!(error.to_string().starts_with(&format!("{expected}: {found}")), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
}

/// The columns of a report have a limited width, and names of tensors have none.
#[test]
fn long_names_and_many_dimensions_are_cut() {
    let name = "n".repeat(5_000_000);
    let shape = vec![1; 100_001];
    let header = json!({
        &name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "deep": {"dtype": "U8", "shape": shape, "data_offsets": [1, 2]},
    });
    let file = Scratch::with("long", &file_of(&header.to_string(), &[3, 4]));
    let report = run(&[file.path()]).expect("a well-formed file");
    assert!(report.len() < 2000, "{} bytes", report.len());
    let cut = format!("{}…", "n".repeat(100));
    assert_eq!(row(&report, &cut), format!("{cut} U8 [1] 1 | checksum, bytes"));
    let shape = "[1, 1, 1, 1, 1, 1, 1, 1, … 100001 in all]";
    assert_eq!(row(&report, "deep"), format!("deep U8 {shape} 1 | checksum"));
}

#[test]
fn a_pipe_is_no_file_and_nobody_waits_for_a_writer() {
    let pipe = Scratch::new("pipe");
    let name = std::ffi::CString::new(pipe.path()).expect("no NUL");
    // SAFETY: a NUL-terminated string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "the folder takes pipes");
    for path in [pipe.path(), "/dev/zero"] {
        let (code, message) = run(&[path]).expect_err("no file");
        assert_eq!(code, 1);
        assert!(message.contains("not a regular file; name a .safetensors file"), "{message}");
    }
}
