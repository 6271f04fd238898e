//! The options of the copy team.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use pinlane_base::setters;

use crate::error::{Error, Result};

/// The most threads that help to copy memory, including the caller: eight saturate a PCIe 5 link.
const COPYING: usize = 8;
/// The most threads of a team, by default.
const THREADS: usize = 63;
/// The longest that a thread without work spins: a spinning thread occupies a core.
const LONGEST_SPIN: Duration = Duration::from_secs(1);

/// Options for the process's copy threads: how many, where, and how long they stay awake.
///
/// The copy team is shared by all devices of the process. Threads start when a large copy between
/// pageable memory and a device first needs them: first those that help with one copy, and others
/// when devices copy at the same time, or when a file is read.
#[derive(Clone, Debug)]
pub struct CopyTeam {
    pub(super) threads: usize,
    pub(super) copying: usize,
    pub(super) cores: Vec<usize>,
    pub(super) spin: Duration,
}

impl Default for CopyTeam {
    fn default() -> Self {
        Self::new()
    }
}

impl CopyTeam {
    /// The default: one thread less than there are cores, and at most 63. Seven help with one copy
    /// of memory, 15 with reading a file. They run on any core, and stay awake for 200 us after
    /// each copy.
    #[must_use]
    pub fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        CopyTeam {
            threads: (cores - 1).min(THREADS),
            copying: COPYING - 1,
            cores: Vec::new(),
            spin: Duration::from_micros(200),
        }
    }

    /// The cores that the threads are pinned to, in turns (`sched_setaffinity`). None by default:
    /// the system chooses.
    #[must_use]
    pub fn cores(mut self, cores: impl Into<Vec<usize>>) -> Self {
        self.cores = cores.into();
        self
    }

    /// What is wrong with these options.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |what, remedy| Err(Error::invalid("CopyTeam::install", what, remedy));
        if self.threads > 256 {
            let what = format!("{} threads", self.threads);
            return invalid(what, "use at most 256; eight saturate the link of one device");
        }
        if let Some(core) =
            self.cores.iter().find(|&&core| core >= pinlane_base::system::CPU_SETSIZE as usize)
        {
            return invalid(format!("core {core}"), "name cores that the machine has");
        }
        if self.spin > LONGEST_SPIN {
            let remedy = "let threads spin for at most a second; waking one takes about 50 us";
            return invalid(format!("spinning for {:?}", self.spin), remedy);
        }
        Ok(())
    }
}

setters! {
    impl CopyTeam {
        /// How many threads help callers, for all devices together. 0: every caller copies alone.
        pub fn threads(threads: usize) => threads;

        /// How many of them help with one copy of memory. The others help copies of other devices,
        /// and read files.
        pub fn copying(threads: usize) => copying;

        /// How long a thread without work spins before it sleeps, at most a second. Waking takes
        /// about 50 us.
        pub fn spin(spin: Duration) => spin;
    }
}
