//! Whatever fails in the middle of a copy, every slot comes back.

use super::*;
use crate::driver::Call;
use crate::driver::emulated::{Emulator, Execution, Fault, Repeat};
use crate::error::CudaCode;
use crate::transfer::staging::portions::IN_FLIGHT;
use crate::transfer::staging::{Engine, Staging};
use crate::transfer::{DownloadItem, Path, UploadItem};

const SLOT: usize = 4096;
const SLOTS: usize = 3;
/// Several rounds of the ring.
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

fn copy(stream: &Stream, gpu: &mut DeviceBuf<u8>, path: Path) -> [Result<()>; 2] {
    let mut host = vec![1; LENGTH];
    let up = UploadItem::new(&host, &mut *gpu)
        .and_then(|item| stream.upload_batch_by(path, &mut [item]).map(drop));
    let down = DownloadItem::new(&*gpu, &mut host)
        .and_then(|item| stream.download_batch_by(path, &mut [item]).map(drop));
    [up, down]
}

fn check(execution: Execution, path: Path, fault: Fault) {
    let (emulator, device) = device(execution);
    let stream = device.stream().expect("no faults");
    let mut gpu = device.alloc::<u8>(LENGTH).expect("no faults");
    // The stream is known outside, so that nobody but events and it itself tells when a copy is
    // complete.
    let _ = stream.as_raw();
    emulator.inject(fault);
    let results = copy(&stream, &mut gpu, path);
    emulator.clear_faults();
    let ring = &Engine::of(&stream).expect("set above").ring;
    assert_eq!(ring.at_home(), SLOTS, "{path}, {fault:?}: {results:?}");
    if !fault.code.is_sticky() {
        let [up, _] = copy(&stream, &mut gpu, path);
        up.expect("the fault is over");
        assert_eq!(ring.at_home(), SLOTS);
    }
}

#[test]
fn every_slot_comes_back_whatever_fails() {
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
    for execution in [Execution::Eager, Execution::Lazy] {
        for path in [Path::Copies, Path::Batch, Path::Packed, Path::Pull] {
            for call in calls {
                for nth in [1, 2, 3, 4, 6, 9, 14] {
                    let code = [CudaCode::UNKNOWN, CudaCode::ILLEGAL_ADDRESS][nth % 2];
                    for repeat in [Repeat::Once, Repeat::Forever] {
                        check(execution, path, Fault { call, nth: nth as u64, code, repeat });
                    }
                }
            }
        }
    }
}

/// Those that are written through the caches use few slots in turns, however many there are. By one
/// thread: another may fall behind with a slot.
#[test]
fn a_long_upload_uses_few_slots() {
    let made = |streaming: usize| {
        let emulator = Emulator::builder().execution(Execution::Lazy).build();
        let device = Device::of_emulator(&emulator, 0).expect("no faults");
        let staging = Staging::new().slot_bytes(SLOT).ring_bytes(16 * SLOT).first_bytes(SLOT);
        device.set_staging(staging.streaming_bytes(streaming)).expect("nothing copied yet");
        let stream = device.stream().expect("no faults");
        let engine = Engine::of(&stream).expect("set above");
        let mut costs = engine.machine(&stream, "test").expect("no faults").costs;
        costs.threads = 1.0;
        engine.set_costs(costs);
        let mut gpu = device.alloc::<u8>(40 * SLOT).expect("no faults");
        stream.upload_slice(&vec![1; gpu.len()], &mut gpu).expect("no faults");
        16 - engine.ring.state.lock().unmade.len()
    };
    assert_eq!((made(0), made(usize::MAX)), (IN_FLIGHT, 16));
}

#[test]
fn exposed_streams_leave_slots_to_others() {
    let (_, device) = device(Execution::Lazy);
    let stream = device.stream().expect("no faults");
    let Engine { ring, pool, .. } = Engine::of(&stream).expect("set above");
    let take = |exposure| ring.take(pool, exposure, false).expect("no faults");
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

/// The only slot that there is may be held up: that is no slot to wait for.
#[test]
fn if_memory_is_short_nobody_waits_for_a_more_exposed_stream() {
    let (emulator, device) = device(Execution::Lazy);
    let stream = device.stream().expect("no faults");
    let Engine { ring, pool, .. } = Engine::of(&stream).expect("set above");
    let bound = ring.take(pool, Exposure::Bound, true).expect("no faults").expect("patient");
    for call in [Call::HostRegister, Call::HostAlloc] {
        emulator.inject(Fault::forever(call, CudaCode::MEMORY_ALLOCATION));
    }
    for exposure in [Exposure::Sealed, Exposure::Shared] {
        let error = ring.take(pool, exposure, true).map(drop).expect_err("no memory");
        assert_eq!(error.kind(), crate::error::ErrorKind::OutOfHostMemory);
    }
    ring.give_back(bound);
    let sealed = ring.take(pool, Exposure::Sealed, true).expect("idle").expect("patient");
    ring.give_back(sealed);
    assert_eq!(ring.at_home(), SLOTS);
}
