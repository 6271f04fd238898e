//! Runs programs one after another, each on its own thread, and counts them.
//!
//! A program that hangs is shrunk only with `PINLANE_TEST_SHRINK_MS=500`, because each attempt
//! takes a thread and otherwise a minute.

use std::any::Any;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::last_resort;
use crate::common::support::patience;

/// The interval at which a program is asked whether it has given up.
const GLANCE: Duration = Duration::from_millis(5);

/// How long a program may take if programs that hang are to be shrunk.
fn to_shrink() -> Option<Duration> {
    let millis = std::env::var("PINLANE_TEST_SHRINK_MS").ok()?;
    Some(Duration::from_millis(millis.parse().expect("milliseconds")))
}

/// One test's programs.
pub struct Watch {
    name: &'static str,
    programs: AtomicU64,
    failed: AtomicBool,
    hung: AtomicBool,
}

impl Watch {
    pub const fn new(name: &'static str) -> Watch {
        let (failed, hung) = (AtomicBool::new(false), AtomicBool::new(false));
        Watch { name, programs: AtomicU64::new(0), failed, hung }
    }

    /// Runs a program. Fails with the printed program instead of hanging.
    pub fn run(&self, program: impl Debug, run: impl FnOnce() + Send + 'static) {
        let shrinks = to_shrink();
        if self.hung.load(Ordering::Relaxed) {
            return;
        }
        self.programs.fetch_add(1, Ordering::Relaxed);
        let (done, finished) = channel();
        let gave_up = Arc::new(AtomicBool::new(false));
        let tell = gave_up.clone();
        let worker = thread::spawn(move || {
            last_resort::arm(tell);
            run();
            let _ = done.send(());
        });
        let end = Instant::now() + shrinks.unwrap_or_else(patience);
        let outcome = loop {
            match finished.recv_timeout(GLANCE) {
                Err(RecvTimeoutError::Timeout) if gave_up.load(Ordering::SeqCst) => return,
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Err(RecvTimeoutError::Timeout) => {
                self.hung.store(shrinks.is_none(), Ordering::Relaxed);
                self.tell("hangs");
                panic!("the program hangs: {program:#?}");
            }
            Err(RecvTimeoutError::Disconnected) | Ok(()) => {
                worker.join().unwrap_or_else(|panic| self.fail(panic));
            }
        }
    }

    fn fail(&self, panic: Box<dyn Any + Send>) {
        self.tell("fails");
        resume_unwind(panic)
    }

    /// Prints only the first program: the next ones are attempts to shrink it.
    fn tell(&self, how: &str) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            let count = self.programs.load(Ordering::Relaxed);
            eprintln!("{}: program number {count} {how}", self.name);
        }
    }
}
