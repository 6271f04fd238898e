//! Progress on standard error, where a terminal watches.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps. Where no terminal watches it prints nothing.
pub fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {pos} of {len}");
    ProgressBar::new(steps).with_style(style.expect("a template that was tried"))
}
