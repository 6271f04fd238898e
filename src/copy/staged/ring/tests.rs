//! Every slot comes back after any failure in the middle of a copy.

use std::time::{Duration, Instant};

use super::*;
use crate::batch::{Download, Downloads, Route, Upload, Uploads};
use crate::copy::staged::options::IN_FLIGHT;
use crate::copy::staged::queue::Filled;
use crate::copy::staged::{Engine, Staging};
use crate::device::Device;
use crate::driver::Call;
use crate::driver::emulated::{Emulator, Execution, Fault, Repeat};
use crate::error::CudaCode;
use crate::memory::DeviceBuf;
use crate::stream::Stream;

const SLOT: usize = 4096;
const SLOTS: usize = 3;
/// Long enough for several rounds of the ring.
const LENGTH: usize = 14 * SLOT + 9;

impl Ring {
    fn at_home(&self) -> usize {
        let state = self.state.lock();
        state.free.iter().map(VecDeque::len).sum::<usize>() + state.unmade.len()
    }
}

fn device(execution: Execution) -> (Emulator, Device) {
    let emulator = Emulator::builder().execution(execution).build();
    let device = Device::of_emulator(&emulator, 0).expect("no faults");
    let staging = Staging::new().slot_bytes(SLOT).ring_bytes(SLOTS * SLOT).first_bytes(1024);
    let staging = staging.unit_bytes(1024).direct_bytes(100).streaming_bytes(SLOT);
    device.set_staging(staging).expect("nothing copied yet");
    (emulator, device)
}

fn copy(stream: &Stream, gpu: &mut DeviceBuf<u8>, route: Route) -> [Result<()>; 2] {
    let mut host = vec![1; LENGTH];
    let mut list = Uploads::from_iter([Upload::new(&host, &mut *gpu)]).route(route);
    let up = stream.upload_list(&mut list).map(drop);
    let mut list = Downloads::from_iter([Download::new(&*gpu, &mut host)]).route(route);
    [up, stream.download_list(&mut list).map(drop)]
}

fn check(execution: Execution, route: Route, fault: Fault) {
    let (emulator, device) = device(execution);
    let stream = device.stream().expect("no faults");
    let mut gpu = device.alloc::<u8>(LENGTH).expect("no faults");
    // The stream is exposed, so that only events and the stream itself show when a copy is
    // complete.
    let _ = stream.as_raw();
    emulator.inject(fault);
    let results = copy(&stream, &mut gpu, route);
    emulator.clear_faults();
    let ring = &stream.device.engine().expect("set above").ring;
    assert_eq!(ring.at_home(), SLOTS, "{route}, {fault:?}: {results:?}");
    if !fault.code.is_sticky() {
        let [up, _] = copy(&stream, &mut gpu, route);
        up.expect("the fault is over");
        assert_eq!(ring.at_home(), SLOTS);
    }
}

fn every_slot_comes_back(execution: Execution) {
    let calls = [
        Call::HostRegister,
        Call::DeviceAlloc,
        Call::CopyH2D,
        Call::CopyD2H,
        Call::CopyBatch,
        Call::MoveItems,
        Call::StreamWaitEvent,
        Call::StreamCapture,
        Call::StreamSynchronize,
        Call::EventCreate,
        Call::EventRecord,
        Call::EventQuery,
        Call::EventSynchronize,
    ];
    for route in [Route::Copies, Route::BatchCall, Route::Kernel] {
        for call in calls {
            for nth in [1, 2, 3, 4, 6, 9, 14] {
                let code = [CudaCode::UNKNOWN, CudaCode::ILLEGAL_ADDRESS][nth % 2];
                for repeat in [Repeat::Once, Repeat::Forever] {
                    let fault = Fault { call, nth: nth as u64, code, repeat, late: false };
                    check(execution, route, fault);
                    check(execution, route, fault.late());
                }
            }
        }
    }
}

#[test]
fn every_slot_comes_back_whatever_fails_eagerly() {
    every_slot_comes_back(Execution::Eager);
}

#[test]
fn every_slot_comes_back_whatever_fails_lazily() {
    every_slot_comes_back(Execution::Lazy);
}

/// A copy that is written through the caches uses few slots in turns, however many there are. A
/// thread's default stream makes one thread copy alone: a helper might be late with a slot.
#[test]
fn a_long_upload_uses_few_slots() {
    let made = |streaming: usize| {
        let emulator = Emulator::builder().execution(Execution::Lazy).build();
        let device = Device::of_emulator(&emulator, 0).expect("no faults");
        let staging = Staging::new().slot_bytes(SLOT).ring_bytes(16 * SLOT).first_bytes(SLOT);
        device.set_staging(staging.streaming_bytes(streaming)).expect("nothing copied yet");
        let stream = device.per_thread_stream();
        let engine = stream.device.engine().expect("set above");
        let mut gpu = device.alloc::<u8>(40 * SLOT).expect("no faults");
        stream.upload_slice(&vec![1; gpu.len()], &mut gpu).expect("no faults");
        16 - engine.ring.state.lock().unmade.len()
    };
    // A bound stream has at most 11 of 16 slots.
    assert_eq!((made(0), made(usize::MAX)), (IN_FLIGHT, 11));
}

