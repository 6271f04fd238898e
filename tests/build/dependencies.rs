//! A build without CUDA and C does not compile the generators of bindings and headers.

use std::collections::BTreeSet;
use std::process::Command;

/// Which of `bindgen`, `cbindgen` and `cc` a build with these features compiles.
fn generators(features: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "no-dev", "--prefix", "none"])
        .args(["--format", "{p}", "--package", "pinlane"])
        .args(features)
        .current_dir(env!("PINLANE_PROJECT"))
        .output()
        .expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.starts_with("pinlane "), "{text}{errors}");
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| ["bindgen", "cbindgen", "cc"].contains(name)).map(str::to_owned).collect()
}

#[test]
fn the_emulated_device_alone_needs_no_generator() {
    let none = BTreeSet::new();
    assert_eq!(generators(&["--no-default-features", "--features", "emulated"]), none);
}

/// A crate and its dependencies.
fn needs(of: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--depth", "1", "--package", of])
        .current_dir(env!("PINLANE_PROJECT"))
        .output()
        .expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The tools and examples of this workspace need more crates; the library must not. It uses the
/// crates below it, and they do not use it.
#[test]
fn the_library_itself_needs_two_crates_and_its_own() {
    let of = needs("pinlane");
    assert!(
        of.iter().eq([
            "bytemuck",
            "libc",
            "pinlane",
            "pinlane-base",
            "pinlane-driver",
            "pinlane-emulator"
        ]),
        "{of:?}"
    );
    let of = needs("pinlane-emulator");
    let below = ["bytemuck", "libc", "pinlane-base", "pinlane-driver", "pinlane-emulator"];
    assert!(of.iter().eq(below), "{of:?}");
    assert!(needs("pinlane-driver").iter().eq(["bytemuck", "pinlane-driver"]));
    assert!(needs("pinlane-base").iter().eq(["libc", "pinlane-base"]));
}

#[test]
fn each_feature_brings_its_own() {
    let of = |feature| generators(&["--no-default-features", "--features", feature]);
    assert!(of("cuda").is_empty(), "{:?}", of("cuda"));
    assert!(of("toolkit").iter().eq(["bindgen", "cc"]), "{:?}", of("toolkit"));
    assert!(of("capi").iter().eq(["cbindgen"]), "{:?}", of("capi"));
    assert!(generators(&[]).iter().eq(["bindgen", "cc"]), "{:?}", generators(&[]));
}
