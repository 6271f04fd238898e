//! What must not compile (soundness rules 1 to 3, 5, 8, 10 and 17), one program a rule in `ui`.
//!
//! Beside each is what the compiler says, and other compilers say it in other words. So this suite
//! steps aside under any but [`COMPILER`]. For a new one, change the constant, run the suite with
//! `TRYBUILD=overwrite`, and read what has changed: each message must still be about the rule.

use std::io::Write;
use std::process::Command;

/// The Rust whose messages these are.
const COMPILER: &str = "1.95";

#[test]
fn what_is_unsound_does_not_compile() {
    let version = compiler();
    if !is_expected(&version) {
        // Past the capture of the test runner: that nothing was tested must be seen.
        let mut stderr = std::io::stderr();
        let _ = writeln!(
            stderr,
            "tests/ui steps aside: it compares messages of Rust {COMPILER}, and this is {version}"
        );
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// What the compiler that the programs would be given to says of itself.
fn compiler() -> String {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(program).arg("--version").output().expect("rustc starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Whether `version` is a release of [`COMPILER`], and not a nightly or beta on the way to it.
fn is_expected(version: &str) -> bool {
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let patch = number.strip_prefix(COMPILER).and_then(|rest| rest.strip_prefix('.'));
    patch.is_some_and(|patch| patch.parse::<u32>().is_ok())
}

#[test]
fn only_releases_of_that_compiler_are_asked() {
    let expected = |number: &str| is_expected(&format!("rustc {number} (59807616e 2026-04-14)"));
    assert!(expected("1.95.0") && expected("1.95.1"));
    for other in ["1.94.1", "1.96.0", "1.9.5", "1.950.0", "1.95.0-nightly", "1.95.0-beta.3"] {
        assert!(!expected(other), "{other}");
    }
    assert!(!is_expected(""));
}
