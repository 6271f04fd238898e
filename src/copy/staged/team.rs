//! The copy team: threads that help a caller to move bytes.
//!
//! One core copies pageable memory at a fifth of what the bus carries, so a large copy takes
//! several. The team is the process's: started when the first large copy wants help, shared by all
//! devices and callers, asleep when there is nothing to do.
//!
//! ```text
//!   caller                      team
//!   run(3, work) ---- job ----> helper 1: work()
//!     ours()             `----> helper 2: work()
//!     (waits for those inside)  helper 3: came too late, does nothing
//! ```
//!
//! # Invariants
//!
//! * **The caller is a worker too**: the job gets done whatever the team does, also by a team of no
//!   threads, one that is busy with other callers, or one whose threads could not be started.
//! * **A job outlives its helpers.** `run` returns only when the job is off the list, so that
//!   nobody can join, and everybody inside has left.
//! * **`work` does not wait for other jobs.** It claims units of its own copy until there are none.
//! * After a `fork` the child has no helpers: it starts a team of its own when it needs one.
//!
//! Helpers spin for a moment before they sleep, since copies come in bursts and waking a thread
//! takes longer than a small copy. At exit they end with the process, asleep or spinning; no job is
//! open then, for its caller would be inside `run`.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::process::{Process, discard_panic};
use crate::sync::{Condvar, Mutex};

/// The most threads that are of use for copying memory, the caller's included: eight saturate a
/// PCIe 5 link.
const COPYING: usize = 8;
/// The same for reading files, where a thread spends most of its time in the operating system.
const READING: usize = 16;
/// The longest that a thread without work spins: it takes a core from everybody else meanwhile.
const LONGEST_SPIN: Duration = Duration::from_secs(1);

/// How the process's copy threads are to be: how many, where, and how long they stay awake.
///
/// The copy team is shared by all devices of the process. It starts when the first large copy
/// between pageable memory and a device wants help.
#[derive(Clone, Debug)]
pub struct CopyTeam {
    threads: usize,
    copying: usize,
    cores: Vec<usize>,
    spin: Duration,
}

impl Default for CopyTeam {
    fn default() -> Self {
        Self::new()
    }
}

impl CopyTeam {
    /// The default: as many threads as there are cores, at most 16 with the caller's own, of which
    /// at most eight copy memory, wherever the system puts them, awake for 200 us after each copy.
    #[must_use]
    pub fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        CopyTeam {
            threads: cores.min(READING) - 1,
            copying: COPYING - 1,
            cores: Vec::new(),
            spin: Duration::from_micros(200),
        }
    }

    /// How many threads help a caller. 0: every caller copies alone.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// How many of them copy memory; the others only read files.
    #[must_use]
    pub fn copying(mut self, threads: usize) -> Self {
        self.copying = threads;
        self
    }

    /// The cores that the threads are pinned to, in turns (`sched_setaffinity`). None by default:
    /// the system chooses.
    #[must_use]
    pub fn cores(mut self, cores: impl Into<Vec<usize>>) -> Self {
        self.cores = cores.into();
        self
    }

    /// How long a thread without work spins before it sleeps, at most a second. Waking takes about
    /// 50 us.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Makes this the process's team from now on. Copies that are under way end with the former
    /// one, whose threads then end.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) for more than 256 threads, for cores that do not
    /// exist, and for spinning longer than a second.
    pub fn install(self) -> Result<()> {
        const OPERATION: &str = "CopyTeam::install";
        if self.threads > 256 {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                OPERATION,
                format!("{} threads", self.threads),
                "use at most 256; eight saturate the link of one device",
            ));
        }
        if let Some(core) = self.cores.iter().find(|&&core| core >= libc::CPU_SETSIZE as usize) {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                OPERATION,
                format!("core {core}"),
                "name cores that the machine has",
            ));
        }
        if self.spin > LONGEST_SPIN {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                OPERATION,
                format!("spinning for {:?}", self.spin),
                "let threads spin for at most a second; waking one takes about 50 us",
            ));
        }
        replace(Team::new(self));
        Ok(())
    }
}

/// Calls `ours` on this thread and `work` on up to `helpers` threads of the team at once, and
/// returns when all calls have. Both take what there is to do in units, from a place that they
/// share; `ours` returns when there is nothing left.
pub(crate) fn run(helpers: usize, work: &(dyn Fn() + Sync), ours: &mut dyn FnMut()) {
    let team = if helpers == 0 { None } else { Some(current()) };
    match team {
        Some(team) if team.options.threads > 0 => team.run(helpers, work, ours),
        _ => ours(),
    }
}

