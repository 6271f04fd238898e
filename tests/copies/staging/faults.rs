//! Every driver call made to fail, at every point of a program that makes every kind of copy.
//!
//! Whatever fails: no panic, no hang; what is said to have been copied has been; nothing beside the
//! destinations changes; all slots come back; nothing is leaked, unless the device is lost or the
//! runtime does not take memory back.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault, Repeat};
use pinlane::{
    CudaCode, Device, DeviceBuf, ErrorKind, PinnedBuf, PinnedPool, Result, Stream, Ticket,
    batch::{DeviceCopy, Download, Route, Upload},
};

use super::support::{ByRoute, ROUTES, SLOT, bytes, contents, device_of, tiny, upload};
use crate::common::support::{assert_nothing_is_left, check_each};

/// More than a ring.
const LENGTH: usize = 3 * SLOT + 700;
/// What lies beside the destinations.
const MARGIN: usize = 64;
#[derive(Clone, Copy, Debug)]
struct Case {
    execution: Execution,
    call: Call,
    nth: u64,
    code: CudaCode,
    repeat: Repeat,
}

/// A device buffer that an upload writes, and what it should hold.
struct Written {
    gpu: DeviceBuf<u8>,
    expected: Vec<u8>,
    result: Result<Ticket>,
}

struct World {
    emulator: Emulator,
    device: Device,
    /// The second one's handle is known outside of the crate.
    streams: [Stream; 2],
    pool: PinnedPool,
    source: Vec<u8>,
    /// Holds `source`.
    gpu: DeviceBuf<u8>,
}

/// In parts of these lengths.
fn parts() -> impl Iterator<Item = std::ops::Range<usize>> {
    let cuts = [0, 0, 13, 900, 901, 5000, 5600, LENGTH];
    (0..cuts.len() - 1).map(move |n| cuts[n]..cuts[n + 1])
}

impl World {
    fn new(execution: Execution) -> World {
        let emulator = Emulator::builder().devices(2).execution(execution).seed(3).build();
        let device = device_of(&emulator, 0, tiny());
        let streams = [(); 2].map(|()| device.stream().unwrap());
        let _ = streams[1].as_raw();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let source = bytes(LENGTH, 1);
        let gpu = upload(&device, &source);
        World { emulator, device, streams, pool, source, gpu }
    }

    /// A destination, and what is around it.
    fn target(&self) -> Result<DeviceBuf<u8>> {
        let mut gpu = self.device.alloc(LENGTH + MARGIN)?;
        self.streams[0].fill(&mut gpu, 0xee)?;
        Ok(gpu)
    }

    fn uploads(&self, stream: &Stream, written: &mut Vec<Written>) -> Result<()> {
        let host = match self.pool.alloc(LENGTH) {
            Ok(mut host) => {
                host.write()?.copy_from_slice(&self.source);
                Some(host)
            }
            Err(_) => None,
        };
        for length in [60, LENGTH] {
            let mut gpu = self.target()?;
            let result = stream.upload_slice(&self.source[..length], gpu.slice_mut(..length)?);
            written.push(self.written(gpu, length, result));
        }
        for path in [None].into_iter().chain(ROUTES.map(Some)) {
            for locked in [false, true] {
                let Some(host) = host.as_ref() else { continue };
                let mut gpu = self.target()?;
                let mut items = self.upload_items(&mut gpu, host, locked);
                let result = match path {
                    None => stream.upload_batch(&mut items),
                    Some(path) => stream.upload_batch_by(path, &mut items),
                };
                drop(items);
                // Every other one at once: freed with the copy in flight, or after the error.
                if written.len().is_multiple_of(2) {
                    written.push(self.written(gpu, LENGTH, result));
                }
            }
        }
        let mut gpu = self.target()?;
        let dst = gpu.slice_mut(..LENGTH)?;
        let mut items = [DeviceCopy::new(&self.gpu, dst)];
        let result = stream.copy_batch(&mut items);
        written.push(self.written(gpu, LENGTH, result));
        Ok(())
    }

    fn written(&self, gpu: DeviceBuf<u8>, length: usize, result: Result<Ticket>) -> Written {
        let mut expected = vec![0xee; gpu.len()];
        expected[..length].copy_from_slice(&self.source[..length]);
        Written { gpu, expected, result }
    }

