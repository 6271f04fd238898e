//! Writes what is too dull to write by hand: a stub for every name that NVIDIA's runtime exports
//! and this library does not have, and the names of the errors.

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
    write("errors.rs", errors());
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The functions of `src` with C's names: `fn name(`, `fn name / other(` and `fn [name, ...](`.
fn implemented() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in fs::read_dir("src").expect("is there") {
        let text = read(file.expect("can be listed").path().to_str().expect("is ASCII"));
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
    word && name.trim_start_matches('_').starts_with("cuda")
}

fn stubs() -> String {
    let mut wanted = BTreeSet::new();
    for list in ["exports/12.txt", "exports/13.txt"] {
        wanted.extend(read(list).lines().map(str::to_owned));
    }
    let mut text = String::new();
    for name in wanted.difference(&implemented()) {
        writeln!(text, "stub!({name});").expect("a string grows");
    }
    text
}

/// `(code, name, what it says)`, both ended by NUL, in the order of the codes.
fn errors() -> String {
    let mut text = String::from("&[\n");
    for line in read("exports/errors.txt").lines() {
        let (code, name) = line.split_once(' ').expect("a code and a name");
        let said = match code {
            // Words that programs look for.
            "0" => "no error".to_owned(),
            "1" => "invalid argument".to_owned(),
            "2" => "out of memory".to_owned(),
            _ => words(name.trim_start_matches("cudaError")),
        };
        writeln!(text, "({code}, c\"{name}\", c\"{said}\"),").expect("a string grows");
    }
    text + "]"
}

/// `InvalidValue` as `invalid value`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
