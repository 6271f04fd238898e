//! The command line: what it refuses, and how.

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
fn a_gpu_that_is_not_there_is_wrong() {
    let output = pinlane(&["doctor", "--device", "63"]);
    assert_eq!(output.code, 1, "{}", output.stdout);
    assert!(output.stdout.contains("gpu 63"), "{}", output.stdout);
}
