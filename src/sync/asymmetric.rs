//! Two fences that synchronise with each other. One of them costs nothing if the kernel helps.
//!
//! If two threads each store, fence, and then load what the other stored, at least one of them sees
//! the other's store. If one side is hot and the other rare, the rare side can pay for both:
//! Linux's `membarrier(2)` with `MEMBARRIER_CMD_PRIVATE_EXPEDITED` returns when every running
//! thread of the process has passed a full memory barrier. The hot side then needs only a compiler
//! fence.
//!
//! A process may forbid `membarrier` later (`seccomp(2)`), when the hot sides already rely on it.
//! The rare side then [visits](membarrier::visit_all_cpus) every CPU instead, which is slow but
//! needs no other permission.

use std::sync::atomic::{AtomicU8, Ordering, fence};

/// The kind of fences that this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fences {
    /// The light fence is only a compiler fence.
    kernel_helps: bool,
}

/// What the kernel offers, queried once.
///
/// The first call takes 10 to 20 ms in a process of several threads, and microseconds in a process
/// with a single thread. So it comes before CUDA starts its threads.
pub(crate) fn fences() -> Fences {
    // Threads that query at the same time get the same answer.
    let answer = match ANSWER.load(Ordering::Relaxed) {
        UNASKED if membarrier::register() => HELPS,
        UNASKED => HELPS_NOT,
        known => known,
    };
    ANSWER.store(answer, Ordering::Relaxed);
    Fences { kernel_helps: answer == HELPS }
}

/// No lock, because a forked child could find it held.
static ANSWER: AtomicU8 = AtomicU8::new(UNASKED);
const UNASKED: u8 = 0;
const HELPS_NOT: u8 = 1;
const HELPS: u8 = 2;

/// The hot side's fence, where no copy of [`Fences`] is at hand.
#[cfg(feature = "capi")]
#[inline(always)]
pub(crate) fn light() {
    // A thread that does not see the answer yet makes the fence of both sides.
    Fences { kernel_helps: ANSWER.load(Ordering::Relaxed) == HELPS }.light();
}

impl Fences {
    /// The hot side's fence.
    #[inline(always)]
    pub(crate) fn light(self) {
        if !self.kernel_helps {
            fence(Ordering::SeqCst);
        }
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// The rare side's fence.
    pub(crate) fn heavy(self) {
        fence(Ordering::SeqCst);
        if self.kernel_helps {
            membarrier::run();
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod membarrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run() {}
}

#[cfg(target_os = "linux")]
mod membarrier {
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn call(command: libc::c_int) -> bool {
        // SAFETY: the system call takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub(super) fn register() -> bool {
        // The second call shows that a sandbox does not forbid the registered command.
        call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED)
    }

    pub(super) fn run() {
        if !call(PRIVATE_EXPEDITED) && !visit_all_cpus() {
            // The hot sides rely on it, and cannot be notified. Continuing could allocate one block
            // twice.
            eprintln!(
                "pinlane: membarrier(2) and sched_setaffinity(2) were forbidden after pinlane \
                 began to rely on them; allow one of the two"
            );
            std::process::abort();
        }
    }

    /// The kernel's own limit on CPUs.
    const CPUS: usize = 8192;
    const WORD: usize = usize::BITS as usize;
    type Mask = [usize; CPUS / WORD];

    /// Runs on one CPU after the other. A thread that ran on a CPU when this began has left it when
    /// this thread runs there, and a context switch is a full memory barrier. Refused CPUs are
    /// offline, or not available to this process. False if even the current CPUs were refused.
    pub(super) fn visit_all_cpus() -> bool {
        let mut allowed: Mask = [0; CPUS / WORD];
        // SAFETY: the mask is live for the call to write as many bytes as it has.
        let got = unsafe {
            let place = allowed.as_mut_ptr();
            libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Mask>(), place)
        };
        // The size of the kernel's masks, in bytes.
        let Ok(bytes) = usize::try_from(got) else { return false };
        let mut visited = 0;
        for cpu in 0..bytes * 8 {
            let mut one: Mask = [0; CPUS / WORD];
            one[cpu / WORD] = 1 << (cpu % WORD);
            visited += usize::from(run_on(&one));
        }
        run_on(&allowed) && visited > 0
    }

    fn run_on(cpus: &Mask) -> bool {
        // SAFETY: the mask is live for the call to read as many bytes as it has. When the call
        // returns, the calling thread runs on one of those.
        let answer = unsafe {
            let (bytes, place) = (size_of::<Mask>(), cpus.as_ptr());
            libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, place)
        };
        answer == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, compiler_fence};

    #[test]
    fn two_sides_never_both_miss_the_other_while_membarrier_is_forbidden() {
        const ROUNDS: usize = 2000;
        let [hot, rare] = [(); 2].map(|()| AtomicBool::new(false));
        let [hot_missed, rare_missed] = [(); 2].map(|()| AtomicBool::new(false));
        let meet = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    meet.wait();
                    hot.store(true, Ordering::Relaxed);
                    compiler_fence(Ordering::SeqCst);
                    hot_missed.store(!rare.load(Ordering::Relaxed), Ordering::Relaxed);
                    meet.wait();
                    meet.wait();
                }
            });
            for round in 0..ROUNDS {
                meet.wait();
                rare.store(true, Ordering::Relaxed);
                assert!(membarrier::visit_all_cpus());
                rare_missed.store(!hot.load(Ordering::Relaxed), Ordering::Relaxed);
                meet.wait();
                let both =
                    hot_missed.load(Ordering::Relaxed) && rare_missed.load(Ordering::Relaxed);
                hot.store(false, Ordering::Relaxed);
                rare.store(false, Ordering::Relaxed);
                meet.wait();
                assert!(!both, "round {round}");
            }
        });
    }
}
