//! Timing: medians, with the spread of the runs and the time of the host's cores. Compared
//! measurements are taken in turns.

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

/// The time of one run of some work.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Wall-clock time.
    pub seconds: f64,
    /// Time of all threads of this process, as counted by the system.
    pub core_seconds: f64,
}

/// Times one run of some work, on the clock and on the cores.
pub fn clocked(work: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let before = core_seconds();
    let seconds = seconds(work)?;
    Ok(Sample { seconds, core_seconds: core_seconds() - before })
}

/// The time that the threads of this process have used so far, in user and system mode.
fn core_seconds() -> f64 {
    // SAFETY: zeroes are a valid `rusage`, and the call may write it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0, "getrusage");
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Many runs of the same work.
pub struct Samples {
    /// Sorted.
    seconds: Vec<f64>,
    /// The average of a run, if it was counted.
    core_seconds: Option<f64>,
}

impl Samples {
    pub fn new(samples: Vec<Sample>) -> Self {
        let sum: f64 = samples.iter().map(|sample| sample.core_seconds).sum();
        let all = Samples::from(samples.iter().map(|sample| sample.seconds).collect::<Vec<_>>());
        Samples { core_seconds: Some(sum / all.count() as f64), ..all }
    }

    pub fn count(&self) -> usize {
        self.seconds.len()
    }

    /// Converts runs of `count` operations to runs of one.
    pub fn each(&self, count: usize) -> Samples {
        let each = |seconds: &f64| seconds / count as f64;
        Samples {
            seconds: self.seconds.iter().map(each).collect(),
            core_seconds: self.core_seconds.as_ref().map(each),
        }
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The seconds within which this part of the runs ended.
    pub fn quantile(&self, part: f64) -> f64 {
        let place = (part * self.count() as f64) as usize;
        self.seconds[place.min(self.count() - 1)]
    }

    /// The average of a run. A single run is shorter than the resolution of the system's clock.
    pub fn core_seconds(&self) -> f64 {
        self.core_seconds.expect("the runs were clocked")
    }
}

impl From<Vec<f64>> for Samples {
    /// Of seconds on the clock alone.
    fn from(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        Samples { seconds, core_seconds: None }
    }
}

/// Measurements taken in turns, so that all of them see the same machine. A turn is a few
/// measurements in a row. The first is discarded: after it caches, clocks and threads are as in a
/// program that does only this.
fn in_turns<T, const N: usize>(
    count: usize,
    mut measurements: [&mut dyn FnMut() -> Result<T>; N],
) -> Result<[Vec<T>; N]> {
    let burst = (count / 4).clamp(1, 8);
    let mut samples: [Vec<T>; N] = std::array::from_fn(|_| Vec::with_capacity(count + burst));
    while samples[0].len() < count {
        for (measure, samples) in measurements.iter_mut().zip(&mut samples) {
            measure()?;
            for _ in 0..burst {
                samples.push(measure()?);
            }
        }
    }
    Ok(samples)
}

/// Medians of measurements taken in turns.
pub fn medians<const N: usize>(
    count: usize,
    measurements: [&mut dyn FnMut() -> Result<f64>; N],
) -> Result<[f64; N]> {
    Ok(in_turns(count, measurements)?.map(median))
}

/// A measurement of a subject. Its result may have any unit.
type Measurement<'a, S> = &'a dyn Fn(&mut S) -> Result<f64>;

/// As [`medians`], for measurements that share a subject.
pub fn medians_of<S, const N: usize>(
    subject: &mut S,
    count: usize,
    measurements: [Measurement<'_, S>; N],
) -> Result<[f64; N]> {
    Ok(seconds_of(subject, count, measurements)?.map(|runs| runs.median()))
}

/// As [`medians_of`], with the spread of the runs. The measurements return seconds.
pub fn seconds_of<S, const N: usize>(
    subject: &mut S,
    count: usize,
    measurements: [Measurement<'_, S>; N],
) -> Result<[Samples; N]> {
    let subject = RefCell::new(subject);
    let mut measurements = measurements.map(|measure| || measure(&mut subject.borrow_mut()));
    let mut measurements = measurements.iter_mut();
    let all = std::array::from_fn(|_| measurements.next().expect("N of them") as _);
    Ok(in_turns(count, all)?.map(Samples::from))
}

/// Work of a subject.
type Work<'a, S> = &'a dyn Fn(&mut S) -> Result<()>;

/// As [`seconds_of`], on the clock and on the cores.
pub fn samples_of<S, const N: usize>(
    subject: &mut S,
    count: usize,
    works: [Work<'_, S>; N],
) -> Result<[Samples; N]> {
    let subject = RefCell::new(subject);
    let mut measurements = works.map(|work| || clocked(|| work(&mut subject.borrow_mut())));
    let mut measurements = measurements.iter_mut();
    let all = std::array::from_fn(|_| measurements.next().expect("N of them") as _);
    Ok(in_turns(count, all)?.map(Samples::new))
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
