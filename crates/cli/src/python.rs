//! The other command that is called `pinlane`: that of the package for Python, which finds races.
//! Who installs both has one of them first in `PATH`. Each hands over the commands that only the
//! other one has.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::Error;

/// What the package can do.
const COMMANDS: [&str; 2] = ["race", "env"];

/// The arguments, if they are for the package.
pub fn arguments() -> Option<Vec<OsString>> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let is_its = |first: &OsString| COMMANDS.iter().any(|command| first == command);
    arguments.first().is_some_and(is_its).then_some(arguments)
}

/// Runs the package's command in place of this process. Returns only if it cannot.
pub fn run(arguments: Vec<OsString>) -> Error {
    let mut command = Command::new("python3");
    let error = command.args(["-m", "pinlane"]).args(arguments).exec();
    Error(format!("this command is one of the package for Python, but python3: {error}"))
}
