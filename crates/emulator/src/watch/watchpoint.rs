//! Watchpoints of the processor, which the system lends to a thread (`perf_event_open(2)`).
//!
//! The processor traps after an instruction of the thread that has touched some bytes, and the
//! system raises SIGTRAP. What the system itself touches for the thread does not count. A thread
//! has four of them. Old systems, containers, and systems that reserve them for the administrator
//! do not lend them.
//!
//! # Invariants
//!
//! * A file that stands for a watchpoint has a high number, and is asked for its identity before it
//!   is used: the program may have closed it, and opened another one of that number.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};

/// How many a thread has.
pub(super) const MOST: usize = 4;

/// The calls on the file of a watchpoint (`include/uapi/linux/perf_event.h`).
const ENABLE: c_ulong = 0x2400;
const DISABLE: c_ulong = 0x2401;
const IDENTITY: c_ulong = 0x8008_2407;

/// One watchpoint, or none. The handler of a signal may look at it.
#[derive(Debug)]
pub(super) struct Watchpoint {
    file: AtomicI32,
    identity: AtomicU64,
    /// How many hits are known.
    hits: AtomicU64,
}

impl Watchpoint {
    pub(super) const fn none() -> Self {
        let (file, identity, hits) = (AtomicI32::new(-1), AtomicU64::new(0), AtomicU64::new(0));
        Watchpoint { file, identity, hits }
    }

    /// Watches up to 8 bytes for the calling thread; `bytes` has a power of two of them, and begins
    /// at a multiple of that. Its signals bring `mark`. False if the system has none left.
    pub(super) fn begin(&self, bytes: &Range<usize>, mark: u64) -> bool {
        self.open(bytes, mark) && self.file().is_some_and(|file| control(file, ENABLE))
    }

    /// Takes one, which is not hit yet.
    fn open(&self, bytes: &Range<usize>, mark: u64) -> bool {
        let Some(file) = open(bytes, mark) else { return false };
        self.identity.store(identity_of(file).unwrap_or_default(), Ordering::Relaxed);
        self.hits.store(0, Ordering::Relaxed);
        self.file.store(file, Ordering::Release);
        true
    }

    /// Its file, if that is still there.
    fn file(&self) -> Option<c_int> {
        let file = self.file.load(Ordering::Acquire);
        let is_it = || identity_of(file) == Some(self.identity.load(Ordering::Relaxed));
        (file >= 0 && is_it()).then_some(file)
    }

    /// Whether it was hit since the last question.
    pub(super) fn was_hit(&self) -> bool {
        let Some(file) = self.file() else { return false };
        let mut hits = 0_u64;
        let (to, bytes) = ((&raw mut hits).cast::<c_void>(), size_of::<u64>());
        // Not by the C library, whose function may be replaced.
        // SAFETY: there is room for the count.
        let read = unsafe { libc::syscall(libc::SYS_read, file, to, bytes) };
        read == bytes as i64 && self.hits.swap(hits, Ordering::Relaxed) != hits
    }

    /// It raises no more hits.
    pub(super) fn silence(&self) {
        if let Some(file) = self.file() {
            control(file, DISABLE);
        }
    }

    /// Gives it back. No handler looks at it any more.
    pub(super) fn end(&self) {
        if let Some(file) = self.file() {
            // A child that was forked may have the file, too, and so keep the watchpoint.
            control(file, DISABLE);
            // SAFETY: the file is this one's.
            unsafe { libc::close(file) };
        }
        self.file.store(-1, Ordering::Relaxed);
    }
}

fn control(file: c_int, call: c_ulong) -> bool {
    // SAFETY: such a call takes a number.
    unsafe { libc::ioctl(file, call, 0) == 0 }
}

fn identity_of(file: c_int) -> Option<u64> {
    let mut identity = 0_u64;
    // SAFETY: the call writes a number of 8 bytes.
    let is_known = unsafe { libc::ioctl(file, IDENTITY, &raw mut identity) } == 0;
    is_known.then_some(identity)
}

const UNKNOWN: u8 = 0;
const LENT: u8 = 1;
const REFUSED: u8 = 2;

/// Whether the system lends watchpoints to this process.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether the calling thread may get watchpoints. A caller that begins one must handle SIGTRAP.
pub(super) fn may_be_lent() -> bool {
    if STATE.load(Ordering::Relaxed) == UNKNOWN {
        let state = if can_wait() && !is_simulated() { LENT } else { REFUSED };
        STATE.store(state, Ordering::Relaxed);
    }
    STATE.load(Ordering::Relaxed) == LENT
}

/// Whether the system lends watchpoints to this process, as far as the calling thread can tell.
pub(crate) fn watchpoints_are_lent() -> bool {
    let (point, word) = (Watchpoint::none(), 0_u64);
    let at = std::ptr::from_ref(&word).addr();
    let are_lent = can_wait() && !is_simulated() && point.open(&(at..at + 8), 0);
    point.end();
    are_lent
}

