//! Two fences that meet, one of which costs nothing where the kernel helps.
//!
//! Two threads that each store, fence and then load what the other stored cannot both miss the other's
//! store. Where one side is hot and the other rare, the rare side can pay for both: Linux's
//! `membarrier(2)` with `MEMBARRIER_CMD_PRIVATE_EXPEDITED` returns when every running thread of the
//! process has passed a full memory barrier, so that the hot side needs to hold back the compiler only.

use std::sync::atomic::{Ordering, compiler_fence, fence};

/// The kind of fences that this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fences {
    kernel_helps: bool,
}

/// What the kernel offers, found out once.
pub(crate) fn fences() -> Fences {
    static FENCES: std::sync::OnceLock<Fences> = std::sync::OnceLock::new();
    *FENCES.get_or_init(|| Fences { kernel_helps: membarrier::register() })
}

impl Fences {
    /// The hot side's fence.
    #[inline]
    pub(crate) fn light(self) {
        if self.kernel_helps {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The rare side's fence.
    pub(crate) fn heavy(self) {
        fence(Ordering::SeqCst);
        if self.kernel_helps {
            membarrier::run();
        }
    }
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
        // The second call shows that what was registered is not forbidden by a sandbox.
        call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED)
    }

    pub(super) fn run() {
        if !call(PRIVATE_EXPEDITED) {
            // The hot sides rely on it, and there is no way to tell them. To go on could hand out one
            // block twice.
            eprintln!("pinlane: membarrier(2) worked when it was registered, and fails now");
            std::process::abort();
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
