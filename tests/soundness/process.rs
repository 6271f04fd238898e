//! Rule 14: a forked child, and the end of the process.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use pinlane::driver::{Call, cuda};
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::staging::Staging;
use pinlane::trace::Recording;
use pinlane::{CudaCode, Device, Error, ErrorKind, pool::Stats};

use crate::common;
use crate::common::process::{in_a_forked_child, is_alone, is_mapped, watches};
use crate::support::{BLOCK, LEN, Rig, Stalled, all_calls, eventually};

#[test]
fn rule_14_a_forked_child_is_refused_everything_and_drops_quietly() {
    if !is_alone(module_path!(), "rule_14_a_forked_child_is_refused_everything_and_drops_quietly") {
        return;
    }
    let rig = Rig::new(Execution::Lazy, 0, 2);
    let (mut host, mut gpu) = (rig.host(1), rig.gpu());
    let mut back = rig.host(0);
    let idle = rig.device.stream().unwrap();
    let recording = Recording::new();
    rig.device.record(&recording).unwrap();
    let ticket = rig.stream.upload(&host, &mut gpu).unwrap();
    rig.stream.download(&gpu, &mut back).unwrap();
    let _ = cuda().is_some() && Device::available().is_empty();
    in_a_forked_child(|| {
        let before = all_calls(&rig.emulator);
        fn refused<T>(result: Result<T, Error>) -> bool {
            result.is_err_and(|error| error.kind() == ErrorKind::ForkedProcess)
        }
        let Rig { emulator, device, pool, stream, .. } = &rig;
        let mut other = pool.alloc::<u8>(0).err();
        // SAFETY: nothing is launched.
        let foreign = unsafe { stream.foreign(&[], &mut [], |_| ()) };
        let checks = [
            other.take().is_some_and(|error| error.kind() == ErrorKind::ForkedProcess),
            refused(pool.alloc::<u8>(1)),
            refused(pool.alloc_zeroed::<u8>(1)),
            refused(pool.try_alloc::<u8>(1)),
            refused(common::pool(device).build()),
            refused(device.alloc::<u8>(1)),
            refused(device.alloc::<u8>(0)),
            refused(device.stream()),
            refused(device.memory_info()),
            refused(device.record(&recording)),
            refused(device.record(&Recording::new())),
            refused(recording.stop().map_err(Error::from)),
            refused(stream.upload(&host, &mut gpu)),
            refused(stream.download(&gpu, &mut host)),
            refused(stream.fill(&mut gpu, 1)),
            refused(stream.upload(host.slice(..0).unwrap(), gpu.slice_mut(..0).unwrap())),
            refused(stream.record()),
            refused(stream.wait_for(&ticket)),
            refused(stream.launch_host(|| ())),
            refused(stream.busy(std::time::Duration::ZERO)),
            refused(stream.synchronize()),
            refused(idle.synchronize()),
            refused(device.legacy_stream().synchronize()),
            refused(foreign),
            refused(ticket.wait()),
            refused(ticket.is_done()),
            refused(crate::support::block_on(ticket.clone())),
            refused(host.read()),
            refused(host.write()),
            refused(host.try_read()),
            refused(back.try_write()),
            pool.stats() == Stats::default(),
            cuda().is_none() || refused(Device::open(0)),
            cuda().is_none() || Device::available().is_empty(),
            all_calls(emulator) == before,
        ];
        if let Some(wrong) = checks.iter().position(|&right| !right) {
            return wrong as i32 + 1;
        }
        let emulator = emulator.clone();
        drop((host, gpu, back, idle, ticket, rig));
        if all_calls(&emulator) == before { 0 } else { 99 }
    });
}

/// The child has neither a copy of it, which would take long, nor the memory itself, which would
/// let the child change the parent's bytes.
#[test]
fn rule_14_memory_of_a_pool_is_not_in_a_forked_child() {
    if !is_alone(module_path!(), "rule_14_memory_of_a_pool_is_not_in_a_forked_child") {
        return;
    }
    let rig = Rig::new(Execution::Eager, 0, 600);
    let one = rig.host(1);
    let large = rig.pool.alloc::<u32>(500 * LEN).unwrap();
    let starts = [one.as_ptr(), large.as_ptr(), large.as_ptr().wrapping_add(499 * LEN)];
    assert!(starts.iter().all(|start| is_mapped(start.cast())));
    in_a_forked_child(|| starts.iter().filter(|start| is_mapped(start.cast())).count() as i32);
    assert!(one.read().unwrap().iter().all(|&value| value == 1));
}

