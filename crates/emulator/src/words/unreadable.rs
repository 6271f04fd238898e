//! Texts that do not parse.

use std::error::Error;
use std::fmt;

/// A text that is not what it should be; says what is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// What was to be read.
    pub(crate) of: &'static str,
    pub(crate) what: String,
    pub(crate) remedy: &'static str,
}

impl Unreadable {
    /// The type that was to be read, such as "Replay".
    #[must_use]
    pub fn of(&self) -> &'static str {
        self.of
    }

    /// What is wrong with the text.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.of, self.what, self.remedy)
    }
}

impl Error for Unreadable {}
