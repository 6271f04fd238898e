//! Pages that are open for the host function which runs.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::watch::STEPS;

const LEN: usize = 64 * 4096;

/// What a host function is given, and what it says.
struct Task {
    memory: NonNull<u8>,
    /// All work is enqueued.
    may_begin: AtomicBool,
    steps: AtomicU32,
}

impl Task {
    fn of(memory: NonNull<u8>) -> Task {
        Task { memory, may_begin: AtomicBool::new(false), steps: AtomicU32::new(0) }
    }
}

/// Writes all bytes but those of the first page's second half.
unsafe extern "C" fn fill(task: *mut c_void) {
    // SAFETY: the test keeps the task until the function has returned, and the memory, too.
    let task = unsafe { &*task.cast::<Task>() };
    while !task.may_begin.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
    let before = STEPS.get();
    for at in (0..LEN).filter(|at| !(2048..4096).contains(at)) {
        // SAFETY: inside of the memory.
        unsafe { task.memory.as_ptr().add(at).write_volatile(7) };
    }
    task.steps.store(STEPS.get() - before, Ordering::Relaxed);
}

/// A host function, and a copy after it that reads what it writes. `beside`: what another stream,
/// which nothing orders, copies from there. Gives how many stores were let through one by one.
fn run(beside: Option<(usize, usize)>) -> (u32, Vec<FindingKind>) {
    let emulator = Emulator::builder().watch_host(true).devices(1).memory_bytes(1 << 24).build();
    let driver = emulator.driver();
    let [first, second] =
        [(); 2].map(|()| driver.stream_create(0, StreamFlags::default()).unwrap());
    let memory = driver.host_alloc(0, LEN, HostFlags::default()).unwrap();
    let task = Task::of(memory);
    let data = (&raw const task).cast_mut().cast();
    // SAFETY: streams and memory are live; the task lives until the stream is done.
    unsafe {
        let gpu = driver.device_alloc(first, LEN).unwrap();
        let other = driver.device_alloc(second, LEN).unwrap();
        driver.launch_host(first, fill, data).unwrap();
        driver.copy_h2d(first, gpu, memory.as_ptr(), LEN).unwrap();
        if let Some((at, bytes)) = beside {
            driver.copy_h2d(second, other, memory.as_ptr().add(at), bytes).unwrap();
        }
        task.may_begin.store(true, Ordering::Release);
        driver.stream_synchronize(first).unwrap();
        driver.stream_synchronize(second).unwrap();
    }
    let found = emulator.findings().iter().map(|finding| finding.kind).collect();
    (task.steps.into_inner(), found)
}

#[test]
fn a_function_writes_ahead_of_a_copy_at_full_speed() {
    assert_eq!(run(None), (0, vec![]));
}

/// The host learns that the function has returned, and not that the copy is done.
#[test]
fn when_the_function_has_returned_its_pages_are_closed_again() {
    let emulator = Emulator::builder().watch_host(true).devices(1).memory_bytes(1 << 24).build();
    let driver = emulator.driver();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let memory = driver.host_alloc(0, LEN, HostFlags::default()).unwrap();
    let task = Task::of(memory);
    let data = (&raw const task).cast_mut().cast();
    // SAFETY: as in `run`; the event is live.
    unsafe {
        let gpu = driver.device_alloc(stream, LEN).unwrap();
        let event = driver.event_create(0, false).unwrap();
        driver.launch_host(stream, fill, data).unwrap();
        driver.event_record(event, stream).unwrap();
        driver.copy_h2d(stream, gpu, memory.as_ptr(), LEN).unwrap();
        task.may_begin.store(true, Ordering::Release);
        driver.event_synchronize(event).unwrap();
        memory.as_ptr().add(4096).write_volatile(8);
        driver.stream_synchronize(stream).unwrap();
    }
    let found: Vec<_> = emulator.findings().iter().map(|finding| finding.kind).collect();
    assert_eq!(found, [FindingKind::Race]);
}

/// Another thread writes too early while the function runs, after a call of its own.
#[test]
fn a_call_of_another_thread_closes_what_is_lent() {
    static STAGE: AtomicU32 = AtomicU32::new(0);
    fn stage(number: u32) {
        while STAGE.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
    }
    unsafe extern "C" fn touches(memory: *mut c_void) {
        // SAFETY: the test keeps the memory until the function has returned.
        unsafe { memory.cast::<u8>().write_volatile(7) };
        STAGE.store(1, Ordering::Release);
        stage(2);
    }
    let emulator = Emulator::builder().watch_host(true).devices(1).memory_bytes(1 << 24).build();
    let driver = emulator.driver();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let memory = driver.host_alloc(0, LEN, HostFlags::default()).unwrap().as_ptr();
    // SAFETY: as in `run`.
    unsafe {
        let gpu = driver.device_alloc(stream, LEN).unwrap();
        driver.launch_host(stream, touches, memory.cast()).unwrap();
        driver.copy_h2d(stream, gpu, memory, LEN).unwrap();
        stage(1);
        driver.memory_info(0).unwrap();
        memory.add(50).write_volatile(8);
        STAGE.store(2, Ordering::Release);
        driver.stream_synchronize(stream).unwrap();
    }
    let found: Vec<_> = emulator.findings().iter().map(|finding| finding.kind).collect();
    assert_eq!(found, [FindingKind::Race]);
}

#[test]
fn beside_other_uses_of_a_page_each_store_is_looked_at() {
    assert_eq!(run(Some((2048, 2048))), (2048, vec![]), "the first half of the first page");
}

#[test]
fn a_copy_that_nothing_orders_races_with_the_function() {
    let (_, found) = run(Some((5 * 4096, 10)));
    assert_eq!(found, [FindingKind::Race]);
}