/// The next owner of the pages may need them in a child.
#[test]
fn rule_14_memory_that_a_pool_has_given_back_is_in_a_forked_child() {
    if !is_alone(module_path!(), "rule_14_memory_that_a_pool_has_given_back_is_in_a_forked_child") {
        return;
    }
    let mut starts = Vec::new();
    // These keep the system's allocator from giving all of it back.
    let mut between = Vec::new();
    for _ in 0..16 {
        let rig = Rig::new(Execution::Eager, 0, 8);
        let host = [(); 8].map(|()| rig.host(1));
        between.push(vec![1_u8; 1000]);
        starts.extend(host.iter().map(|host| host.as_ptr()));
        drop(host);
        rig.pool.trim().unwrap();
        assert_eq!(rig.pool.stats().committed_bytes, 0);
    }
    starts.retain(|start| is_mapped(start.cast()));
    in_a_forked_child(|| starts.iter().filter(|start| !is_mapped(start.cast())).count() as i32);
}

/// A recording of the parent may be locked forever in a child, and the child may have a device of
/// its own.
#[test]
fn rule_14_a_recording_of_the_parent_notes_nothing_in_a_forked_child() {
    if !is_alone(
        module_path!(),
        "rule_14_a_recording_of_the_parent_notes_nothing_in_a_forked_child",
    ) {
        return;
    }
    let (recording, rig) = (Recording::new(), Rig::new(Execution::Eager, 0, 1));
    rig.device.record(&recording).unwrap();
    in_a_forked_child(|| {
        let own = common::device();
        let refused = own.record(&recording).is_err_and(|e| e.kind() == ErrorKind::ForkedProcess);
        let recorded = own.record(&Recording::new()).is_ok();
        i32::from(!(refused && recorded))
    });
}

/// A child may be forked while other threads hold the pool's lock: its drops must not wait for it.
#[test]
fn rule_14_drops_in_a_forked_child_wait_for_no_lock() {
    if !is_alone(module_path!(), "rule_14_drops_in_a_forked_child_wait_for_no_lock") {
        return;
    }
    let rig = Rig::new(Execution::Eager, 0, 8);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(rig.pool.alloc::<u32>(LEN).unwrap());
                    let _ = rig.pool.stats();
                }
            });
        }
        // Also set when an assertion below fails, because the scope waits for its threads.
        let _stop = OnDrop(|| stop.store(true, Ordering::Relaxed));
        for _ in 0..200 {
            let host = rig.pool.alloc::<u32>(LEN).unwrap();
            in_a_forked_child(|| {
                drop(host);
                i32::from(rig.pool.stats() != Stats::default())
            });
        }
    });
}

/// Nothing serves the parent's request in a child, where the pool's lock may be held forever.
#[test]
fn rule_14_a_future_of_the_parent_ends_in_a_forked_child() {
    if !is_alone(module_path!(), "rule_14_a_future_of_the_parent_ends_in_a_forked_child") {
        return;
    }
    let rig = Rig::new(Execution::Eager, 0, 1);
    let host = rig.host(1);
    for _ in 0..100 {
        let mut task = Context::from_waker(Waker::noop());
        let mut future = Box::pin(rig.pool.alloc_async::<u32>(LEN));
        assert!(future.as_mut().poll(&mut task).is_pending());
        in_a_forked_child(|| {
            let end = future.as_mut().poll(&mut task);
            drop(future);
            let forked = |error: &Error| error.kind() == ErrorKind::ForkedProcess;
            i32::from(!matches!(end, Poll::Ready(Err(error)) if forked(&error)))
        });
    }
    drop(host);
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn rule_14_while_the_driver_unloads_drops_are_quiet_and_counted() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let rig = Rig::new(execution, 0, 2);
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        let second = rig.device.stream().unwrap();
        let ticket = rig.stream.upload(&host, &mut gpu).unwrap();
        second.fill(&mut gpu, 1).unwrap();
        drop(rig.host(2));
        for call in Call::ALL {
            rig.emulator.inject(Fault::forever(call, CudaCode::CUDART_UNLOADING));
        }
        let Rig { emulator, device, pool, stream, .. } = rig;
        drop(gpu);
        assert_eq!(device.quarantined_bytes(), LEN * size_of::<u32>());
        // Another size: the pool tries to free its cached memory, and cannot.
        let error = pool.alloc::<u32>(LEN + 1).unwrap_err();
        assert!(pool.stats().quarantined_bytes >= BLOCK, "{error}, {}", pool.stats());
        drop((host, ticket, second, stream, pool, device));
        eventually("nothing more happens", || emulator.usage().host_blocks == 2);
        assert_eq!(emulator.findings(), []);
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Check = fn(&Emulator) -> bool;

/// The machine of a test whose process ends, and what is then true of it.
static ENDING: OnceLock<(Emulator, Check)> = OnceLock::new();

/// The handlers of `exit` run in reverse order: this one after the crate's.
extern "C" fn check_at_the_end() {
    if !ENDING.get().is_some_and(|(emulator, check)| check(emulator)) {
        // SAFETY: no preconditions.
        unsafe { libc::_exit(3) };
    }
}

/// A device of a machine for which `check` is true when this process ends.
fn device_at_the_end(check: Check) -> Device {
    let (emulator, _) = ENDING.get_or_init(|| (common::machine().build(), check));
    // SAFETY: the function may be called at the end of the process, and stays until then.
    assert_eq!(unsafe { libc::atexit(check_at_the_end) }, 0);
    Device::of_emulator(emulator, 0).unwrap()
}

/// The extra thread is still page-locking when the test's process ends. It has the device's last
/// handle, so it also gives everything back.
#[test]
fn rule_14_the_end_of_the_process_waits_for_a_warm_up() {
    if !is_alone(module_path!(), "rule_14_the_end_of_the_process_waits_for_a_warm_up") {
        return;
    }
    let device = device_at_the_end(|emulator| {
        let usage = emulator.usage();
        (usage.host_bytes, usage.streams) == (0, 0)
    });
    device.set_staging(Staging::new().ring_bytes(128 << 20)).unwrap();
    device.warm_up();
}

/// What the check at the end drops.
static DROPPED_LAST: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);

