//! The copy team: threads that help a caller to move bytes.
//!
//! One core copies pageable memory at a fifth of what the bus carries, so a large copy takes
//! several. The process has one team. All devices and callers share it, and it sleeps when there is
//! no work. Its threads are in groups, each as large as one copy needs. A group starts when it is
//! first needed.
//!
//! ```text
//!   caller                      team
//!   run(3, work) ---- job ----> helper 1: work()
//!     ours()             `----> helper 2: work()
//!     (waits for those inside)  helper 3: came too late, does nothing
//!
//!   groups    0          1          2          3
//!   jobs      device 0   device 1   (asleep)   (asleep)      one device alone: its group
//!             device 0   device 1   device 0   device 1      two at once: the others help
//! ```
//!
//! Each device has a group, so that copies of two devices do not wait for the same threads. Groups
//! without a device help while several devices copy at the same time. A job that wants more threads
//! than a group has, to read files, takes threads of the next groups too.
//!
//! # Invariants
//!
//! * **The caller is a worker too**: the job gets done even if the team has no threads, is busy
//!   with other callers, or could not start its threads.
//! * **A job outlives its helpers.** `run` returns only when the job is off the list and no group
//!   is offered its seats, so that no thread can join, and when all threads have left it: as many
//!   are done as seats were taken.
//! * **`work` does not wait for other jobs.** It claims units of its own copy until none are left.
//! * After a `fork` the child has no helpers: it starts a team of its own when it needs one.
//!
//! A group is [offered](Offer) the seats of one job at a time, the oldest one, and its threads take
//! them without a lock: they come at the same moment, and each would wait for the one before. Only
//! groups that a job has seats for are woken. Helpers spin for a moment before they sleep, since
//! copies come in bursts and waking a thread takes longer than a small copy. At exit they end with
//! the process, asleep or spinning. No job is open then, because its caller would still be inside
//! `run`.

mod options;

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use self::options::CopyTeam;
use crate::driver::Ordinal;
use crate::error::Result;
use crate::process::thread::start as start_thread;
use crate::process::{Process, discard_panic};
use crate::sync::{CachePadded, Condvar, Mutex, MutexGuard, Offer};
use crate::wakers;

/// The most threads that help a copy, including the caller, where a thread spends most of its time
/// [waiting](Workload::Waiting).
const WAITING: usize = 16;
/// The most groups.
const GROUPS: usize = 16;

impl CopyTeam {
    /// Makes this the process's team from now on. Running copies finish with the former team, whose
    /// threads then end.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) for more than 256 threads, for cores that
    /// do not exist, and for spinning longer than a second.
    pub fn install(self) -> Result<()> {
        self.check()?;
        replace(Team::new(self));
        Ok(())
    }
}

/// Calls `ours` on this thread and `work` on the helpers at the same time, and returns when all
/// calls have returned. Both take units of work from shared state; `ours` returns when none are
/// left. A panic of either continues then.
pub(crate) fn run(helpers: Helpers, work: &(dyn Fn() + Sync), ours: &mut dyn FnMut()) {
    let team = if helpers.count == 0 { None } else { Some(current()) };
    match team {
        Some(team) if team.options.threads > 0 => team.run(helpers, work, ours),
        _ => ours(),
    }
}

/// Waits a moment for another thread of the copy. That waits for the device much less than the
/// spins, or lost its core.
pub(super) fn pause(spins: &mut u32) {
    *spins = spins.saturating_add(1);
    if *spins < 20_000 { std::hint::spin_loop() } else { thread::yield_now() }
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// The number of this thread in its group, from 1; 0 for a caller.
pub(crate) fn number() -> usize {
    NUMBER.try_with(Cell::get).unwrap_or(0)
}

/// Starts the threads of the group that helps first.
pub(crate) fn start(helpers: Helpers) {
    let team = current();
    if helpers.count > 0 {
        team.start(&team.groups[team.home(helpers)]);
    }
}

/// How many threads of the team help, and which device's group comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Helpers {
    device: Ordinal,
    pub(crate) count: usize,
}

impl Helpers {
    /// As many as this workload can use, of this device's group first.
    pub(crate) fn of(device: Ordinal, workload: Workload) -> Self {
        let CopyTeam { threads, copying, .. } = current().options;
        let count = match workload {
            Workload::Waiting => WAITING - 1,
            Workload::Copying | Workload::Ahead => copying,
        };
        Helpers { device, count: count.min(threads) }
    }

    pub(crate) fn at_most(self, count: usize) -> Self {
        Helpers { count: self.count.min(count), ..self }
    }

