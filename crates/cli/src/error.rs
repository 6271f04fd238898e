//! What can go wrong. Each message says what to do.

use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed. Errors of the command line are found earlier, by its parser.
#[derive(Debug)]
pub struct Error(pub String);

/// Drops what a call returned.
impl<V> From<pinlane::Refused<V>> for Error {
    fn from(refused: pinlane::Refused<V>) -> Self {
        refused.error.into()
    }
}

impl From<pinlane::Error> for Error {
    fn from(error: pinlane::Error) -> Error {
        Error(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the library found, without the name of its call and without the remedy.
pub fn cause(error: &pinlane::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix(error.operation()).unwrap_or(&text);
    let text = text.strip_suffix(error.remedy()).unwrap_or(text);
    text.trim_matches([':', ';', ' ']).to_owned()
}
