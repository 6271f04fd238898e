//! What the program does to memory whose pages cannot be closed. `crates/cudart/tests/programs` has
//! more, as programs.

use std::ffi::c_void;

use super::*;
use crate::{Builder, Emulator, Kind, Plane};

const LONG: usize = 3 << 18;

fn watching(builder: Builder) -> Emulator {
    let builder = builder.watch_host(true).devices(1).memory_bytes(1 << 24);
    builder.build_for_program().expect("room for addresses")
}

fn found(gpu: &Emulator) -> Vec<FindingKind> {
    gpu.findings().iter().map(|finding| finding.kind).collect()
}

/// Memory of the test's own that is registered, and a stream.
fn registered(gpu: &Emulator) -> (Vec<u8>, RawStream) {
    let mut memory = vec![1_u8; LONG];
    // SAFETY: the memory lives until it is unregistered.
    unsafe { gpu.register(memory.as_mut_ptr().cast(), LONG, 0) }.unwrap();
    (memory, gpu.stream_create(0, StreamFlags::default()).unwrap())
}

fn copy(gpu: &Emulator, stream: RawStream, plane: Plane, kind: Kind) {
    // SAFETY: memory of the tests. No other code uses what is written too early.
    unsafe { gpu.copy(stream, plane, kind, false) }.unwrap();
}

fn line(dst: *mut c_void, src: &[u8]) -> Plane {
    Plane::line(dst, src.as_ptr().cast(), src.len())
}

fn modes() -> impl Iterator<Item = Builder> {
    let modes = [Execution::Eager, Execution::Lazy, Execution::Chunked];
    let builders = modes.map(|mode| Emulator::builder().execution(mode));
    builders.into_iter().flat_map(|builder| (0..5).map(move |seed| builder.clone().seed(seed)))
}

#[test]
fn a_stand_in_behind_the_copy_may_write_to_its_source_and_the_program_may_not() {
    for builder in modes() {
        for early in [false, true] {
            let gpu = watching(builder.clone());
            let (mut memory, stream) = registered(&gpu);
            let a = gpu.malloc(LONG).unwrap();
            copy(&gpu, stream, line(a, &memory), Kind::H2D);
            if early {
                memory[LONG - 1] = 9;
            }
            let address = memory.as_mut_ptr().expose_provenance();
            // SAFETY: the memory is there until the stream is waited for.
            let write = move || unsafe {
                std::ptr::with_exposed_provenance_mut::<u8>(address).write_bytes(7, LONG);
            };
            // SAFETY: it makes no call, and touches memory that its device may use.
            unsafe { gpu.launch(stream, "write", &[], Some(Box::new(write))) }.unwrap();
            gpu.device_synchronize(0).unwrap();
            let expected = if early { vec![FindingKind::SourceChanged] } else { vec![] };
            assert_eq!(found(&gpu), expected, "{builder:?}");
            assert_eq!(memory[0], 7);
            gpu.unregister(memory.as_mut_ptr().cast()).unwrap();
        }
    }
}

#[test]
fn a_copy_of_many_lines_is_one_finding_with_the_copy_and_what_is_missing() {
    let gpu = watching(Emulator::builder());
    let (mut memory, stream) = registered(&gpu);
    let a = gpu.malloc(LONG).unwrap();
    let at = memory.as_mut_ptr();
    let plane = Plane {
        dst: a,
        dst_pitch: 64,
        src: at.cast_const().cast(),
        src_pitch: 100,
        width: 60,
        height: 50,
    };
    copy(&gpu, stream, plane, Kind::H2D);
    memory[60..100].fill(5);
    gpu.device_synchronize(0).unwrap();
    assert_eq!(found(&gpu), [], "between the lines");
    copy(&gpu, stream, plane, Kind::H2D);
    memory.fill(6);
    gpu.device_synchronize(0).unwrap();
    let findings = gpu.findings();
    assert_eq!(found(&gpu), [FindingKind::SourceChanged]);
    let race = findings[0].race().unwrap();
    assert_eq!((race.first.call, race.first.position), (Some(Call::CopyStrided), 2));
    assert_eq!((&*race.first.agent, race.second.access), ("stream A", RacingAccess::Write));
    assert_eq!((race.start, race.bytes), (at.addr() as u64, 60));
    assert_eq!(race.memory.kind, MemoryKind::HostRegistered);
    let missing = "A#2 -> host#2; a synchronize with stream A behind A#2 would add it";
    assert_eq!(race.missing, missing);
    gpu.unregister(at.cast()).unwrap();
}

