//! Forks in the middle of a program, while other threads create and drop machines that watch the
//! host.
//!
//! The child writes to its parent's memory wherever it can, and uses a device of its own. The
//! parent continues, and agrees with the model. The program's machine may watch the host or not,
//! and its pool may register its memory or allocate it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use pinlane::driver::HostFlags;
use pinlane::emulated::Emulator;

use super::{Machine, Memory, Op};
use crate::common::process::{copies, is_mapped, watches};

/// The failures of a child, by its status.
const WRONG: [&str; 5] = [
    "nothing",
    "the child has memory of its parent's pool",
    "the child's own machine does not watch",
    "the child panicked",
    "the child's own pool, or what it copies, is wrong",
];

/// A thread that allocates and frees watched blocks all the time, so that it may hold any lock.
pub struct Others {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Others {
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                let driver = Emulator::builder().watch_host(true).build().driver();
                for _ in 0..20 {
                    let block = driver.host_alloc(0, 4096, HostFlags::default()).expect("memory");
                    // SAFETY: it is unused.
                    unsafe { driver.host_free(block) }.expect("it was allocated");
                }
            }
        });
        Others { stop, thread: Some(thread) }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Machine {
    /// Runs a program that forks before step number `at`.
    pub fn run_and_fork(&mut self, program: &[Op], at: usize) {
        let (before, after) = program.split_at(at % (program.len() + 1));
        for (step, op) in before.iter().enumerate() {
            self.step(op, step);
            self.note_losses();
        }
        self.fork(at.is_multiple_of(16));
        self.run(after);
    }

    fn fork(&self, too_early: bool) {
        // SAFETY: the child takes no lock of this process that another thread may hold, which this
        // tests, and exits with `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            // SAFETY: no preconditions. It kills a child that hangs, and its parent notices.
            unsafe { libc::alarm(20) };
            let wrong = catch_unwind(AssertUnwindSafe(|| self.in_a_child(too_early))).unwrap_or(3);
            // SAFETY: no preconditions.
            unsafe { libc::_exit(wrong) };
        }
        let mut status = 0;
        // SAFETY: `status` is a live `int` for the call to write.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child hung or crashed: status {status:#x}");
        let wrong = libc::WEXITSTATUS(status);
        assert_eq!(wrong, 0, "{}", WRONG.get(wrong as usize).unwrap_or(&"?"));
    }

    /// Returns an index in [`WRONG`].
    fn in_a_child(&self, too_early: bool) -> i32 {
        let mut wrong = 0;
        for host in self.hosts.iter().filter(|host| !host.model.is_empty()) {
            let byte = host.buffer.as_ptr().cast_mut();
            if is_mapped(byte) {
                // SAFETY: the memory is mapped, and this is the child's only thread. The parent's
                // buffers must not change: that is the test.
                unsafe { byte.write_volatile(!byte.read_volatile()) };
                wrong = i32::from(wrong != 0 || matches!(host.buffer, Memory::Pool(_)));
            }
        }
        match (watches(too_early), copies()) {
            (0, 0) => wrong,
            (0, _) => 4,
            _ => 2,
        }
    }
}