/// How many threads work on a copy at most, beside the caller's.
pub(crate) fn helpers(task: Task) -> usize {
    let CopyTeam { threads, copying, .. } = current().options;
    if task == Task::Reading { threads } else { threads.min(copying) }
}

/// What a job is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Copying,
    /// Copying what nobody waits for yet.
    Ahead,
    Reading,
}

/// The team; none before the first use. Teams are few and never freed: a thread may be about to
/// look at one.
static TEAM: AtomicPtr<Team> = AtomicPtr::new(std::ptr::null_mut());

fn current() -> &'static Team {
    let known = TEAM.load(Ordering::Acquire);
    // SAFETY: null, or a team that is never freed.
    match unsafe { known.as_ref() } {
        Some(team) if team.process.is_current() => team,
        _ => first_in_place_of(known),
    }
}

/// The default team, unless somebody has installed one meanwhile.
fn first_in_place_of(known: *mut Team) -> &'static Team {
    let team = Box::into_raw(Box::new(Team::new(CopyTeam::new())));
    match TEAM.compare_exchange(known, team, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just made, and never freed from now on.
        Ok(_) => unsafe { &*team },
        Err(installed) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(team) });
            // SAFETY: another team was installed, so it is not null, and is never freed.
            unsafe { &*installed }
        }
    }
}

fn replace(team: Team) -> &'static Team {
    let team: &'static Team = Box::leak(Box::new(team));
    let old = TEAM.swap(std::ptr::from_ref(team).cast_mut(), Ordering::AcqRel);
    // SAFETY: as in `current`.
    if let Some(old) = unsafe { old.as_ref() } {
        team.former.get_or_init(|| old);
        if old.process.is_current() {
            old.dismiss();
        }
    }
    team
}

/// Helpers that copy, and those that read only.
const KINDS: [usize; 2] = [0, 1];

struct Team {
    options: CopyTeam,
    process: Process,
    /// Helpers start with the first job.
    started: AtomicBool,
    dismissed: AtomicBool,
    /// The team before: kept for ever, as all are, and so kept in reach.
    former: OnceLock<&'static Team>,
    /// How many seats the open jobs have, for helpers that copy, and for those that read only: more
    /// than the former are not woken for a copy. Read by spinning helpers.
    seats: [AtomicUsize; 2],
    state: Mutex<State>,
    work: [Condvar; 2],
}

#[derive(Default)]
struct State {
    jobs: Vec<CallPtr>,
    asleep: [usize; 2],
}

/// A job on the list. It is there until its caller takes it off, and alive for as long.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CallPtr(*const Call);

// SAFETY: a `Call` is `Sync`: atomics, and work that may be called from any thread.
unsafe impl Send for CallPtr {}

struct Call {
    /// With the lifetime taken away; the job is on the list, or has somebody inside, only within
    /// `run`.
    work: *const (dyn Fn() + Sync),
    /// How many more may join of either kind; changed under the lock.
    seats: [AtomicUsize; 2],
    inside: AtomicUsize,
    panicked: AtomicBool,
    caller: thread::Thread,
}

impl Team {
    fn new(options: CopyTeam) -> Self {
        Team {
            options,
            process: Process::current(),
            started: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            former: OnceLock::new(),
            seats: Default::default(),
            state: Mutex::new(State::default()),
            work: [Condvar::new(), Condvar::new()],
        }
    }

    fn start(&'static self) {
        for number in 0..self.options.threads {
            let cores = &self.options.cores;
            let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
            let helper = thread::Builder::new().name(format!("pinlane-copy-{number}"));
            // With fewer threads, or none, callers do more themselves.
            let _ = helper.spawn(move || {
                core.inspect(|&core| pin_to(core));
                self.help(usize::from(number >= self.options.copying));
            });
        }
    }