    fn upload_items<'a>(
        &'a self,
        gpu: &'a mut DeviceBuf<u8>,
        host: &'a PinnedBuf<u8>,
        locked: bool,
    ) -> Vec<Upload<'a>> {
        let views = super::support::views(gpu, parts()).into_iter().zip(parts());
        let item = |(dst, part): (_, std::ops::Range<usize>)| match locked {
            true => Upload::new(host.slice(part).unwrap(), dst),
            false => Upload::new(&self.source[part], dst),
        };
        views.map(item).collect()
    }

    /// What comes back is right, or the call says that it failed.
    fn downloads(&self, stream: &Stream, case: &Case) -> Result<()> {
        let check = |target: &[u8], length: usize, result: Result<()>| {
            if result.is_ok() {
                assert!(target[..length] == self.source[..length], "{case:?}: not what was there");
            }
            assert!(target[length..].iter().all(|&byte| byte == 0x11), "{case:?}: wrote outside");
            result
        };
        let mut results = Vec::new();
        for length in [60, LENGTH] {
            let mut target = vec![0x11; LENGTH + MARGIN];
            let result = stream.download_slice(self.gpu.slice(..length)?, &mut target[..length]);
            results.push(check(&target, length, result));
        }
        for path in [None, Some(Route::Copies), Some(Route::BatchCall), Some(Route::Kernel)] {
            let mut target = vec![0x11; LENGTH + MARGIN];
            let mut items = self.download_items(&mut target[..LENGTH]);
            let result = match path {
                None => stream.download_batch(&mut items),
                Some(path) => stream.download_batch_by(path, &mut items),
            };
            drop(items);
            results.push(check(&target, LENGTH, result.map(drop)));
        }
        for locked in [false, true] {
            let mut target = vec![0x11; LENGTH + MARGIN];
            let mut host = self.pool.alloc(LENGTH)?;
            let mut items = match locked {
                true => vec![Download::new(&self.gpu, &mut host)],
                false => self.download_items(&mut target[..LENGTH]),
            };
            let whole = std::iter::once(0..LENGTH);
            let ranges: Vec<_> = if locked { whole.collect() } else { parts().collect() };
            let mut told = 0;
            let result = stream.download_batch_each(&mut items, |number, bytes| {
                assert!(bytes == &self.source[ranges[number].clone()], "{case:?}: told too early");
                told += 1;
            });
            assert!(result.is_err() || told == ranges.len(), "{case:?}: not told of all");
            drop(items);
            // Read, or dropped at once.
            match locked && result.is_ok() {
                true => assert!(host.read()? == self.source, "{case:?}"),
                false => drop(host),
            }
            results.push(result);
        }
        results.into_iter().collect()
    }

    fn download_items<'a>(&'a self, target: &'a mut [u8]) -> Vec<Download<'a>> {
        let mut rest = target;
        let item = |part: std::ops::Range<usize>| {
            let (dst, behind) = std::mem::take(&mut rest).split_at_mut(part.len());
            rest = behind;
            Download::new(self.gpu.slice(part).unwrap(), dst)
        };
        parts().map(item).collect()
    }

    fn run(&self, case: &Case, written: &mut Vec<Written>) -> Vec<Result<()>> {
        let streams = self.streams.iter();
        streams.flat_map(|s| [self.uploads(s, written), self.downloads(s, case)]).collect()
    }

    /// Everything works, with all slots.
    fn assert_works(&self, case: &Case) {
        let mut written = Vec::new();
        for result in self.run(case, &mut written) {
            result.unwrap_or_else(|error| panic!("{case:?}: {error}"));
        }
        assert!(written.iter().all(|it| it.result.is_ok()), "{case:?}");
        self.check_written(case, &written);
    }

    fn check_written(&self, case: &Case, written: &[Written]) {
        for Written { gpu, expected, result } in written {
            let found = contents(&self.device, gpu);
            let arrived = result.as_ref().is_ok_and(|ticket| ticket.wait().is_ok());
            assert!(!arrived || found == *expected, "{case:?}: said to have arrived");
            let beside = expected.len() - MARGIN;
            let is_filled = found[beside..].iter().all(|&byte| byte == 0xee);
            assert!(is_filled, "{case:?}: wrote outside");
        }
    }
}

