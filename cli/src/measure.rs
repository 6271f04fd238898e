//! How time is taken: each measurement once for nothing, then a few times for the median.

use std::time::Instant;

use pinlane::Result;

/// The median seconds of `samples` runs. A first run, which allocates and wakes, does not count.
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

/// 10^9 bytes a second.
pub fn gb_per_s(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / 1e9 / seconds
}
