//! Events of the caller: with them streams of this crate wait for other work, and other work waits
//! for streams of this crate.

use std::ffi::c_void;
use std::sync::Arc;

use pinlane::driver::{Driver, Poll, RawEvent, RawStream, StreamFlags};
use pinlane::{ErrorKind, Stream};

use crate::common::support::{Rig, on_lazy_machines, raw};

/// An event and a stream that this crate does not know.
struct Elsewhere {
    driver: Arc<dyn Driver>,
    stream: RawStream,
    event: RawEvent,
}

// SAFETY (of all calls of the driver and with its event, unless they say otherwise): the stream and
// the event were created by the driver of the rig, on device 0, and are destroyed in `drop`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Elsewhere {
    fn new(rig: &Rig) -> Elsewhere {
        let driver = rig.emulator.driver();
        let stream = driver.stream_create(0, StreamFlags { blocking: false, priority: 0 }).unwrap();
        let event = driver.event_create(0, false).unwrap();
        Elsewhere { driver, stream, event }
    }

    fn native(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.event.handle)
    }

    fn record(&self) {
        unsafe { self.driver.event_record(self.event, self.stream) }.unwrap();
    }

    fn wait(&self) {
        unsafe { self.driver.stream_wait_event(self.stream, self.event) }.unwrap();
    }

    fn is_idle(&self) -> bool {
        let answer = unsafe { self.driver.stream_query(self.stream) };
        answer == Ok(Poll::Done)
    }
}

#[allow(clippy::undocumented_unsafe_blocks)] // as above
impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = unsafe { self.driver.event_destroy(self.event) };
        let _ = unsafe { self.driver.stream_destroy(self.stream) };
    }
}

#[test]
fn a_stream_waits_for_an_event_of_the_caller() {
    on_lazy_machines(1, |rig| {
        let elsewhere = Elsewhere::new(&rig);
        // SAFETY: the stream outlives this handle and its work, which the test waits for.
        let stream = unsafe {
            rig.device.borrow_stream(std::ptr::without_provenance_mut(elsewhere.stream.handle))
        };
        rig.stall(&stream);
        elsewhere.record();
        let before = rig.stream.record().unwrap();
        // SAFETY: a live event.
        unsafe { rig.stream.wait_event(elsewhere.native()) }.unwrap();
        let behind = rig.stream.record().unwrap();
        before.wait().unwrap();
        assert!((0..20).all(|_| !behind.is_done().unwrap()));
        rig.release(&stream);
        behind.wait().unwrap();
        rig.assert_no_misuse();
    });
}

#[test]
fn an_event_of_the_caller_tells_of_all_work_before_it() {
    on_lazy_machines(1, |rig| {
        let elsewhere = Elsewhere::new(&rig);
        let (host, mut gpu) = (rig.host(3), rig.gpu());
        rig.stall(&rig.stream);
        rig.stream.upload(&host, &mut gpu).unwrap(); // one small copy: its group is still open
        // SAFETY: a live event.
        unsafe { rig.stream.record_event(elsewhere.native()) }.unwrap();
        elsewhere.wait();
        assert!((0..20).all(|_| !elsewhere.is_idle()));
        rig.release(&rig.stream);
        // SAFETY: a live event.
        unsafe { elsewhere.driver.event_synchronize(elsewhere.event) }.unwrap();
        assert_eq!(rig.contents(&gpu)[0], 3);
        rig.assert_no_misuse();
    });
}

/// After a wait for the caller's event, the caller can hold up the stream.
#[test]
fn small_copies_share_no_event_behind_a_wait_for_the_caller() {
    on_lazy_machines(1, |rig| {
        let elsewhere = Elsewhere::new(&rig);
        elsewhere.record();
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        // SAFETY: a live event.
        unsafe { rig.stream.wait_event(elsewhere.native()) }.unwrap();
        let events = rig.emulator.calls(pinlane::driver::Call::EventRecord);
        for _ in 0..3 {
            rig.stream.upload(&host, &mut gpu).unwrap();
        }
        assert_eq!(rig.emulator.calls(pinlane::driver::Call::EventRecord), events + 3);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_11_a_capturing_stream_neither_waits_for_an_event_nor_records_one() {
    on_lazy_machines(1, |rig| {
        let elsewhere = Elsewhere::new(&rig);
        rig.emulator.begin_capture(raw(&rig.stream)).unwrap();
        // SAFETY: a live event.
        let both: [fn(&Stream, *mut c_void) -> pinlane::Result<()>; 2] = [
            |stream, event| unsafe { stream.wait_event(event) },
            |stream, event| unsafe { stream.record_event(event) },
        ];
        for call in both {
            let error = call(&rig.stream, elsewhere.native()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StreamCapturing);
        }
        assert_eq!(rig.emulator.end_capture(raw(&rig.stream)), Ok(0), "alive, nothing recorded");
        rig.assert_no_misuse();
    });
}
