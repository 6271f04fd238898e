//! The per-thread default streams of threads that have ended.

use super::*;

const PER_THREAD: RawStream = RawStream { device: 0, handle: RawStream::PER_THREAD };

fn streams(rig: &Rig) -> usize {
    rig.emulator.with(|machine| machine.streams.values().count())
}

#[test]
fn rule_11_the_streams_of_ended_threads_go() {
    for rig in [Rig::eager(), Rig::lazy(1)] {
        let (a, before) = (rig.memory(0), streams(&rig));
        std::thread::scope(|scope| {
            let rig = &rig;
            for _ in 0..10_000 {
                let thread = scope.spawn(move || {
                    rig.fill(PER_THREAD, a, 1).unwrap();
                    rig.synchronize(PER_THREAD).unwrap();
                });
                thread.join().unwrap();
            }
        });
        let left = streams(&rig) - before;
        assert!(left < 50, "{left} streams are left of 10,000 threads");
        assert_eq!(rig.emulator.usage().streams, 1, "default streams are not counted");
    }
}

#[test]
fn rule_12_what_an_ended_thread_enqueued_still_runs() {
    let rig = Rig::eager();
    let (a, host) = (rig.memory(0), rig.host());
    let run =
        |work: &(dyn Fn() + Sync)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    let address = host.as_ptr().expose_provenance();
    let behind = std::sync::Mutex::new(None);
    run(&|| {
        rig.emulator.stall(PER_THREAD).unwrap();
        let host = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap();
        rig.fill(PER_THREAD, a, 7).unwrap();
        rig.download(PER_THREAD, host, a).unwrap();
        *behind.lock().unwrap() = Some(rig.mark(PER_THREAD));
        assert_eq!(rig.emulator.usage().pending_operations, 3, "and the record");
    });
    for _ in 0..200 {
        let own = rig.memory(0);
        run(&|| rig.fill(PER_THREAD, own, 1).unwrap());
    }
    // No call can name the stream to release it, so a query of the event lets it continue.
    let behind = behind.into_inner().unwrap().expect("the thread has recorded it");
    assert_eq!(rig.query_event(behind), Ok(Poll::Done));
    assert_eq!((bytes(host), rig.found()), ([7; BYTES], vec![]));
}
