//! Every driver call made to fail, at every point of a program that copies parts.
//!
//! Whatever fails: what was reported as done has been done; nothing between the parts changes;
//! nothing leaks, unless the device is lost or the runtime fails to free memory.

use pinlane::staging::Staging;

use super::*;
use crate::common::faults::{Run, at_every_call};

const GAP: u16 = 0xeeee;

/// A destination on the device, and what it should hold.
struct Written {
    gpu: DeviceBuf<u16>,
    expected: Vec<u16>,
    result: Result<Ticket>,
}

fn rig(emulator: &Emulator) -> Rig {
    let device = Device::of_emulator(emulator, 0).unwrap();
    // All slices go through slots: what is lost of other blocks counts nowhere.
    let staging = Staging::new().slot_bytes(16 << 10).ring_bytes(64 << 10);
    let staging = staging.first_bytes(4 << 10).unit_bytes(4 << 10);
    device.set_staging(staging.direct_bytes(64)).unwrap();
    Rig::new(device)
}

/// One part, a few long ones, and enough for two launches of the kernel.
fn shapes() -> [Arrays; 3] {
    [scattered(1, 500), scattered(3, 12_000), scattered(2500, 4)]
}

fn up(rig: &Rig, arrays: &Arrays, pageable: bool, written: &mut Vec<Written>) -> Result<()> {
    let source = noise(1, arrays.src);
    let mut gpu = rig.device.alloc::<u16>(arrays.dst)?;
    rig.stream.fill(&mut gpu, GAP)?;
    let expected = arrays.copied(&source, &vec![GAP; arrays.dst]);
    let result = match pageable {
        true => rig.stream.upload_parts(&source, &mut gpu, arrays.parts(None)),
        false => {
            let mut host = rig.pool.alloc::<u16>(arrays.src)?;
            host.write()?.copy_from_slice(&source);
            rig.stream.upload_parts(&host, &mut gpu, arrays.parts(None))
        }
    };
    written.push(Written { gpu, expected, result });
    Ok(())
}

fn check(found: &[u16], expected: &[u16], arrived: bool) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_gap = *expected == GAP;
        assert!(!(arrived || is_gap) || found == expected, "element {at}");
    }
}

fn down(rig: &Rig, arrays: &Arrays) -> Result<()> {
    let source = noise(1, arrays.src);
    let mut gpu = rig.device.alloc::<u16>(arrays.src)?;
    rig.stream.upload_slice(&source, &mut gpu)?;
    let expected = arrays.copied(&source, &vec![GAP; arrays.dst]);
    let mut target = vec![GAP; arrays.dst];
    let done = rig.stream.download_parts(&gpu, &mut target, arrays.parts(None));
    check(&target, &expected, done.is_ok());

    let mut host = rig.pool.alloc(arrays.dst)?;
    host.write()?.fill(GAP);
    let other = rig.stream.download_parts(&gpu, &mut host, arrays.parts(None));
    if let Ok(found) = host.read() {
        check(found, &expected, other.is_ok());
    }
    done.and(other).map(drop)
}

fn run(rig: &Rig, written: &mut Vec<Written>) -> Vec<Result<()>> {
    let shapes = shapes();
    let each = shapes.iter().flat_map(|arrays| {
        let pageable = up(rig, arrays, true, written);
        let pinned = up(rig, arrays, false, written);
        [pageable, pinned, down(rig, arrays)]
    });
    each.collect()
}

fn check_all(rig: &Rig, written: Vec<Written>) {
    for Written { gpu, expected, result } in written {
        let found = rig.back(&gpu);
        check(&found, &expected, result.as_ref().is_ok_and(|ticket| ticket.wait().is_ok()));
    }
}

fn survives(plan: &Run) -> usize {
    let rig = rig(&plan.emulator);
    let mut written = Vec::new();
    plan.begin();
    let results = run(&rig, &mut written);
    plan.explains_all(results);
    plan.end();
    let lost = rig.device.alloc::<u8>(1).is_err();
    assert!(!lost || plan.is_lost());
    if lost {
        drop(written);
    } else {
        drop(rig.stream.record().unwrap());
        check_all(&rig, written);
        let mut written = Vec::new();
        run(&rig, &mut written).into_iter().for_each(|result| result.unwrap());
        assert!(written.iter().all(|it| it.result.is_ok()));
        check_all(&rig, written);
    }
    let Rig { device, stream, pool } = rig;
    drop(stream);
    let kept = device.quarantined_bytes() + pool.stats().quarantined_bytes;
    drop((pool, device));
    kept
}

#[test]
fn any_call_may_fail() {
    at_every_call("copies of parts", &Emulator::builder(), 60, survives);
}
