//! Every driver call made to fail, at every point of a program that makes every kind of copy.
//!
//! Whatever fails: nothing panics or hangs; every copy that was reported as done has been done;
//! nothing beside the destinations changes; all slots come back; nothing leaks, unless the device
//! is lost or the runtime fails to free memory.

use pinlane::emulated::Emulator;
use pinlane::{
    Device, DeviceBuf, PinnedBuf, PinnedPool, Result, Stream, Ticket,
    batch::{DeviceCopy, Download, Route, Upload},
};

use super::support::{ByRoute, ROUTES, SLOT, bytes, contents, device_of, tiny, upload};
use crate::common::faults::{Run, at_every_call};

/// More than a ring.
const LENGTH: usize = 3 * SLOT + 700;
/// The bytes on each side of a destination.
const MARGIN: usize = 64;
/// A device buffer that an upload writes, and what it should hold.
struct Written {
    gpu: DeviceBuf<u8>,
    expected: Vec<u8>,
    result: Result<Ticket>,
}

struct World {
    device: Device,
    /// The handle of the second is known outside the crate.
    streams: [Stream; 2],
    pool: PinnedPool,
    source: Vec<u8>,
    /// Holds `source`.
    gpu: DeviceBuf<u8>,
}

/// The ranges of the parts.
fn parts() -> impl Iterator<Item = std::ops::Range<usize>> {
    let cuts = [0, 0, 13, 900, 901, 5000, 5600, LENGTH];
    (0..cuts.len() - 1).map(move |n| cuts[n]..cuts[n + 1])
}

impl World {
    fn new(emulator: &Emulator) -> World {
        let device = device_of(emulator, 0, tiny());
        let streams = [(); 2].map(|()| device.stream().unwrap());
        let _ = streams[1].as_raw();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let source = bytes(LENGTH, 1);
        let gpu = upload(&device, &source);
        World { device, streams, pool, source, gpu }
    }

    /// A destination with its margins.
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
                // Every other one is dropped at once: with the copy in flight, or after the error.
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

    /// The downloaded bytes are right, or the call returns an error.
    fn downloads(&self, stream: &Stream) -> Result<()> {
        let check = |target: &[u8], length: usize, result: Result<()>| {
            if result.is_ok() {
                assert!(target[..length] == self.source[..length], "not what was there");
            }
            assert!(target[length..].iter().all(|&byte| byte == 0x11), "wrote outside");
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
                assert!(bytes == &self.source[ranges[number].clone()], "reported too early");
                told += 1;
            });
            assert!(result.is_err() || told == ranges.len(), "not all are reported");
            drop(items);
            // Read, or dropped at once.
            match locked && result.is_ok() {
                true => assert!(host.read()? == self.source, "not what was there"),
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

    fn run(&self, written: &mut Vec<Written>) -> Vec<Result<()>> {
        let streams = self.streams.iter();
        streams.flat_map(|s| [self.uploads(s, written), self.downloads(s)]).collect()
    }

    /// Everything works, with all slots.
    fn assert_works(&self) {
        let mut written = Vec::new();
        for result in self.run(&mut written) {
            result.unwrap_or_else(|error| panic!("{error}"));
        }
        assert!(written.iter().all(|it| it.result.is_ok()));
        self.check_written(&written);
    }

    fn check_written(&self, written: &[Written]) {
        for Written { gpu, expected, result } in written {
            let found = contents(&self.device, gpu);
            let arrived = result.as_ref().is_ok_and(|ticket| ticket.wait().is_ok());
            assert!(!arrived || found == *expected, "said to have arrived");
            let beside = expected.len() - MARGIN;
            let is_filled = found[beside..].iter().all(|&byte| byte == 0xee);
            assert!(is_filled, "wrote outside");
        }
    }
}

/// Every kind of copy, while calls fail; then all of them work.
fn survives(run: &Run) -> usize {
    let world = World::new(&run.emulator);
    let mut written = Vec::new();
    run.begin();
    // Twice, so that a lost slot would show.
    for _ in 0..2 {
        run.explains_all(world.run(&mut written));
    }
    run.end();
    let lost = world.device.alloc::<u8>(1).is_err();
    assert!(!lost || run.is_lost());
    if !lost {
        // Records an event after operations that may have none.
        world.streams.iter().for_each(|stream| drop(stream.record().unwrap()));
        world.check_written(&written);
        drop(written);
        world.assert_works();
    }
    let World { device, streams, pool, gpu, .. } = world;
    drop((streams, gpu));
    let kept = device.quarantined_bytes() + pool.stats().quarantined_bytes;
    drop((pool, device));
    kept
}

#[test]
fn any_call_may_fail() {
    let machine = Emulator::builder().devices(2);
    at_every_call("copies through slots and in batches", &machine, 80, survives);
}