/// Until then nothing of the pool is free for long enough.
#[test]
fn rule_14_a_pool_gives_nothing_back_when_the_process_ends() {
    if !is_alone(module_path!(), "rule_14_a_pool_gives_nothing_back_when_the_process_ends") {
        return;
    }
    let device = device_at_the_end(|emulator| {
        drop(DROPPED_LAST.lock().unwrap().take());
        thread::sleep(Duration::from_millis(200));
        emulator.usage().host_bytes > 0
    });
    let pool = common::pool(&device).idle_age(Duration::from_millis(5)).build().unwrap();
    *DROPPED_LAST.lock().unwrap() = Some(Box::new(pool.alloc::<u8>(LEN).unwrap()));
    std::mem::forget(pool);
}

/// The thread that watches awaited tickets has the last one of a stream.
#[test]
fn rule_14_no_stream_is_destroyed_when_the_process_ends() {
    if !is_alone(module_path!(), "rule_14_no_stream_is_destroyed_when_the_process_ends") {
        return;
    }
    let device = device_at_the_end(|emulator| {
        let streams = emulator.usage().streams;
        drop(DROPPED_LAST.lock().unwrap().take());
        thread::sleep(Duration::from_millis(200));
        emulator.usage().streams == streams
    });
    let (emulator, _) = ENDING.get().unwrap();
    let stream = device.stream().unwrap();
    std::mem::forget((Stalled::new(emulator, &stream), device));
    let mut ticket = stream.record().unwrap();
    assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    eventually("it is watched", || emulator.calls(Call::EventQuery) > 5);
    *DROPPED_LAST.lock().unwrap() = Some(Box::new(ticket));
}

/// Awaits a ticket that is pending at first.
fn is_woken(rig: &Rig) {
    rig.stall(&rig.stream);
    let mut ticket = rig.stream.record().unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
    rig.release(&rig.stream);
    eventually("it is woken", || woken.0.load(Ordering::Relaxed));
}

/// A device that the child opened itself works like that of its parent.
#[test]
fn rule_14_a_forked_child_may_await_copies_of_a_device_of_its_own() {
    if !is_alone(module_path!(), "rule_14_a_forked_child_may_await_copies_of_a_device_of_its_own") {
        return;
    }
    let await_one = || {
        let rig = Rig::new(Execution::Eager, 0, 1);
        is_woken(&rig);
        rig.assert_nothing_is_left();
        0
    };
    assert_eq!(await_one(), 0);
    in_a_forked_child(await_one);
}

