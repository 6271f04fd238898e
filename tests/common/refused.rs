//! Threads that cannot start threads.

/// From now on the calling thread cannot start a thread: the system refuses (`EAGAIN`), as it does
/// at a limit of threads. It can still fork. There is no way back.
pub fn refuse_threads() {
    // Where the number and the first argument of a system call are, its lower half first.
    const NUMBER: u32 = 0;
    const FLAGS: u32 = 16;
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    let give = |answer| step(libc::BPF_RET | libc::BPF_K, answer, 0, 0);
    let if_equal =
        |value, yes, no| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, yes, no);
    let if_set = |bits, yes, no| step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits, yes, no);
    let mut steps = [
        load(NUMBER),
        if_equal(libc::SYS_clone3 as u32, 3, 0),
        if_equal(libc::SYS_clone as u32, 0, 3),
        load(FLAGS),
        if_set(libc::CLONE_THREAD as u32, 0, 1),
        give(libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program is live, and has as many steps as it says. Both calls concern the calling
    // thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "no new privileges");
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program), 0, "seccomp");
    }
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
