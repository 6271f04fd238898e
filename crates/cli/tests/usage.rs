//! The command line: what it refuses, and how.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::run::pinlane;

#[test]
fn a_wrong_command_line_exits_with_2_and_says_what_is_wrong() {
    for (arguments, message) in [
        (&["frobnicate"][..], "frobnicate"),
        (&[], "Usage"),
        (&["doctor", "--device", "gpu"], "give a GPU's number, or emulated"),
        (&["doctor", "--device", "-1"], "-1"),
        (&["doctor", "extra"], "extra"),
        (&["bench", "--only", "sideways"], "sideways"),
        (&["bench", "--quick", "--full"], "--full"),
    ] {
        let output = pinlane(arguments);
        assert_eq!(output.code, 2, "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{arguments:?}");
        assert!(output.stderr.contains(message), "{arguments:?}: {}", output.stderr);
    }
}

#[test]
fn help_and_version_exit_with_0() {
    let help = pinlane(&["--help"]);
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("doctor"), "{}", help.stdout);
    assert_eq!(pinlane(&["--version"]).stdout, "pinlane 0.1.0\n");
}

#[test]
fn the_commands_of_the_package_for_python_are_handed_over() {
    let folder = std::env::temp_dir().join(format!("pinlane-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of its own");
    let python = folder.join("python3");
    std::fs::write(&python, "#!/bin/sh\necho python3 \"$@\"\nexit 7\n").expect("it is writable");
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).expect("it is its own");
    let with_path = |path: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pinlane"));
        command.args(["race", "--json", "-", "train.py"]).env("PATH", path);
        command.output().expect("the tool starts")
    };
    let ran = with_path(&folder);
    assert_eq!(ran.status.code(), Some(7));
    assert_eq!(ran.stdout, b"python3 -m pinlane race --json - train.py\n");
    std::fs::remove_dir_all(&folder).expect("it is its own");
    let failed = with_path(&folder);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("package for Python, but python3"));
}

#[test]
fn a_gpu_that_is_not_there_is_wrong() {
    let output = pinlane(&["doctor", "--device", "63"]);
    assert_eq!(output.code, 1, "{}", output.stdout);
    assert!(output.stdout.contains("gpu 63"), "{}", output.stdout);
}
