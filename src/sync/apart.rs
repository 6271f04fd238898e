//! What several threads write, away from what others read.

use std::ops::Deref;

/// On cache lines of its own, which nobody else's writes take away.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
