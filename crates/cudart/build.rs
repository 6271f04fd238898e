//! Writes what is too dull to write by hand: a stub for every name that NVIDIA's runtime and driver
//! export and this library does not have, and the names of the errors.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=exports");
    let folder = env::var("OUT_DIR").expect("cargo sets it");
    let write = |name: &str, text: String| {
        fs::write(Path::new(&folder).join(name), text).expect("the build's folder can be written");
    };
    write("stubs.rs", stubs());
    write("entry_points.rs", entry_points());
    write("errors.rs", errors("exports/errors.txt", "cudaError"));
    write("driver_errors.rs", errors("exports/driver-errors.txt", "CUDA_ERROR_"));
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The functions of `src` with C's names: `fn name(`, `fn name / other(` and `fn [name, ...](`.
fn implemented() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let files = ["src", "src/driver"].map(|folder| fs::read_dir(folder).expect("is there"));
    for file in files.into_iter().flatten() {
        let path = file.expect("can be listed").path();
        if path.is_dir() {
            continue;
        }
        let text = read(path.to_str().expect("is ASCII"));
        for line in text.split("fn ").skip(1) {
            let head = line.split('(').next().unwrap_or_default();
            let all = head.split(['/', ',', '[', ']']).map(str::trim);
            names.extend(all.filter(|name| is_of_cuda(name)).map(str::to_owned));
        }
    }
    names
}

fn is_of_cuda(name: &str) -> bool {
    let word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let rest = name.trim_start_matches('_').strip_prefix("cu").unwrap_or_default();
    word && (rest.starts_with("da") || rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn stubs() -> String {
    let mut wanted = BTreeSet::new();
    for list in ["exports/12.txt", "exports/13.txt", "exports/driver.txt"] {
        wanted.extend(read(list).lines().map(str::to_owned));
    }
    let mut text = String::new();
    for name in wanted.difference(&implemented()) {
        writeln!(text, "stub!({name});").expect("a string grows");
    }
    text
}

/// `(name, version, has a stream of the thread, exported name)` for each name of the driver that
/// programs ask for, with the version of CUDA since which the name means this export. Names without
/// a version are not found.
fn entry_points() -> String {
    let versions = read("exports/driver-versions.txt");
    let version_of = |name: &str| {
        let mut lines = versions.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(known, _)| *known == name).map(|(_, version)| version)
    };
    let mut text = String::from("&[\n");
    for name in read("exports/driver.txt").lines() {
        let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let per_thread = plain != name;
        let base = without_version(plain);
        if let Some(version) = version_of(plain) {
            let row = format!("(\"{base}\", {version}, {per_thread}, c\"{name}\"),");
            writeln!(text, "{row}").expect("a string grows");
        }
    }
    text + "]"
}

/// `cuMemAlloc_v2` as `cuMemAlloc`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, number)) if number.chars().all(|c| c.is_ascii_digit()) => base,
        _ => name,
    }
}

/// `(code, name, what it says)`, both ended by NUL, in the order of the codes.
fn errors(list: &str, prefix: &str) -> String {
    let mut text = String::from("&[\n");
    for line in read(list).lines() {
        let (code, name) = line.split_once(' ').expect("a code and a name");
        let said = match code {
            // Words that programs look for.
            "0" => "no error".to_owned(),
            "1" => "invalid argument".to_owned(),
            "2" => "out of memory".to_owned(),
            _ => words(name.strip_prefix(prefix).unwrap_or(name)),
        };
        writeln!(text, "({code}, c\"{name}\", c\"{said}\"),").expect("a string grows");
    }
    text + "]"
}

/// `InvalidValue` and `INVALID_VALUE` as `invalid value`.
fn words(name: &str) -> String {
    if name.contains('_') || !name.contains(|c: char| c.is_ascii_lowercase()) {
        return name.replace('_', " ").to_ascii_lowercase();
    }
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