    pub(crate) const fn none() -> Self {
        Helpers { device: 0, count: 0 }
    }
}

/// How the threads of a transfer spend their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Copying memory.
    Copying,
    /// Copying data that no caller waits for yet.
    Ahead,
    /// Waiting: for the system to read a file, or for cache misses on scattered rows.
    Waiting,
}

/// The team; null before the first use. Teams are few and never freed, because a thread may be
/// about to access one.
static TEAM: AtomicPtr<Team> = AtomicPtr::new(std::ptr::null_mut());

fn current() -> &'static Team {
    let known = TEAM.load(Ordering::Acquire);
    // SAFETY: null, or a team that is never freed.
    match unsafe { known.as_ref() } {
        Some(team) if team.process.is_current() => team,
        _ => first_in_place_of(known),
    }
}

/// Installs the default team, unless another thread has installed one.
fn first_in_place_of(known: *mut Team) -> &'static Team {
    let team = Box::into_raw(Box::new(Team::new(CopyTeam::new())));
    match TEAM.compare_exchange(known, team, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just made, and never freed from now on.
        Ok(_) => unsafe { &*team },
        Err(installed) => {
            // SAFETY: it was not published.
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

struct Team {
    options: CopyTeam,
    process: Process,
    dismissed: AtomicBool,
    /// The previous team. Teams are never freed; this keeps it reachable for leak checkers.
    former: OnceLock<&'static Team>,
    groups: Vec<Group>,
    jobs: Mutex<Jobs>,
}

/// The open jobs.
#[derive(Default)]
struct Jobs {
    /// The oldest first.
    open: Vec<JobPtr>,
    /// The job whose seats each group is offered, and how many these were.
    offered: [Option<(JobPtr, usize)>; GROUPS],
}

impl Jobs {
    fn open(&self) -> impl Iterator<Item = &Job> + Clone {
        // SAFETY: on the list, so alive.
        self.open.iter().map(|open| unsafe { &*open.0 })
    }

    /// Whether the job has seats for a group, or had.
    fn has_seats(&self, job: &Job, number: usize) -> bool {
        let is_offered = self.offered[number].is_some_and(|(offered, _)| offered == JobPtr(job));
        is_offered || job.seats[number].load(Ordering::Relaxed) > 0
    }
}

/// Threads that are woken together.
#[derive(Default)]
struct Group {
    /// Their numbers.
    threads: Range<usize>,
    /// They start with the first job that has seats for them. If none can be started, a later job
    /// tries again.
    started: AtomicBool,
    /// The seats that they may take now: of one job. Spinning threads read it.
    offer: CachePadded<Offer<Job>>,
    /// Other jobs may have seats for them too, which are offered at the latest when the job of this
    /// offer closes.
    is_queued: AtomicBool,
    /// How many threads look for work, and would see a seat at once.
    spinning: AtomicUsize,
    /// Changed under the lock of the jobs.
    asleep: AtomicUsize,
    work: Condvar,
}

/// A job on the list, shared by one caller with helpers. It lives until its caller takes it off.
#[derive(Clone, Copy, PartialEq, Eq)]
struct JobPtr(*const Job);

// SAFETY: a `Job` is `Sync`: atomics, and work that may be called from any thread.
unsafe impl Send for JobPtr {}

struct Job {
    /// The function that each helper calls, with its lifetime erased. The job is on the list, or
    /// has a thread inside, only within `run`.
    work: *const (dyn Fn() + Sync),
    /// The group of its device.
    home: usize,
    /// How many helpers it wants of one group.
    wants: usize,
    /// How many seats for threads of each group it has not offered; changed under the lock.
    seats: [AtomicUsize; GROUPS],
    /// Groups without a device help.
    is_helped: AtomicBool,
    /// How many seats of ended offers have been taken; changed under the lock.
    taken: AtomicUsize,
    /// How many threads have left.
    done: AtomicUsize,
    /// The first panic of a helper.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The caller sleeps until all have left.
    sleeps: AtomicBool,
    caller: thread::Thread,
}

impl Team {
    fn new(options: CopyTeam) -> Self {
        // The last group takes the remainder.
        let CopyTeam { threads, copying, .. } = options;
        let count = threads.checked_div(copying).unwrap_or(1).clamp(1, GROUPS);
        let start = |group| if group == count { threads } else { group * copying };
        let group = |nth| Group { threads: start(nth)..start(nth + 1), ..Group::default() };
        Team {
            groups: (0..count).map(group).collect(),
            options,
            process: Process::current(),
            dismissed: AtomicBool::new(false),
            former: OnceLock::new(),
            jobs: Mutex::default(),
        }
    }

    fn start(&'static self, group: &'static Group) {
        if group.started.swap(true, Ordering::AcqRel) {
            return;
        }
        for (nth, number) in group.threads.clone().enumerate() {
            let cores = &self.options.cores;
            let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
            let work = move |team: &'static Team| {
                core.inspect(|&core| pin_to(core));
                NUMBER.set(nth + 1);
                team.help(group);
            };
            // With fewer threads, or none, callers do more themselves.
            let started = start_thread(&format!("pinlane-copy-{number}"), self, work);
            if nth == 0 && started.is_err() {
                // The next call that wants the group tries again.
                group.started.store(false, Ordering::Release);
                return;
            }
        }
    }

    fn run(&'static self, helpers: Helpers, work: &(dyn Fn() + Sync), ours: &mut dyn FnMut()) {
        let job = self.job(helpers, work);
        self.open(&job, helpers.count);
        let ours = catch_unwind(AssertUnwindSafe(ours));
        self.close(&job);
        let theirs = job.panic.lock().take();
        match (ours, theirs) {
            (Ok(()), None) => {}
            (Ok(()), Some(panic)) | (Err(panic), None) => resume_unwind(panic),
            (Err(panic), Some(another)) => {
                discard_panic(another);
                resume_unwind(panic)
            }
        }
    }

    /// The number of the group that helps first.
    fn home(&self, helpers: Helpers) -> usize {
        helpers.device.unsigned_abs() as usize % self.groups.len()
    }

    /// A job, to be opened and closed.
    fn job(&self, helpers: Helpers, work: &(dyn Fn() + Sync)) -> Job {
        Job {
            // SAFETY: only the lifetime changes; it is called only within `run`, between `open` and
            // `close`.
            work: unsafe {
                std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work)
            },
            home: self.home(helpers),
            wants: helpers.count.min(self.options.copying),
            seats: Default::default(),
            is_helped: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            panic: Mutex::default(),
            sleeps: AtomicBool::new(false),
            caller: thread::current(),
        }
    }

    fn open(&'static self, job: &Job, helpers: usize) {
        let mut jobs = self.jobs.lock();
        let mut left = helpers;
        for number in (0..self.groups.len()).map(|n| (job.home + n) % self.groups.len()) {
            left -= self.give(job, number, left);
        }
        jobs.open.push(JobPtr(job));
        self.let_the_others_help(&jobs);
        self.offer_seats(jobs);
    }

    /// Gives a job up to `count` seats for threads of a group, under the lock, and returns how
    /// many.
    fn give(&self, job: &Job, number: usize, count: usize) -> usize {
        let count = count.min(self.groups[number].threads.len());
        job.seats[number].fetch_add(count, Ordering::Relaxed);
        count
    }

    /// While jobs of several devices are open, lets each group without a device help one of the
    /// devices.
    fn let_the_others_help(&self, jobs: &Jobs) {
        let is_home = |number: &usize| jobs.open().any(|job| job.home == *number);
        let homes = (0..self.groups.len()).filter(is_home).count();
        if homes < 2 {
            return;
        }
        for job in jobs.open().filter(|job| !job.is_helped.swap(true, Ordering::Relaxed)) {
            let turn = (0..job.home).filter(is_home).count();
            let others = (0..self.groups.len()).filter(|number| !is_home(number));
            for number in others.skip(turn).step_by(homes) {
                // A job for more than one group has these seats already.
                if !jobs.has_seats(job, number) {
                    self.give(job, number, job.wants);
                }
            }
        }
    }

    /// Offers every group the seats of a job, and wakes the threads that are missing.
    fn offer_seats(&'static self, mut jobs: MutexGuard<'_, Jobs>) {
        let offered: [usize; GROUPS] = std::array::from_fn(|number| {
            if number < self.groups.len() { self.offer_next(&mut jobs, number) } else { 0 }
        });
        drop(jobs);
        for (group, seats) in self.groups.iter().zip(offered).filter(|(_, seats)| *seats > 0) {
            self.start(group);
            // Waking takes the caller microseconds, and a thread that comes late is waited for.
            let missing = seats.saturating_sub(group.spinning.load(Ordering::Relaxed));
            for _ in 0..missing.min(group.asleep.load(Ordering::Relaxed)) {
                group.work.notify_one();
            }
        }
    }

    /// Offers a group the seats of the oldest job that has some, if all others are taken. Returns
    /// how many it offers.
    fn offer_next(&self, jobs: &mut Jobs, number: usize) -> usize {
        let group = &self.groups[number];
        let is_free = group.offer.left() == 0;
        if is_free {
            self.end_offer(jobs, number);
            let oldest = jobs.open().find(|job| jobs.has_seats(job, number));
            jobs.offered[number] =
                oldest.map(|job| (JobPtr(job), job.seats[number].swap(0, Ordering::Relaxed)));
        }
        let queued = jobs.open().any(|job| job.seats[number].load(Ordering::Relaxed) > 0);
        // Before the offer: who takes its last seat looks there.
        group.is_queued.store(queued, Ordering::Relaxed);
        match jobs.offered[number] {
            Some((JobPtr(job), seats)) if is_free => {
                group.offer.make(job, seats);
                seats
            }
            _ => 0,
        }
    }

    /// Ends the offer to a group, and adds the seats that were taken to those of its job.
    fn end_offer(&self, jobs: &mut Jobs, number: usize) {
        let Some((JobPtr(job), seats)) = jobs.offered[number].take() else { return };
        let taken = seats - self.groups[number].offer.withdraw();
        // SAFETY: a job that is closed ends its offers first.
        unsafe { &*job }.taken.fetch_add(taken, Ordering::Relaxed);
    }

    fn close(&'static self, job: &Job) {
        let mut jobs = self.jobs.lock();
        jobs.open.retain(|open| *open != JobPtr(job));
        for number in 0..self.groups.len() {
            if jobs.offered[number].is_some_and(|(offered, _)| offered == JobPtr(job)) {
                self.end_offer(&mut jobs, number);
            }
        }
        // No thread takes a seat of it any more.
        let taken = job.taken.load(Ordering::Relaxed);
        if jobs.open.is_empty() {
            drop(jobs)
        } else {
            self.offer_seats(jobs)
        }
        // The threads inside are in their last unit.
        let mut spins = 0;
        while job.done.load(Ordering::Acquire) != taken {
            spins += 1;
            if spins < 10_000 {
                std::hint::spin_loop();
            } else {
                job.sleeps.store(true, Ordering::Relaxed);
                // A thread that leaves at this moment may not see it.
                thread::park_timeout(Duration::from_millis(1));
            }
        }
    }

    /// The loop of a helper thread.
    fn help(&'static self, group: &Group) {
        wakers::serve_others();
        while !self.dismissed.load(Ordering::Acquire) {
            if !self.spin_for_work(group) {
                self.sleep(group);
            }
            let Some(taken) = group.offer.take() else { continue };
            if taken.is_last && group.is_queued.load(Ordering::Relaxed) {
                self.offer_seats(self.jobs.lock());
            }
            // SAFETY: a seat was taken, so the caller waits until the thread is counted as done.
            let job = unsafe { &*taken.of };
            // SAFETY: as above, and the work is alive as long as the job.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(unsafe { &*job.work })) {
                let mut first = job.panic.lock();
                match *first {
                    Some(_) => discard_panic(panic),
                    None => *first = Some(panic),
                }
            }
            // The job may be freed as soon as the thread is counted.
            let caller = job.sleeps.load(Ordering::Relaxed).then(|| job.caller.clone());
            job.done.fetch_add(1, Ordering::Release);
            caller.inspect(thread::Thread::unpark);
        }
    }

    /// Spins until there is a seat, the time is over, or the team is dismissed. Returns whether
    /// there is a seat.
    fn spin_for_work(&self, group: &Group) -> bool {
        let start = Instant::now();
        group.spinning.fetch_add(1, Ordering::Relaxed);
        let mut found = false;
        while !found && !self.dismissed.load(Ordering::Acquire) {
            for _ in 0..64 {
                found = group.offer.left() > 0;
                if found {
                    break;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= self.options.spin {
                break;
            }
        }
        group.spinning.fetch_sub(1, Ordering::Relaxed);
        found
    }

    fn sleep(&self, group: &Group) {
        let mut jobs = self.jobs.lock();
        while group.offer.left() == 0 && !self.dismissed.load(Ordering::Acquire) {
            group.asleep.fetch_add(1, Ordering::Relaxed);
            jobs = group.work.wait(jobs);
            group.asleep.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Makes helpers end when they have no work.
    fn dismiss(&self) {
        let _jobs = self.jobs.lock();
        self.dismissed.store(true, Ordering::Release);
        self.groups.iter().for_each(|group| group.work.notify_all());
    }
}

/// Best effort: a thread that cannot be pinned works anywhere.
#[cfg(not(target_os = "linux"))]
fn pin_to(_: usize) {}

/// As above.
#[cfg(target_os = "linux")]
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
