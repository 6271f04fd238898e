//! Progress on the standard error.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with this many steps. It prints nothing if the standard error is not a terminal.
pub fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {pos} of {len}");
    ProgressBar::new(steps).with_style(style.expect("a valid template"))
}