#[test]
fn exposed_streams_leave_slots_to_others() {
    let (_, device) = device(Execution::Lazy);
    let stream = device.stream().expect("no faults");
    let Engine { ring, pool, .. } = stream.device.engine().expect("set above");
    let take = |exposure| ring.take(pool, exposure, false, "a test").expect("no faults");
    let taken = [Exposure::Bound, Exposure::Shared, Exposure::Sealed].map(|exposure| {
        let slot = take(exposure).expect("one for each");
        assert!(take(exposure).is_none(), "{exposure:?}: only one");
        slot
    });
    taken.into_iter().for_each(|slot| ring.give_back(slot));
    let all: Vec<_> = (0..SLOTS).map(|_| take(Exposure::Sealed).expect("all are idle")).collect();
    all.into_iter().for_each(|slot| ring.give_back(slot));
    let bound = take(Exposure::Bound).expect("idle");
    assert!(take(Exposure::Bound).is_none());
    ring.give_back(bound);
    assert_eq!(ring.at_home(), SLOTS);
}

/// The only slot may be held up, so no stream may wait for it.
#[test]
fn if_memory_is_short_nobody_waits_for_a_more_exposed_stream() {
    let (emulator, device) = device(Execution::Lazy);
    let stream = device.stream().expect("no faults");
    let Engine { ring, pool, .. } = stream.device.engine().expect("set above");
    let bound =
        ring.take(pool, Exposure::Bound, true, "a test").expect("no faults").expect("patient");
    for call in [Call::HostRegister, Call::HostAlloc] {
        emulator.inject(Fault::forever(call, CudaCode::MEMORY_ALLOCATION));
    }
    for exposure in [Exposure::Sealed, Exposure::Shared] {
        let error = ring.take(pool, exposure, true, "a test").map(drop).expect_err("no memory");
        assert_eq!(error.kind(), crate::error::ErrorKind::OutOfHostMemory);
    }
    ring.give_back(bound);
    let sealed = ring.take(pool, Exposure::Sealed, true, "a test").expect("idle").expect("patient");
    ring.give_back(sealed);
    assert_eq!(ring.at_home(), SLOTS);
}

/// No thread would submit it.
#[test]
fn after_a_submission_that_failed_no_slot_is_queued() {
    let (_, device) = device(Execution::Eager);
    let stream = device.stream().expect("no faults");
    let Engine { ring, pool, .. } = stream.device.engine().expect("set above");
    let take =
        || ring.take(pool, Exposure::Sealed, true, "a test").expect("no faults").expect("patient");
    let [first, second, third] = [(); 3].map(|()| take());
    let filled = Filled::default();
    assert!(filled.push(first) && filled.push(second));
    let (guard, submitted) = filled.begin(ring).expect("no other thread submits");
    drop(guard);
    assert!(!filled.push(third));
    [submitted, third].into_iter().for_each(|slot| ring.give_back(slot));
    assert_eq!(ring.at_home(), SLOTS);
}

/// A transfer that has a slot continues with it.
#[test]
fn while_all_slots_are_being_made_only_the_first_is_waited_for() {
    let (_, device) = device(Execution::Eager);
    let stream = device.stream().expect("no faults");
    let Engine { ring, pool, .. } = stream.device.engine().expect("set above");
    let take = || ring.take(pool, Exposure::Sealed, false, "a test").expect("no faults");
    ring.is_filling.store(true, Ordering::Relaxed);
    let first = take().expect("made, since there is none");
    assert!(take().is_none(), "another one is not waited for");
    ring.is_filling.store(false, Ordering::Relaxed);
    let second = take().expect("made");
    [first, second].into_iter().for_each(|slot| ring.give_back(slot));
    ring.fill(pool, usize::MAX);
    assert!(ring.is_begun() && ring.state.lock().unmade.is_empty());
    assert_eq!(ring.at_home(), SLOTS);
}

#[test]
fn a_large_copy_has_the_other_slots_made_meanwhile() {
    let device = Device::emulated().expect("no faults");
    let stream = device.stream().expect("no faults");
    let mut bytes = vec![1; 40 << 20];
    bytes.iter_mut().step_by(4099).enumerate().for_each(|(n, byte)| *byte = n as u8);
    let mut gpu = device.alloc::<u8>(bytes.len()).expect("no faults");
    stream.upload_slice(&bytes, &mut gpu).expect("no faults");
    let mut back = vec![0; bytes.len()];
    stream.download_slice(&gpu, &mut back).expect("no faults");
    assert!(back == bytes);
    let ring = &stream.device.engine().expect("made by the copy").ring;
    let start = Instant::now();
    while !ring.state.lock().unmade.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "a thread makes the others");
        std::thread::yield_now();
    }
}
