//! Room for the handlers of signals.
//!
//! They run on the signal stack of a thread if it has one, which may be as small as 8 KiB. That is
//! enough to find the machine of a fault, but not to look up lines. So this work runs on a stack of
//! our own.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// As much as a thread of the standard library has.
const BYTES: usize = 2 << 20;
const GUARD: usize = 64 << 10;

/// Stacks that are not in use. Past these, one is mapped for each fault.
static IDLE: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];

/// A stack, as its lowest byte; `None` if the system refuses the mapping.
fn take() -> Option<*mut c_void> {
    let idle = |place: &AtomicPtr<c_void>| place.swap(ptr::null_mut(), Ordering::AcqRel);
    let known = IDLE.iter().map(idle).find(|stack| !stack.is_null());
    known.or_else(|| {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice replaces none.
        let stack = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0) };
        if stack == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is ours; nothing lies in it yet.
        unsafe { libc::mprotect(stack, GUARD, libc::PROT_NONE) };
        Some(stack)
    })
}

fn give_back(stack: *mut c_void) {
    let put = |place: &AtomicPtr<c_void>| {
        place.compare_exchange(ptr::null_mut(), stack, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if !IDLE.iter().any(put) {
        // SAFETY: the mapping is ours, and nothing runs on it any more.
        unsafe { libc::munmap(stack, BYTES) };
    }
}

/// Runs `work`, which does not unwind, with much room.
pub(super) fn with_room<R>(work: impl FnOnce() -> R) -> R {
    struct Call<F, R> {
        work: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(call: *mut c_void) {
        // SAFETY: the call below gives it such a struct, which it lends until this returns.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.result = call.work.take().map(|work| work());
    }
    fn runner<F: FnOnce() -> R, R>(_: &Call<F, R>) -> unsafe extern "C" fn(*mut c_void) {
        run::<F, R>
    }
    let mut call = Call { work: Some(work), result: None };
    let runner = runner(&call);
    let data = (&raw mut call).cast();
    match take() {
        Some(stack) => {
            // SAFETY: the stack is ours alone, and aligned at its end as at its begin, to a page.
            // The function gets what it expects, and does not unwind: an unwinding `extern "C"`
            // function aborts.
            unsafe { switched(stack.wrapping_byte_add(BYTES), runner, data) };
            give_back(stack);
        }
        // SAFETY: as above.
        None => unsafe { runner(data) },
    }
    call.result.expect("it has run")
}

/// Calls `function(data)` on the stack that ends at `top`. Debuggers and backtraces see through it.
///
/// # Safety
///
/// * The stack is mapped, aligned to 16 bytes at its end, and not in use.
/// * `function` may be called with `data`, and does not unwind.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switched(
    top: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// As above.
///
/// # Safety
///
/// * As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn switched(
    top: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa x29, 16",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}

/// On other processors `function` runs on the current stack.
///
/// # Safety
///
/// * `function` may be called with `data`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn switched(_: *mut c_void, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
    // SAFETY: promised by the caller.
    unsafe { function(data) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_room_on_a_thread_that_has_little() {
        #[inline(never)]
        fn deep(depth: usize) -> usize {
            let room = std::hint::black_box([depth as u8; 4096]);
            if depth == 0 { 0 } else { deep(depth - 1) + usize::from(room[7] == depth as u8) }
        }
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let depth = thread.spawn(|| with_room(|| with_room(|| deep(200)))).unwrap().join().unwrap();
        assert_eq!(depth, 200);
    }

    /// The test counts frames, because a program may be stripped of names.
    #[test]
    fn a_backtrace_sees_the_frames_below() {
        const DEPTH: usize = 50;
        #[inline(never)]
        fn frames(depth: usize) -> usize {
            if depth > 0 {
                return std::hint::black_box(frames(depth - 1));
            }
            let trace = with_room(std::backtrace::Backtrace::force_capture).to_string();
            trace.lines().filter(|line| !line.trim_start().starts_with("at ")).count()
        }
        assert!(frames(DEPTH) > DEPTH);
    }
}
