//! Runs the tool.

use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run left.
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the tool with these arguments.
pub fn pinlane(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_pinlane"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the tool starts");
    Output {
        code: output.status.code().expect("no signal"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// What a run with `--json` prints; it must succeed.
pub fn json(arguments: &[&str]) -> Value {
    let output = pinlane(&[arguments, &["--json"]].concat());
    assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).expect("JSON")
}
