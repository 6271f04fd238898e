//! Tests that need a process of their own: they fork, end it, or change what all threads see.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinlane::Device;
use pinlane::driver::{HostFlags, StreamFlags};
use pinlane::prefetch::Prefetch;

use super::support::block_on;

const ALONE: &str = "PINLANE_TEST_ALONE";

/// The name of a test in the test runner: the name of its module (`module_path!()`) without that of
/// the program, then its own.
pub fn full_name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, inside)) => format!("{inside}::{test}"),
        None => test.to_owned(),
    }
}

/// Runs a test alone in another process and returns the output; returns `None` in that process.
pub fn run_alone(module: &str, test: &str) -> Option<Output> {
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([&full_name(module, test), "--exact", "--test-threads=1", "--nocapture"]);
    Some(command.env(ALONE, "1").output().expect("it starts"))
}

/// Whether this process runs the calling test alone. If not, starts a process that does, and
/// asserts that it succeeds.
pub fn is_alone(module: &str, test: &str) -> bool {
    let Some(output) = run_alone(module, test) else { return true };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{}: {said}{errors}", output.status);
    print!("{said}");
    false
}

/// Runs `work` in a forked child, which exits with status 0 if `work` returns. Returns the child's
/// status and its standard error. As for [`in_a_forked_child`], the calling test runs
/// [alone](is_alone).
pub fn in_a_child(work: impl FnOnce()) -> (i32, String) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: as in `in_a_forked_child`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: both are open. The alarm kills a child that hangs, and its parent notices.
        unsafe {
            libc::dup2(writer.as_raw_fd(), 2);
            libc::alarm(60);
        }
        std::panic::set_hook(Box::new(|panic| {
            let _ = writeln!(std::io::stderr().lock(), "{panic}");
        }));
        let verdict = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: no preconditions.
        unsafe { libc::_exit(if verdict.is_ok() { 0 } else { 100 }) };
    }
    drop(writer);
    let (mut status, mut said) = (0, Vec::new());
    reader.read_to_end(&mut said).expect("what the child says");
    // SAFETY: `status` is a live `int` for the call to write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    (status, String::from_utf8_lossy(&said).into_owned())
}

/// Runs `check` in a forked child. `check` returns the number of the first thing that is wrong, or
/// 0. The calling test runs [alone](is_alone): locks that threads of other tests hold at the fork
/// would stay locked in the child.
pub fn in_a_forked_child(check: impl FnOnce() -> i32) {
    // SAFETY: the child runs `check` and exits with `_exit`. `check` takes no lock that another
    // thread of this process may have held at the fork, except those of the C library, which
    // survive a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: no preconditions. It kills a child that hangs, and its parent notices.
        unsafe { libc::alarm(20) };
        let verdict = catch_unwind(AssertUnwindSafe(check));
        // SAFETY: no preconditions.
        unsafe { libc::_exit(verdict.unwrap_or(100)) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live `int` for the call to write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child hung or crashed: status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "this check failed in the child");
}

/// Whether the page of an address is mapped in this process.
pub fn is_mapped(address: *const u8) -> bool {
    let page = address.map_addr(|address| address & !4095);
    let mut resident = 0;
    // SAFETY: the call takes an address, of any page, and writes one byte.
    unsafe { libc::mincore(page.cast_mut().cast(), 1, &raw mut resident) == 0 }
}

/// Copies with a machine and a pool of its own, and starts every kind of thread of this crate.
/// Returns the number of the first thing that is wrong, or 0.
pub fn copies() -> i32 {
    const LEN: usize = 2 << 20;
    let device = Device::of_emulator(&super::machine().build(), 0).expect("a device");
    let (stream, pool) = (device.stream().unwrap(), super::pool(&device).build().unwrap());
    // Several threads touch its pages.
    let mut host = pool.alloc::<u32>(LEN).unwrap();
    let values: Vec<u32> = (0..).take(LEN / 4).collect();
    let mut gpu = device.alloc::<u32>(values.len()).unwrap();
    // The copy team.
    stream.upload_slice(&values, &mut gpu).unwrap();
    let ticket = stream.download(&gpu, host.slice_mut(..values.len()).unwrap()).unwrap();
    // Host functions, and in them a release.
    let called = Arc::new(AtomicBool::new(false));
    let (note, released) = (called.clone(), pool.alloc::<u8>(1).unwrap());
    let function = move || {
        drop(released);
        note.store(true, Ordering::Relaxed);
    };
    // The thread that watches tickets, and the one that calls wakers.
    block_on(stream.launch_host(function).unwrap()).unwrap();
    block_on(ticket).unwrap();
    if !called.load(Ordering::Relaxed) || host.read().unwrap()[..values.len()] != values {
        return 1;
    }
    let batches = (0..3_u32).map(|number| vec![number; 10]);
    let batches = Prefetch::new(batches, &pool, &stream).start().unwrap();
    i32::from(batches.filter(Result::is_ok).count() != 3)
}

/// Starts and ends threads of this crate until `stop` is set.
pub fn start_and_end_threads(stop: &AtomicBool) {
    let warm = super::device();
    while !stop.load(Ordering::Relaxed) {
        assert_eq!(copies(), 0);
        (0..50).for_each(|_| warm.warm_up());
    }
}

/// Uses a machine that watches the host, correctly or too early. Returns the number of the first
/// thing that is wrong, or 0.
pub fn watches(too_early: bool) -> i32 {
    let emulator = super::machine().watch_host(true).build();
    let driver = emulator.driver();
    let host = driver.host_alloc(0, 4000, HostFlags::default()).unwrap();
    let words = host.as_ptr().cast::<u32>();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let store = |at: usize| {
        // SAFETY: it lies in the block, and the machine is eager: the copy has run, and nothing
        // else accesses the memory.
        unsafe { words.add(at).write_volatile(7) };
    };
    // SAFETY: the memory is the machine's own, and is freed when the stream is idle.
    unsafe {
        let gpu = driver.device_alloc(stream, 40).unwrap();
        driver.copy_h2d(stream, gpu, host.as_ptr(), 40).unwrap();
        // On the same page.
        store(999);
        let correct = emulator.findings().is_empty();
        if too_early {
            // The finding takes a backtrace, which takes a second in a child.
            store(0);
        }
        let found = emulator.findings().len() == usize::from(too_early);
        driver.stream_synchronize(stream).unwrap();
        let stored = words.add(999).read_volatile() == 7;
        driver.device_free(stream, gpu).unwrap();
        driver.stream_destroy(stream).unwrap();
        driver.host_free(host).unwrap();
        i32::from(!correct || !found || !stored)
    }
}
