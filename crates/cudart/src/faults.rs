//! Calls that fail because `PINLANE_CUDART_FAULT` says so.
//!
//! `cudaMalloc:3:2` makes the third call of cudaMalloc in the process give error 2, and have no
//! effect; with `cudaMalloc:3:2:forever` all later calls give it, too. `cudaMemcpyAsync:3:700:late`
//! gives the error after the copy was enqueued, as a call does that reports what went wrong before
//! it (rule 27). Several are separated by commas. The form of a call for per-thread default streams
//! counts as the call.

use std::ffi::c_int;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use pinlane_driver::CudaCode;
use pinlane_emulator::Emulator;

use crate::environment::is_quiet;
use crate::errors;

#[derive(Debug)]
struct Fault {
    call: String,
    nth: u64,
    code: CudaCode,
    forever: bool,
    late: bool,
    /// How often the call was made.
    made: AtomicU64,
}

/// Those of the process; at least one.
#[derive(Debug)]
pub struct Faults(Vec<Fault>);

/// What may be named: all functions of either version, and of the driver.
const EXPORTS: [&str; 3] = [
    include_str!("../exports/12.txt"),
    include_str!("../exports/13.txt"),
    include_str!("../exports/driver.txt"),
];

impl FromStr for Fault {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':').map(str::trim);
        let mut part = || parts.next().ok_or(());
        let (call, nth, code) = (part()?, part()?, part()?);
        let (mut forever, mut late) = (false, false);
        for word in parts {
            match word {
                "once" => forever = false,
                "forever" => forever = true,
                "late" => late = true,
                _ => return Err(()),
            }
        }
        let is_there = EXPORTS.iter().any(|list| list.lines().any(|name| name == call));
        let nth = nth.parse().ok().filter(|&nth| nth > 0).ok_or(())?;
        let code = code.parse::<c_int>().ok().or_else(|| errors::named(code)).ok_or(())?;
        if !is_there || code <= 0 {
            return Err(());
        }
        let (call, code) = (call.to_owned(), CudaCode(code));
        Ok(Fault { call, nth, code, forever, late, made: 0.into() })
    }
}

impl FromStr for Faults {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.split(',').map(str::parse).collect::<Result<_, ()>>().map(Faults)
    }
}

/// How a call is to fail.
#[derive(Clone, Copy)]
pub struct Strike {
    code: CudaCode,
    /// The call has its effect even so.
    pub is_late: bool,
}

impl Faults {
    /// Whether the call is to fail.
    pub fn strike(&self, call: &str) -> Option<Strike> {
        let mut struck = None;
        for fault in self.0.iter().filter(|fault| fault.call == call) {
            let made = fault.made.fetch_add(1, Ordering::Relaxed) + 1;
            if made == fault.nth || made > fault.nth && fault.forever {
                struck = struck.or(Some(Strike { code: fault.code, is_late: fault.late }));
            }
        }
        struck
    }

    /// Says at the end which faults have not struck, so that a script that tries one number after
    /// another knows when to stop.
    pub fn report(&self) {
        for Fault { call, nth, made, .. } in &self.0 {
            let made = made.load(Ordering::Relaxed);
            if made < *nth && !is_quiet() {
                eprintln!(
                    "pinlane-cudart: {call} was called {made} times: fault {nth} did not strike"
                );
            }
        }
    }
}

impl Strike {
    /// What the call fails with. An error that ends the process loses the current device.
    pub fn fail(self, gpu: &Emulator) -> CudaCode {
        if self.code.is_sticky() || self.code == CudaCode::CUDART_UNLOADING {
            let _ = gpu.lose_device(gpu.current_device(), self.code);
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, u64, i32, bool)>> {
        let Faults(faults) = text.parse().ok()?;
        assert!(faults.iter().all(|fault| fault.late == text.contains("late")), "{text}");
        let parts = |it: Fault| (it.call, it.nth, it.code.0, it.forever);
        Some(faults.into_iter().map(parts).collect())
    }

    #[test]
    fn faults_are_read() {
        let malloc = |nth, code, forever| ("cudaMalloc".to_owned(), nth, code, forever);
        assert_eq!(read("cudaMalloc:3:2"), Some(vec![malloc(3, 2, false)]));
        assert_eq!(
            read("cudaMalloc:1:cudaErrorIllegalAddress:forever, cudaMalloc:9:2:once"),
            Some(vec![malloc(1, 700, true), malloc(9, 2, false)])
        );
        for wrong in
            ["", "cudaMalloc", "cudaMalloc:0:2", "cudaMalloc:1:0", "cudaMalloc:1:no", "malloc:1:2"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(read("cudaMalloc:1:2:late"), Some(vec![malloc(1, 2, false)]));
        assert_eq!(read("cudaMalloc:1:2:forever:late"), Some(vec![malloc(1, 2, true)]));
        assert_eq!(read("cudaMalloc:1:2:often"), None);
    }
}
