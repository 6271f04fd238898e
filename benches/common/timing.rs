//! How time is taken: as medians. Measurements that are compared are taken in turns.

use std::cell::RefCell;
use std::time::Instant;

use pinlane::Result;

pub fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Medians of measurements taken in turns, so that all of them meet the same machine. A turn is a
/// few measurements in a row. The first is thrown away: then caches, clocks and threads are as in a
/// program that does only this.
pub fn medians<const N: usize>(
    count: usize,
    mut measurements: [&mut dyn FnMut() -> Result<f64>; N],
) -> Result<[f64; N]> {
    let burst = (count / 4).clamp(1, 8);
    let mut samples: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(count + burst));
    while samples[0].len() < count {
        for (measure, samples) in measurements.iter_mut().zip(&mut samples) {
            measure()?;
            for _ in 0..burst {
                samples.push(measure()?);
            }
        }
    }
    Ok(samples.map(median))
}

/// A measurement of a subject. Its result may have any unit.
type Measurement<'a, S> = &'a dyn Fn(&mut S) -> Result<f64>;

/// As [`medians`], for measurements that share a subject.
pub fn medians_of<S, const N: usize>(
    subject: &mut S,
    count: usize,
    measurements: [Measurement<'_, S>; N],
) -> Result<[f64; N]> {
    let subject = RefCell::new(subject);
    let mut measurements = measurements.map(|measure| || measure(&mut subject.borrow_mut()));
    let mut measurements = measurements.iter_mut();
    medians(count, std::array::from_fn(|_| measurements.next().expect("N of them") as _))
}

/// How many operations take at least `shortest` seconds. `timed` makes the given number of
/// operations and returns the seconds.
pub fn operations(shortest: f64, mut timed: impl FnMut(usize) -> Result<f64>) -> Result<usize> {
    let mut count = 1024;
    loop {
        let took = timed(count)?;
        if took >= shortest {
            return Ok(count);
        }
        count = (count as f64 * (1.3 * shortest / took).clamp(1.5, 100.0)) as usize;
    }
}
