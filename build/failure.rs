//! Why a build must stop, and what to do about it.

use std::fmt;

/// The cause, and remedies, each on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub cause: String,
    pub help: Vec<String>,
}

impl Failure {
    pub fn new(cause: impl Into<String>) -> Failure {
        Failure { cause: cause.into(), help: Vec::new() }
    }

    pub fn help(mut self, remedy: impl Into<String>) -> Failure {
        self.help.push(remedy.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        self.help.iter().try_for_each(|remedy| write!(f, "\nhelp: {remedy}"))
    }
}
