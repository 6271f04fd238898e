//! A clock for single operations: the time stamp counter on x86-64, [`Instant`] elsewhere.

use std::time::{Duration, Instant};

/// The ticks of an empty pair of readings and of a nanosecond, measured on this machine.
pub struct Clock {
    per_nanosecond: f64,
    empty: f64,
}

impl Clock {
    pub fn calibrate() -> Self {
        let (begin, first) = (Instant::now(), start());
        while begin.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let ticks = end() - first;
        let per_nanosecond = ticks as f64 / begin.elapsed().as_nanos() as f64;
        let mut samples = Samples::with_room(100_000);
        for _ in 0..100_000 {
            samples.time(|| {});
        }
        samples.sort();
        Clock { per_nanosecond, empty: samples.quantile(0.5) }
    }

    /// Ticks between two readings as nanoseconds, without the time of the readings.
    pub fn nanoseconds(&self, ticks: f64) -> f64 {
        (ticks - self.empty).max(0.0) / self.per_nanosecond
    }
}

/// How long single operations took, in ticks. Recording one touches no new memory.
pub struct Samples {
    ticks: Vec<u32>,
    room: usize,
    longest: u32,
}

impl Samples {
    pub fn with_room(room: usize) -> Self {
        let mut ticks = vec![1; room]; // pages touched before the clock runs
        ticks.clear();
        Samples { ticks, room, longest: 0 }
    }

    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let first = start();
        let result = work();
        let took = u32::try_from(end() - first).unwrap_or(u32::MAX);
        self.longest = self.longest.max(took);
        if self.ticks.len() < self.room {
            self.ticks.push(took);
        }
        result
    }

    pub fn clear(&mut self) {
        self.ticks.clear();
        self.longest = 0;
    }

    /// Before [`quantile`](Self::quantile).
    pub fn sort(&mut self) {
        self.ticks.sort_unstable();
    }

    /// A quantile of the sorted samples; 0 if there are none.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let index = (self.ticks.len() as f64 * quantile) as usize;
        self.ticks.get(index).copied().unwrap_or(0).into()
    }

    /// The longest of all operations, including those that found no room.
    pub fn longest(&self) -> f64 {
        self.longest.into()
    }
}

/// Reads the counter after everything before is done and before anything after begins.
#[cfg(target_arch = "x86_64")]
fn start() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instructions write the two registers named and touch no memory. Not `nomem`, so
    // that the compiler moves no work across.
    unsafe {
        std::arch::asm!(
            "lfence", "rdtsc", "lfence",
            out("eax") low, out("edx") high, options(nostack)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(target_arch = "x86_64")]
fn end() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: as above; `rdtscp` writes `ecx` too.
    unsafe {
        std::arch::asm!(
            "rdtscp", "lfence", out("eax") low, out("edx") high, out("ecx") _, options(nostack)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(not(target_arch = "x86_64"))]
fn start() -> u64 {
    use std::sync::LazyLock;
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(EPOCH.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(not(target_arch = "x86_64"))]
fn end() -> u64 {
    start()
}
