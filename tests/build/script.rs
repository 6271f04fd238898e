//! The build script itself, which `build.rs` includes: with a target and with settings that it
//! refuses.

use std::ffi::OsStr;
use std::process::Command;

/// The script's output to Cargo, with `variables` in addition to those that Cargo sets. It must
/// never panic.
pub fn run<'a>(variables: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> String {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("PINLANE_BUILD_SCRIPT"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("CARGO_MANIFEST_DIR", env!("PINLANE_PROJECT"))
        .env("CARGO_CFG_TARGET_ARCH", std::env::consts::ARCH)
        .env("CARGO_CFG_TARGET_OS", "linux")
        .env("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        .env("TARGET", &target)
        .env("HOST", &target)
        .env("OPT_LEVEL", "0")
        .env("NUM_JOBS", "1")
        .env("OUT_DIR", env!("CARGO_TARGET_TMPDIR"))
        .envs(variables)
        .output()
        .expect("the build script runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    String::from_utf8(output.stdout).unwrap()
}

/// The errors in the script's output to Cargo.
pub fn errors(stdout: &str) -> Vec<&str> {
    stdout.lines().filter_map(|line| line.strip_prefix("cargo::error=")).collect()
}

#[test]
fn systems_of_32_bits_stop_with_one_sentence() {
    let stdout = run([("CARGO_CFG_TARGET_POINTER_WIDTH", OsStr::new("32"))]);
    let message = "pinlane needs a 64-bit system, and this target has 32 bits";
    assert_eq!((errors(&stdout), stdout.lines().count()), (vec![message], 1), "{stdout}");
}

/// The library compiles there, and opens no device. Its error says why.
#[test]
fn other_systems_have_neither_cuda_nor_the_emulated_device() {
    for system in ["macos", "windows", "android"] {
        let target = ("CARGO_CFG_TARGET_OS", OsStr::new(system));
        let stdout = run([target]);
        assert!(!stdout.contains("cargo::rustc-cfg"), "{stdout}");
        let why = format!("pinlane opens devices on Linux only, and it was compiled for {system}");
        let of_capi = format!("the feature `capi` needs Linux, and this target is {system}");
        if cfg!(feature = "capi") {
            assert_eq!(errors(&stdout), [of_capi]);
        } else {
            assert!(stdout.contains(&format!("PINLANE_WITHOUT_CUDA={why}\n")), "{stdout}");
            assert!(errors(&stdout).is_empty(), "{stdout}");
        }
        for wish in ["driver", "on", "/usr/local/cuda"] {
            let stdout = run([target, ("PINLANE_CUDA", OsStr::new(wish))]);
            let asked = "CUDA, which PINLANE_CUDA asks for, needs Linux";
            assert_eq!(errors(&stdout), [format!("{asked}, and this target is {system}")]);
        }
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_the_feature_nothing_is_looked_for() {
    for wish in ["", "auto", "off", "0"] {
        let stdout = run([("PINLANE_CUDA", OsStr::new(wish)), ("CUDA_HOME", OsStr::new("/cuda"))]);
        for word in ["cargo::error", "cargo::warning", "pinlane_cuda", "CUDA_HOME"] {
            assert!(!stdout.contains(word), "PINLANE_CUDA={wish}: {stdout}");
        }
    }
}

/// Each with the feature that it needs.
#[cfg(not(feature = "toolkit"))]
#[test]
fn who_insists_on_what_a_feature_does_gets_an_error_without_it() {
    let cuda = if cfg!(feature = "cuda") { "a CUDA toolkit" } else { "CUDA" };
    let feature = if cfg!(feature = "cuda") { "toolkit" } else { "cuda" };
    for wish in ["on", "1", "/usr/local/cuda", "driver"] {
        let stdout = run([("PINLANE_CUDA", OsStr::new(wish))]);
        let errors = errors(&stdout).join("\n");
        if wish == "driver" && cfg!(feature = "cuda") {
            assert!(errors.is_empty() && stdout.contains("rustc-cfg=pinlane_cuda"), "{stdout}");
            continue;
        }
        let word = if wish == "1" { "on" } else { wish };
        assert!(errors.contains(&format!("PINLANE_CUDA={word} asks for {cuda}")), "{stdout}");
        assert!(errors.contains(&format!("the feature `{feature}` is off")), "{stdout}");
    }
}