fn check(case: &Case) {
    let world = World::new(case.execution);
    let kinds = [
        ErrorKind::Cuda,
        ErrorKind::DeviceLost,
        ErrorKind::OutOfHostMemory,
        ErrorKind::OutOfDeviceMemory,
        // A way that an error of the driver made impossible.
        ErrorKind::Unsupported,
        // What a lost block leaves of a budget may be too little.
        ErrorKind::BudgetExhausted,
    ];
    let mut written = Vec::new();
    // Again and again, so that slots that are lost are missed.
    let rounds = if case.repeat == Repeat::Once { 3 } else { 1 };
    for _ in 0..rounds {
        let Case { call, nth, code, repeat, .. } = *case;
        world.emulator.inject(Fault { call, nth, code, repeat });
        for error in world.run(case, &mut written).into_iter().filter_map(Result::err) {
            assert!(kinds.contains(&error.kind()), "{case:?}: {error}");
        }
        world.emulator.clear_faults();
    }
    let lost = world.device.alloc::<u8>(1).is_err();
    assert!(!lost || case.code.is_sticky(), "{case:?}");
    if !lost {
        // An event behind all that may have none.
        world.streams.iter().for_each(|stream| drop(stream.record().unwrap()));
        world.check_written(case, &written);
        drop(written);
        world.assert_works(case);
    }
    let World { emulator, device, streams, pool, gpu, .. } = world;
    let quarantined = device.quarantined_bytes() + pool.stats().quarantined_bytes;
    drop((streams, pool, gpu, device));
    assert_eq!(emulator.findings(), [], "{case:?}");
    let frees = [
        Call::HostFree,
        Call::HostUnregister,
        Call::DeviceFree,
        Call::EventDestroy,
        Call::StreamDestroy,
    ];
    if !lost && quarantined == 0 && !frees.contains(&case.call) {
        assert_nothing_is_left(&emulator);
    }
}

/// The calls that the program makes, each failing at once or later, once or for ever after.
fn cases(code: CudaCode) -> Vec<Case> {
    let mut cases = Vec::new();
    for (execution, others) in [(Execution::Eager, 1), (Execution::Lazy, 0)] {
        let dry = Case { execution, call: Call::Busy, nth: 1, code, repeat: Repeat::Once };
        let world = World::new(execution);
        let before = Call::ALL.map(|call| world.emulator.calls(call));
        world.assert_works(&dry);
        let made = Call::ALL.into_iter().zip(before);
        let made = made.map(|(call, before)| (call, world.emulator.calls(call) - before));
        for (call, count) in made.filter(|&(_, count)| count > 0) {
            for nth in (1..=8).filter(|&nth| nth <= count && nth % 2 == others) {
                cases.push(Case { execution, call, nth, code, repeat: Repeat::Once });
                if nth < 5 {
                    cases.push(Case { execution, call, nth, code, repeat: Repeat::Forever });
                }
            }
        }
    }
    use Call::{
        Attributes, CopyBatch, CopyD2H, CopyH2D, DeviceAlloc, EventCreate, EventRecord,
        EventSynchronize, HostRegister, MoveItems, StreamCapture, StreamWaitEvent,
    };
    let expected = [
        Attributes,
        CopyBatch,
        CopyD2H,
        CopyH2D,
        DeviceAlloc,
        EventCreate,
        EventRecord,
        EventSynchronize,
        HostRegister,
        MoveItems,
        StreamCapture,
        StreamWaitEvent,
    ];
    let is_made = |call: &Call| cases.iter().any(|case| case.call == *call);
    assert!(expected.iter().all(is_made), "the program makes these calls");
    cases
}

#[test]
fn any_call_may_fail() {
    check_each(&cases(CudaCode::UNKNOWN), check);
}

#[test]
fn any_call_may_run_out_of_memory() {
    check_each(&cases(CudaCode::MEMORY_ALLOCATION), check);
}

#[test]
fn any_call_may_lose_the_device() {
    check_each(&cases(CudaCode::ILLEGAL_ADDRESS), check);
}
