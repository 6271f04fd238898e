//! What each function does.

/// The tests, by name.
pub const TESTS: [(&str, fn()); 0] = [];