    fn run(&'static self, helpers: usize, work: &(dyn Fn() + Sync), ours: &mut dyn FnMut()) {
        if !self.started.swap(true, Ordering::AcqRel) {
            self.start();
        }
        let copying = self.options.copying;
        let job = Call {
            // SAFETY: only the lifetime changes; nobody calls it once `run` has returned, because
            // the job is off the list by then, and nobody inside.
            work: unsafe {
                std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work)
            },
            seats: [
                AtomicUsize::new(helpers.min(copying)),
                AtomicUsize::new(helpers.saturating_sub(copying)),
            ],
            inside: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            caller: thread::current(),
        };
        self.open(&job);
        let ours = catch_unwind(AssertUnwindSafe(ours));
        self.close(&job);
        if let Err(panic) = ours {
            resume_unwind(panic);
        }
        assert!(!job.panicked.load(Ordering::Relaxed), "a copy thread panicked");
    }

    fn open(&self, job: &Call) {
        let mut state = self.state.lock();
        state.jobs.push(CallPtr(job));
        let asleep = state.asleep;
        for kind in KINDS {
            let seats = job.seats[kind].load(Ordering::Relaxed);
            self.seats[kind].fetch_add(seats, Ordering::Release);
        }
        drop(state);
        for kind in KINDS {
            if asleep[kind] > 0 && job.seats[kind].load(Ordering::Relaxed) > 0 {
                self.work[kind].notify_all();
            }
        }
    }

    fn close(&self, job: &Call) {
        {
            let mut state = self.state.lock();
            state.jobs.retain(|open| *open != CallPtr(job));
            for kind in KINDS {
                let seats = job.seats[kind].swap(0, Ordering::Relaxed);
                self.seats[kind].fetch_sub(seats, Ordering::Relaxed);
            }
        }
        // Those inside are in their last unit.
        let mut spins = 0;
        while job.inside.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < 10_000 {
                std::hint::spin_loop();
            } else {
                thread::park_timeout(Duration::from_millis(1));
            }
        }
    }

    /// A seat in an open job, if there is one. The oldest job comes first.
    fn take_seat(&self, state: &State, kind: usize) -> Option<CallPtr> {
        let open = state.jobs.iter().find(|open| {
            // SAFETY: on the list, so alive.
            unsafe { &*open.0 }.seats[kind].load(Ordering::Relaxed) > 0
        })?;
        // SAFETY: as above.
        let job = unsafe { &*open.0 };
        job.seats[kind].fetch_sub(1, Ordering::Relaxed);
        self.seats[kind].fetch_sub(1, Ordering::Relaxed);
        job.inside.fetch_add(1, Ordering::Relaxed);
        Some(*open)
    }

    /// A helper's life.
    fn help(&self, kind: usize) {
        while !self.dismissed.load(Ordering::Acquire) {
            if !self.spin_for_work(kind) {
                self.sleep(kind);
            }
            let seat = self.take_seat(&self.state.lock(), kind);
            if let Some(CallPtr(job)) = seat {
                // SAFETY: a seat was taken, so the caller waits until `inside` is counted down.
                let job = unsafe { &*job };
                // SAFETY: as above, and the work is alive as long as the job.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(unsafe { &*job.work })) {
                    job.panicked.store(true, Ordering::Relaxed);
                    discard_panic(panic);
                }
                // The job may be gone as soon as the count is down.
                let caller = job.caller.clone();
                if job.inside.fetch_sub(1, Ordering::Release) == 1 {
                    caller.unpark();
                }
            }
        }
    }

    /// Whether there is a seat before the time for spinning is over, or the team is dismissed.
    fn spin_for_work(&self, kind: usize) -> bool {
        let start = Instant::now();
        while !self.dismissed.load(Ordering::Acquire) {
            for _ in 0..64 {
                if self.seats[kind].load(Ordering::Acquire) > 0 {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= self.options.spin {
                break;
            }
        }
        false
    }

    fn sleep(&self, kind: usize) {
        let mut state = self.state.lock();
        while self.seats[kind].load(Ordering::Acquire) == 0
            && !self.dismissed.load(Ordering::Acquire)
        {
            state.asleep[kind] += 1;
            state = self.work[kind].wait(state);
            state.asleep[kind] -= 1;
        }
    }

    /// Helpers end when they have nothing to do.
    fn dismiss(&self) {
        let _state = self.state.lock();
        self.dismissed.store(true, Ordering::Release);
        self.work.iter().for_each(Condvar::notify_all);
    }
}

/// Best effort: a thread that cannot be pinned works anywhere.
fn pin_to(core: usize) {
    // SAFETY: a `cpu_set_t` of zeros is the empty set, and `core` is below CPU_SETSIZE (`install`);
    // the calls read and write only it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(test)]
mod tests;
