//! Waits and host functions that wait for each other (rules 24 and 25).

use std::sync::Mutex;
use std::time::Duration;

use super::*;

const LIMIT: Duration = Duration::from_millis(50);

fn rigs() -> impl Iterator<Item = Rig> {
    let limited = || Emulator::builder().host_function_limit(LIMIT);
    let lazy = move |seed| limited().execution(Execution::Lazy).seed(seed);
    std::iter::once(Rig::new(limited())).chain((0..4).map(move |seed| Rig::new(lazy(seed))))
}

/// The one finding, which is a deadlock.
fn deadlock(rig: &Rig) -> String {
    assert_eq!(rig.found(), [FindingKind::Deadlock]);
    rig.emulator.findings().remove(0).message
}

#[test]
fn a_lock_cycle_with_a_host_function_is_a_finding_and_no_hang() {
    for rig in rigs() {
        let (stream, lock) = (rig.stream(0), Arc::new(Mutex::new(0)));
        let held = lock.lock().unwrap();
        let of_function = Arc::clone(&lock);
        rig.launch(stream, move || *of_function.lock().unwrap() += 1).unwrap();
        assert_eq!(rig.synchronize(stream), Err(CudaCode::LAUNCH_TIMEOUT));
        let name = format!("stream {:#x} of device 0", stream.handle);
        let message = deadlock(&rig);
        let expected = format!("a wait for {name} depends on the host function of {name}, its");
        assert!(message.starts_with(&expected), "{message}");
        assert!(message.contains("operation 1; that has not returned for "), "{message}");
        drop(held);
        while *lock.lock().unwrap() == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_cycle_through_events_and_functions_that_are_called_one_by_one_is_found_too() {
    for rig in rigs() {
        let (first, second, third) = (rig.stream(0), rig.stream(0), rig.stream(0));
        let (tell, told) = channel::<()>();
        let (tell_begun, begun) = channel();
        // It waits for the other function, whose turn comes when it has returned.
        rig.launch(first, move || {
            tell_begun.send(()).unwrap();
            told.recv().unwrap_or(());
        })
        .unwrap();
        begun.recv().unwrap();
        rig.launch(second, move || tell.send(()).unwrap_or(())).unwrap();
        let behind = rig.mark(second);
        rig.wait(third, behind).unwrap();
        assert_eq!(rig.synchronize(third), Err(CudaCode::LAUNCH_TIMEOUT));
        let message = deadlock(&rig);
        let name = |stream: RawStream| format!("stream {:#x} of device 0", stream.handle);
        for part in [
            format!("a wait for {}", name(third)),
            format!("the host function of {}", name(first)),
            format!("behind which the one of {} waits", name(second)),
        ] {
            assert!(message.contains(&part), "{part}: {message}");
        }
    }
}

#[test]
fn a_slow_host_function_is_no_deadlock() {
    let slow = || std::thread::sleep(4 * LIMIT);
    for (builder, waits) in [
        (Emulator::builder(), true),
        (Emulator::builder().host_function_limit(100 * LIMIT), true),
        // No call waits for the function.
        (Emulator::builder().host_function_limit(LIMIT), false),
    ] {
        let rig = Rig::new(builder);
        let (stream, other) = (rig.stream(0), rig.stream(0));
        rig.launch(stream, slow).unwrap();
        rig.fill(other, rig.memory(0), 1).unwrap();
        rig.synchronize(if waits { stream } else { other }).unwrap();
        if !waits {
            while rig.emulator.usage().pending_operations > 0 {
                std::thread::sleep(LIMIT);
            }
        }
        assert_eq!(rig.found(), []);
    }
}

#[test]
fn a_stream_that_a_test_holds_back_is_no_deadlock() {
    let rig = Rig::new(Emulator::builder().host_function_limit(LIMIT));
    let stream = rig.stream(0);
    rig.emulator.stall(stream).unwrap();
    rig.launch(stream, || ()).unwrap();
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| rig.synchronize(stream));
        std::thread::sleep(4 * LIMIT);
        rig.emulator.release(stream).unwrap();
        wait.join().unwrap().unwrap();
    });
    assert_eq!(rig.found(), []);
}
