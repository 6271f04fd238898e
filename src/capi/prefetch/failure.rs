//! The failure of a function of the caller's producer.

use std::error::Error as StdError;
use std::fmt;

use crate::error::{Error, ErrorKind};

/// A call of a function of the producer that failed.
#[derive(Debug)]
pub(in crate::capi) struct Failure {
    /// Its name in `pinlane_producer`.
    pub(super) function: &'static str,
    pub(super) code: i32,
    /// The message of its last pinlane call that failed, if there was one.
    pub(super) said: Option<String>,
}

impl Failure {
    /// The producer's code in an error; 0 if it does not come from a producer.
    pub(in crate::capi) fn code_behind(error: &Error) -> i32 {
        let source = (error.kind() == ErrorKind::Producer).then(|| error.source()).flatten();
        source.and_then(|source| source.downcast_ref::<Failure>()).map_or(0, |failed| failed.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the producer's {} returned {}", self.function, self.code)?;
        self.said.as_ref().map_or(Ok(()), |said| write!(f, ": {said}"))
    }
}

impl StdError for Failure {}
