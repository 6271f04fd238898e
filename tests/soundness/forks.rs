//! Rule 22: a child that is forked at any moment can use devices and pools of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::process::{copies, in_a_forked_child, is_alone, start_and_end_threads};

/// Threads of this crate take no lock that a fork may leave locked, neither their own nor one of
/// the standard library, which the program's own threads may hold.
#[test]
fn rule_22_a_child_can_copy_whatever_threads_start_and_end_at_the_fork() {
    if !is_alone(
        module_path!(),
        "rule_22_a_child_can_copy_whatever_threads_start_and_end_at_the_fork",
    ) {
        return;
    }
    const FORKS: usize = 40;
    let stop = Arc::new(AtomicBool::new(false));
    let start_and_end = [start_and_end_threads, start_and_end_std, start_and_end_std];
    let others = start_and_end.map(|work| {
        let stop = stop.clone();
        thread::spawn(move || work(&stop))
    });
    for _ in 0..FORKS {
        in_a_forked_child(copies);
    }
    stop.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|other| other.join().expect("no panic"));
}

/// Starts and ends threads of the program. When one ends, the standard library frees its name under
/// a lock: freeing a long name takes long.
fn start_and_end_std(stop: &AtomicBool) {
    // SAFETY: it only sets an option of the process's allocator, which from now on returns a long
    // name to the system.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) };
    while !stop.load(Ordering::Relaxed) {
        let named = thread::Builder::new().name("n".repeat(1 << 20));
        named.spawn(|| ()).expect("a thread").join().expect("no panic");
    }
}
