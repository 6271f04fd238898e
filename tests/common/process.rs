//! Tests that need a process of their own: they fork, end it, or change what all threads see.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};

const ALONE: &str = "PINLANE_TEST_ALONE";

/// The name by which the test runner knows a test: that of its module (`module_path!()`) without
/// the program's, then its own.
pub fn full_name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, inside)) => format!("{inside}::{test}"),
        None => test.to_owned(),
    }
}

/// Runs a test alone in another process and gives what became of it; `None` in that process.
pub fn run_alone(module: &str, test: &str) -> Option<Output> {
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([&full_name(module, test), "--exact", "--test-threads=1", "--nocapture"]);
    Some(command.env(ALONE, "1").output().expect("it starts"))
}

/// Whether this process runs the calling test alone. If not, one that does so starts here, and must
/// succeed.
pub fn is_alone(module: &str, test: &str) -> bool {
    let Some(output) = run_alone(module, test) else { return true };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}

/// Runs `check` in a forked child. It gives the number of the first thing that is wrong, 0 for
/// none. The calling test runs [alone](is_alone): what threads of other tests hold at the fork
/// would stay held in the child.
pub fn in_a_forked_child(check: impl FnOnce() -> i32) {
    // SAFETY: the child runs `check`, which takes no lock that another thread of this process may
    // have held at the fork (other than the C library's, which survive it), and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: no preconditions: a child that hangs is killed, and seen by its parent.
        unsafe { libc::alarm(20) };
        let verdict = catch_unwind(AssertUnwindSafe(check));
        // SAFETY: no preconditions.
        unsafe { libc::_exit(verdict.unwrap_or(100)) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live `int` for the call to write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child hung or crashed: status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "this check failed in the child");
}