#[test]
fn who_frees_too_early_is_told_of_that_only() {
    let gpu = watching(Emulator::builder());
    let (mut memory, stream) = registered(&gpu);
    let a = gpu.malloc(LONG).unwrap();
    copy(&gpu, stream, line(a, &memory), Kind::H2D);
    memory[0] = 9;
    gpu.unregister(memory.as_mut_ptr().cast()).unwrap();
    gpu.device_synchronize(0).unwrap();
    assert_eq!(found(&gpu), [FindingKind::FreedInFlight]);
}

#[test]
fn on_a_lost_device_nothing_is_said() {
    let gpu = watching(Emulator::builder());
    let (mut memory, stream) = registered(&gpu);
    let a = gpu.malloc(LONG).unwrap();
    copy(&gpu, stream, line(a, &memory), Kind::H2D);
    memory[0] = 9;
    gpu.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
    gpu.device_synchronize(0).unwrap_err();
    assert_eq!(found(&gpu), []);
}

#[test]
fn a_synchronous_copy_is_known_to_be_done() {
    for builder in modes() {
        let gpu = watching(builder);
        let (mut memory, stream) = registered(&gpu);
        let a = gpu.malloc(LONG).unwrap();
        for kind in [Kind::H2D, Kind::D2H] {
            let host: *mut c_void = memory.as_mut_ptr().cast();
            let plane = match kind {
                Kind::H2D => Plane::line(a, host, LONG),
                _ => Plane::line(host, a, LONG),
            };
            // SAFETY: memory of the test's own.
            unsafe { gpu.copy(stream, plane, kind, true) }.unwrap();
            memory[0] += 1;
        }
        gpu.device_synchronize(0).unwrap();
        assert_eq!(found(&gpu), []);
        gpu.unregister(memory.as_mut_ptr().cast()).unwrap();
    }
}

/// Only so many sides of copies are kept.
#[test]
fn a_synchronous_copy_takes_no_place_of_another() {
    const LINES: usize = 2000;
    let gpu = watching(Emulator::builder());
    let (mut memory, stream) = registered(&gpu);
    let other = gpu.stream_create(0, StreamFlags::default()).unwrap();
    let (a, b) = (gpu.malloc(LONG).unwrap(), gpu.malloc(2 * LINES).unwrap());
    copy(&gpu, stream, line(a, &memory), Kind::H2D);
    memory[LONG - 1] = 9;
    let src = memory.as_ptr().cast();
    let lines = Plane { dst: b, dst_pitch: 2, src, src_pitch: 2, width: 1, height: LINES };
    // SAFETY: memory of the test's own.
    unsafe { gpu.copy(other, lines, Kind::H2D, true) }.unwrap();
    gpu.device_synchronize(0).unwrap();
    assert_eq!(found(&gpu), [FindingKind::SourceChanged]);
    gpu.unregister(memory.as_mut_ptr().cast()).unwrap();
}

#[test]
fn a_reset_has_waited() {
    let gpu = watching(Emulator::builder());
    let (mut memory, stream) =
        (vec![1_u8; LONG], gpu.stream_create(0, StreamFlags::default()).unwrap());
    let a = gpu.malloc(LONG).unwrap();
    copy(&gpu, stream, line(a, &memory), Kind::H2D);
    // SAFETY: nothing of it is used any more.
    unsafe { gpu.reset(0) }.unwrap();
    memory.fill(2);
    gpu.device_synchronize(0).unwrap();
    assert_eq!(found(&gpu), []);
}
