//! Threads that cannot start threads.

/// From now on the calling thread cannot start a thread: the system refuses (`EAGAIN`), as it does
/// at a limit of threads. It can still fork. This cannot be undone.
pub fn refuse_threads() {
    // The lower half of the first argument of a system call.
    const FLAGS: u32 = 16;
    filter(&mut [
        load(NUMBER),
        if_equal(libc::SYS_clone3 as u32, 3, 0),
        if_equal(libc::SYS_clone as u32, 0, 3),
        load(FLAGS),
        if_set(libc::CLONE_THREAD as u32, 0, 1),
        give(libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ]);
}

/// As [`refuse_threads`], but a thread can start if the C library has kept the stack of a thread
/// that has ended. The C library keeps up to 40 MiB of stacks.
pub fn refuse_stacks() {
    // The lower half of the fourth argument of a system call.
    const FLAGS: u32 = 40;
    filter(&mut [
        load(NUMBER),
        if_equal(libc::SYS_mmap as u32, 0, 3),
        load(FLAGS),
        if_set(libc::MAP_STACK as u32, 0, 1),
        give(libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ]);
}

/// The offset of the number of a system call.
const NUMBER: u32 = 0;

/// From now on these steps filter the system calls of the calling thread.
fn filter(steps: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program is live, and has as many steps as it says. Both calls concern the calling
    // thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "no new privileges");
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program), 0, "seccomp");
    }
}

fn load(offset: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn give(answer: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, answer, 0, 0)
}

/// The number of steps to skip, by whether the condition holds.
fn if_equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, yes, no)
}

/// The number of steps to skip, by whether the condition holds.
fn if_set(bits: u32, yes: u8, no: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits, yes, no)
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
