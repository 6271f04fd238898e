//! When host functions whose turn has come are called: as late as the program allows.
//!
//! They run on a thread of their own, concurrently with the program's calls. Which of these they
//! overlap would depend on chance. So they are called when
//!
//! * a thread waits for something that is not complete, or asks for it;
//! * or the program rests: there was no call for a while, in which the thread that made the last
//!   one has slept or computed. It may be waiting for a signal that only the function gives. A
//!   thread that the system holds up, such as for a page from a disk, rests only if that lasts.
//!
//! In a program that makes its calls from one thread, without a rest, they always run during the
//! same calls.

use std::time::Duration;

use crate::machine::Machine;

/// How often the thread of the last call is looked at.
pub(crate) const LOOK: Duration = Duration::from_micros(500);
/// For how long that thread may compute until its next call.
const COMPUTES: Duration = Duration::from_millis(2);

/// How many looks in a row find a thread held up until it counts as resting: those of a second.
const HELD_UP: u32 = 2000;

/// What the host thread has seen of the thread of the last call.
#[derive(Debug, Default)]
pub(crate) struct Look {
    calls: u64,
    /// At the first look, and at the last one.
    first: Option<Activity>,
    last: Option<Activity>,
    /// How many looks before the last one saw the same.
    alike: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Activity {
    computed: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs, or could.
    Runs,
    /// The system holds it up: it reads a page, or waits for the child of `vfork`.
    HeldUp,
    Sleeps,
}

impl Activity {
    /// `None` if the thread is gone, or the system does not say.
    fn of(thread: libc::pid_t) -> Option<Self> {
        // The clock of a thread's own time (Linux, `include/linux/posix-timers.h`).
        let clock = (!thread << 3) | 6;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: fills what it is given.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return None;
        }
        let computed = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
        // The state follows the name, which is in parentheses and may have some itself.
        let state = match stat.rsplit_once(") ")?.1.as_bytes() {
            [b'R', ..] => State::Runs,
            [b'D', ..] => State::HeldUp,
            _ => State::Sleeps,
        };
        Some(Activity { computed, state })
    }
}

impl Machine {
    /// A thread makes a call.
    #[inline]
    pub(crate) fn call_is_made(&mut self) {
        if self.host_functions > 0 {
            // SAFETY: asks for the number of the thread.
            self.due.thread = unsafe { libc::gettid() };
            self.due.calls += 1;
            self.due.now = false;
        }
    }

    /// A thread waits for something that is not complete, or a query has found it not complete.
    pub(crate) fn functions_are_due(&mut self) {
        if self.host_functions > 0 {
            self.due.now = true;
            self.host_work = true;
        }
    }

    /// A function has returned: the threads that wait look again first.
    pub(crate) fn function_has_returned(&mut self) {
        self.due.now = false;
    }

    /// Whether some function waits to be called, or for what is ahead of it.
    pub(crate) fn has_functions(&self) -> bool {
        !self.host_ready.is_empty() || !self.host_targets.is_empty()
    }

    /// Whether functions are to be called now. The host thread looks again and again.
    pub(crate) fn are_due(&mut self, look: &mut Look) -> bool {
        if self.due.now || !self.has_functions() {
            return self.due.now;
        }
        if look.calls != self.due.calls {
            *look = Look { calls: self.due.calls, ..Look::default() };
        }
        let now = Activity::of(self.due.thread);
        let (first, last) = (*look.first.get_or_insert_with(|| now_or_gone(now)), look.last);
        look.last = now;
        look.alike = if now == last { look.alike + 1 } else { 0 };
        self.due.now = now.is_none_or(|now| {
            let rests = match now.state {
                State::Runs => false,
                State::Sleeps => look.alike > 0,
                State::HeldUp => look.alike >= HELD_UP,
            };
            rests || now.computed.saturating_sub(first.computed) >= COMPUTES
        });
        self.due.now
    }
}

fn now_or_gone(now: Option<Activity>) -> Activity {
    now.unwrap_or(Activity { computed: Duration::ZERO, state: State::Sleeps })
}