/// Whether a signal waits while its thread blocks it: up to Linux 5.18 it ended the process.
fn can_wait() -> bool {
    // SAFETY: the struct is of bytes; the call fills it, and ends each part of it with a NUL.
    let release = unsafe {
        let mut name: libc::utsname = mem::zeroed();
        if libc::uname(&raw mut name) != 0 {
            return false;
        }
        std::ffi::CStr::from_ptr(name.release.as_ptr()).to_string_lossy().into_owned()
    };
    is_recent(&release)
}

fn is_recent(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(a)), Some(Ok(b))) if (a, b) >= (5, 19))
}

/// Valgrind runs the program's code as its own, and takes the signal for a fault of that.
fn is_simulated() -> bool {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    preloaded.to_string_lossy().contains("vgpreload")
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn open(bytes: &Range<usize>, mark: u64) -> Option<c_int> {
    const BREAKPOINT: u64 = 5;
    const READ_AND_WRITE: u64 = 3;
    // Not at once; not for the system's own accesses; with a signal, and not behind `exec`.
    const FLAGS: u64 = 1 | 1 << 5 | 1 << 6 | 1 << 36 | 1 << 37;
    const CLOSE_ON_EXEC: c_int = 8;
    // The struct is of integers, laid out as in the system's header.
    let mut attributes = [0_u64; 16];
    attributes[0] = BREAKPOINT | (size_of_val(&attributes) as u64) << 32;
    attributes[2] = 1; // each hit
    attributes[5] = FLAGS;
    attributes[6] = READ_AND_WRITE << 32;
    attributes[7] = bytes.start as u64;
    attributes[8] = bytes.len() as u64;
    attributes[15] = mark;
    let (this, any, none) = (0, -1, -1);
    let at = attributes.as_ptr();
    // SAFETY: the struct is as long as it says.
    let file =
        unsafe { libc::syscall(libc::SYS_perf_event_open, at, this, any, none, CLOSE_ON_EXEC) };
    let Ok(file @ 0..) = c_int::try_from(file) else {
        let error = std::io::Error::last_os_error().raw_os_error();
        // Else all are in use.
        if error.is_some_and(|error| ![libc::ENOSPC, libc::EBUSY, libc::EMFILE].contains(&error)) {
            STATE.store(REFUSED, Ordering::Relaxed);
        }
        return None;
    };
    // SAFETY: the file is this function's.
    let high = unsafe {
        let high = libc::fcntl(file, libc::F_DUPFD_CLOEXEC, lowest_file());
        libc::close(file);
        high
    };
    (high >= 0).then_some(high)
}

/// Programs do not rely on file numbers from here on.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn lowest_file() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct, or leaves it as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let limit = limit.rlim_cur.min(1024) as c_int;
    limit - limit / 8
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn open(_: &Range<usize>, _: u64) -> Option<c_int> {
    STATE.store(REFUSED, Ordering::Relaxed);
    None
}

/// What a signal says that comes from a watchpoint: its mark, and whether it had to wait.
pub(super) fn mark_of(info: &libc::siginfo_t) -> Option<(u64, bool)> {
    /// `TRAP_PERF`
    const OF_WATCHPOINT: c_int = 6;
    const HAS_WAITED: u32 = 1;
    #[repr(C)]
    struct Perf {
        head: [c_int; 4],
        address: usize,
        mark: c_ulong,
        kind: u32,
        flags: u32,
    }
    const { assert!(size_of::<Perf>() <= size_of::<libc::siginfo_t>()) };
    if info.si_code != OF_WATCHPOINT {
        return None;
    }
    // SAFETY: with this code, the system has filled these fields; both structs are aligned to 8.
    let perf = unsafe { &*std::ptr::from_ref(info).cast::<Perf>() };
    Some((perf.mark as u64, perf.flags & HAS_WAITED != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_systems_are_told_apart() {
        for (release, recent) in
            [("5.15.0-91-generic", false), ("5.19.0", true), ("6.1.0-18-amd64", true), ("?", false)]
        {
            assert_eq!(is_recent(release), recent, "{release}");
        }
    }

    /// A program may close all of its files. The watchpoint must not close the file that then gets
    /// its number.
    #[test]
    fn a_file_that_is_another_one_by_now_is_left_alone() {
        let (point, word) = (Watchpoint::none(), Box::new(0_u64));
        let at = std::ptr::from_ref(&*word).addr();
        if !can_wait() || !point.begin(&(at..at + 8), 0) {
            return;
        }
        let file = point.file().expect("it is there");
        point.silence();
        // SAFETY: both files are this test's; the first one's number goes to another one.
        let other = unsafe {
            let other = libc::memfd_create(c"other".as_ptr(), libc::MFD_CLOEXEC);
            libc::dup2(other, file);
            other
        };
        assert!(point.file().is_none() && !point.was_hit());
        point.end();
        // SAFETY: asks only, and closes the test's own.
        unsafe {
            assert!(libc::fcntl(file, libc::F_GETFD) >= 0, "still open");
            libc::close(file);
            libc::close(other);
        }
    }
}
