//! Every driver call made to fail, at every point of a program that makes every kind of strided
//! copy.
//!
//! Whatever fails: what was reported as done has been done; nothing between the rows changes;
//! nothing leaks, unless the device is lost or the runtime fails to free memory.

use pinlane::staging::Staging;
use pinlane::{DeviceBuf, PinnedBuf, Result, Ticket};

use super::*;
use crate::common::faults::{Run, at_every_call};

/// By the kernel, by a call, and row by row: no volume of the copy engine.
const SHAPES: [(usize, usize); 3] = [(300, 20), (5000, 5), (5000, 0)];

/// The rows of a shape, of which the device has a copy without gaps.
fn rows_of((row, rows): (usize, usize)) -> Strides {
    match rows {
        0 => Strides::new(row, 3, row + 7).planes(2, 4 * (row + 7) + 1),
        _ => Strides::new(row, rows, row + 7),
    }
}

struct World {
    device: Device,
    stream: Stream,
    pool: PinnedPool,
    source: Vec<u16>,
}

/// A destination on the device, and what it should hold.
struct Written {
    gpu: DeviceBuf<u16>,
    expected: Vec<u16>,
    result: Result<Ticket>,
}

impl World {
    fn new(emulator: &Emulator) -> World {
        let device = Device::of_emulator(emulator, 0).unwrap();
        // All slices go through slots: what is lost of other blocks counts nowhere.
        let staging = Staging::new().slot_bytes(16 << 10).ring_bytes(64 << 10);
        let staging = staging.first_bytes(4 << 10).unit_bytes(4 << 10);
        device.set_staging(staging.direct_bytes(64)).unwrap();
        let (stream, pool) =
            (device.stream().unwrap(), PinnedPool::builder(&device).build().unwrap());
        World { device, stream, pool, source: noise(1, 50_000) }
    }

    fn filled(&self, len: usize) -> Result<DeviceBuf<u16>> {
        let mut gpu = self.device.alloc(len)?;
        self.stream.fill(&mut gpu, 0xeeee)?;
        Ok(gpu)
    }

    fn pinned(&self) -> Result<PinnedBuf<u16>> {
        let mut host = self.pool.alloc(self.source.len())?;
        host.write()?.copy_from_slice(&self.source);
        Ok(host)
    }

    /// Rows of the source in the order of a buffer, and at their places in a filled one.
    fn expected(&self, strides: Strides) -> [Vec<u16>; 2] {
        let side = Side { at: 0, strides: Some(strides), len: 0 };
        let mut spread = vec![0xeeee; self.source.len()];
        let places = side.places();
        places.iter().for_each(|&at| spread[at] = self.source[at]);
        [places.into_iter().map(|at| self.source[at]).collect(), spread]
    }

    fn up(&self, strides: Strides, written: &mut Vec<Written>) -> Result<()> {
        let [packed, spread] = self.expected(strides);
        let host = self.pinned();
        for pageable in [false, true] {
            for dense in [false, true] {
                let expected = if dense { &packed } else { &spread };
                let mut gpu = self.filled(expected.len())?;
                let target = match dense {
                    true => gpu.as_slice_mut().into(),
                    false => Strided::new(gpu.as_slice_mut(), strides)?,
                };
                let result = match (&host, pageable) {
                    (Ok(host), false) => {
                        let rows = Strided::new(host.as_slice(), strides)?;
                        self.stream.upload_strided(rows, target)
                    }
                    _ => {
                        let rows = Strided::new(&self.source[..], strides)?;
                        self.stream.upload_strided(rows, target)
                    }
                };
                written.push(Written { gpu, expected: expected.clone(), result });
            }
        }
        host.map(drop)
    }

    fn across(&self, strides: Strides, written: &mut Vec<Written>) -> Result<()> {
        let [_, spread] = self.expected(strides);
        let mut from = self.device.alloc::<u16>(self.source.len())?;
        self.stream.upload_slice(&self.source, &mut from)?;
        let mut gpu = self.filled(spread.len())?;
        let target = Strided::new(gpu.as_slice_mut(), strides)?;
        let result = self.stream.copy_strided(Strided::new(from.as_slice(), strides)?, target);
        written.push(Written { gpu, expected: spread, result });
        Ok(())
    }

    fn down(&self, strides: Strides) -> Result<()> {
        let [_, spread] = self.expected(strides);
        let mut gpu = self.device.alloc::<u16>(self.source.len())?;
        self.stream.upload_slice(&self.source, &mut gpu)?;
        let rows = || Strided::new(gpu.as_slice(), strides);
        let check = |found: &[u16], arrived: bool| {
            for (at, (found, expected)) in found.iter().zip(&spread).enumerate() {
                let is_gap = *expected == 0xeeee;
                assert!(!(arrived || is_gap) || found == expected, "element {at}");
            }
        };
        let mut target = vec![0xeeee; spread.len()];
        let done = self.stream.download_strided(rows()?, Strided::new(&mut target[..], strides)?);
        check(&target, done.is_ok());

        let mut host = self.pool.alloc(spread.len())?;
        host.write()?.fill(0xeeee);
        let places = Strided::new(host.as_slice_mut(), strides)?;
        let other = self.stream.download_strided(rows()?, places);
        if let Ok(found) = host.read() {
            check(found, other.is_ok());
        }
        done.and(other).map(drop)
    }

    fn run(&self, written: &mut Vec<Written>) -> Vec<Result<()>> {
        let mut results = Vec::new();
        for strides in SHAPES.map(rows_of) {
            results.push(self.up(strides, written));
            results.push(self.across(strides, written));
            results.push(self.down(strides));
        }
        results
    }

    fn check(&self, written: Vec<Written>) {
        for Written { gpu, expected, result } in written {
            let found = back(&self.stream, &gpu);
            let arrived = result.as_ref().is_ok_and(|ticket| ticket.wait().is_ok());
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let is_gap = *expected == 0xeeee;
                assert!(!(arrived || is_gap) || found == expected, "element {at}");
            }
        }
    }
}

fn survives(run: &Run) -> usize {
    let world = World::new(&run.emulator);
    let mut written = Vec::new();
    run.begin();
    run.explains_all(world.run(&mut written));
    run.end();
    let lost = world.device.alloc::<u8>(1).is_err();
    assert!(!lost || run.is_lost());
    if lost {
        drop(written);
    } else {
        drop(world.stream.record().unwrap());
        world.check(written);
        let mut written = Vec::new();
        world.run(&mut written).into_iter().for_each(|result| result.unwrap());
        assert!(written.iter().all(|it| it.result.is_ok()));
        world.check(written);
    }
    let World { device, stream, pool, .. } = world;
    drop(stream);
    let kept = device.quarantined_bytes() + pool.stats().quarantined_bytes;
    drop((pool, device));
    kept
}

#[test]
fn any_call_may_fail() {
    at_every_call("strided copies", &Emulator::builder(), 80, survives);
}