#[test]
fn rule_22_a_child_of_a_watching_parent_watches_on_a_device_of_its_own() {
    if !is_alone(
        module_path!(),
        "rule_22_a_child_of_a_watching_parent_watches_on_a_device_of_its_own",
    ) {
        return;
    }
    assert_eq!(watches(true), 0);
    let rig = Rig::on(common::machine().devices(2).watch_host(true).build(), 2);
    let (host, mut gpu) = (rig.host(1), rig.gpu());
    rig.stream.upload(&host, &mut gpu).unwrap();
    in_a_forked_child(|| watches(true));
    rig.stream.synchronize().unwrap();
    assert_eq!(rig.emulator.findings(), []);
}

/// Whatever locks other threads hold at the fork.
#[test]
fn rule_22_children_that_are_forked_while_machines_are_made_and_watch_do_not_hang() {
    if !is_alone(
        module_path!(),
        "rule_22_children_that_are_forked_while_machines_are_made_and_watch_do_not_hang",
    ) {
        return;
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(watches(true), 0);
                }
            });
        }
        // Also set when an assertion below fails, because the scope waits for its threads.
        let _stop = OnDrop(|| stop.store(true, Ordering::Relaxed));
        (0..300).for_each(|round| in_a_forked_child(|| watches(round % 8 == 0)));
    });
}

/// The C library's fork handlers do not run if a program forks without the C library.
#[test]
fn rule_14_a_child_of_a_bare_system_call_is_refused_too() {
    if !is_alone(module_path!(), "rule_14_a_child_of_a_bare_system_call_is_refused_too") {
        return;
    }
    let rig = Rig::new(Execution::Eager, 0, 1);
    let host = rig.host(1);
    // SAFETY: a child with a copy of the memory, as from `fork`; it takes no lock and leaves by
    // `_exit`.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(child >= 0, "clone failed");
    if child == 0 {
        // SAFETY: no preconditions. It kills a child that hangs, and its parent notices.
        unsafe { libc::alarm(20) };
        let forked = host.read().is_err_and(|error| error.kind() == ErrorKind::ForkedProcess);
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop((host, rig))));
        // SAFETY: no preconditions.
        unsafe { libc::_exit(i32::from(!forked || dropped.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live `int` for the call to write.
    assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, &mut status, 0) }), child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}

/// System calls that a process forbids itself while pinlane runs.
mod forbidden {
    use super::*;

    /// Makes these system calls fail with `EPERM` on the calling thread and on the threads that it
    /// starts, permanently.
    fn forbid(calls: &[libc::c_long]) {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
        // The number of the call is the first field of `struct seccomp_data`.
        let mut filter = vec![step(LOAD, 0, 0)];
        for (index, &call) in calls.iter().enumerate() {
            filter.push(step(IF_EQUAL, (calls.len() - index) as u8, call as u32));
        }
        filter.push(step(RETURN, 0, libc::SECCOMP_RET_ALLOW));
        filter.push(step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its steps are live for the call, which copies them.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    #[test]
    fn a_thread_that_could_not_be_started_is_tried_again() {
        if !is_alone(module_path!(), "a_thread_that_could_not_be_started_is_tried_again") {
            return;
        }
        let rig = Rig::new(Execution::Eager, 0, 1);
        rig.stall(&rig.stream);
        let mut ticket = rig.stream.record().unwrap();
        thread::scope(|scope| {
            let starts_no_threads = scope.spawn(|| {
                forbid(&[libc::SYS_clone, libc::SYS_clone3]);
                let mut task = Context::from_waker(Waker::noop());
                Pin::new(&mut ticket).poll(&mut task)
            });
            let polled = starts_no_threads.join().unwrap();
            let Poll::Ready(Err(error)) = polled else { panic!("{polled:?}") };
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("could not be started"), "{error}");
        });
        rig.release(&rig.stream);
        drop(ticket);
        is_woken(&rig);
        rig.assert_nothing_is_left();
    }

    #[test]
    fn the_pool_goes_on_without_membarrier() {
        if !is_alone(module_path!(), "the_pool_goes_on_without_membarrier") {
            return;
        }
        let rig = Rig::new(Execution::Eager, 0, 64);
        drop(rig.host(1));
        forbid(&[libc::SYS_membarrier]);
        thread::scope(|scope| {
            // This thread's cache has the blocks that collections look for.
            let other = scope.spawn(|| (0..200).for_each(|_| drop(rig.host(2))));
            for _ in 0..50 {
                rig.pool.trim().unwrap();
                drop(rig.host(1));
            }
            other.join().unwrap();
        });
        rig.pool.trim().unwrap();
        assert_eq!(rig.pool.stats().committed_bytes, 0);
        rig.assert_nothing_is_left();
    }
}
