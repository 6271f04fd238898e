//! How time is measured: one run to warm up, then the median of a few.

use std::time::Instant;

use pinlane::Result;

/// The median seconds of `samples` runs. A run before them, which warms up, does not count.
pub fn median(samples: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let mut seconds = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        work()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

/// The rate in 10^9 bytes a second.
pub fn gb_per_s(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / 1e9 / seconds
}
