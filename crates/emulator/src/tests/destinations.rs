//! Calls of the program's on the destinations of copies that are pending, in pageable and in
//! registered memory. `cudart/tests/io` has all system calls, as a program.

use std::ffi::c_void;
use std::ops::Range;

use super::*;
use crate::{Builder, Emulator, Kind, Plane};

const BYTES: usize = 4096;

struct Machine {
    gpu: Emulator,
    stream: RawStream,
    device: *mut c_void,
}

fn machine(builder: Builder) -> Machine {
    let builder = builder.watch_host(true).devices(1).memory_bytes(1 << 24);
    let gpu = builder.build_for_program().expect("room for addresses");
    let (stream, device) =
        (gpu.stream_create(0, StreamFlags::default()).unwrap(), gpu.malloc(BYTES).unwrap());
    Machine { gpu, stream, device }
}

impl Machine {
    fn download(&self, to: &mut [u8]) -> Range<usize> {
        let plane = Plane::line(to.as_mut_ptr().cast(), self.device, to.len());
        // SAFETY: the memory outlives the copy: each test waits, or ends on an eager machine.
        unsafe { self.gpu.copy(self.stream, plane, Kind::D2H, false) }.unwrap();
        to.as_ptr_range().start.addr()..to.as_ptr_range().end.addr()
    }

    fn uses(&self, buffer: &Range<usize>, used: usize, writes: bool) -> Vec<FindingKind> {
        let before = self.gpu.findings().len();
        self.gpu.call_begins(buffer.clone());
        self.gpu.call_ends(buffer.clone(), used, writes);
        let found = self.gpu.findings();
        found[before..].iter().map(|finding| finding.kind).collect()
    }
}

#[test]
fn a_destination_is_asked_for_until_the_host_knows_of_its_copy() {
    for mode in [Execution::Eager, Execution::Lazy] {
        for seed in 0..4 {
            let machine = machine(Emulator::builder().execution(mode).seed(seed));
            let mut memory = vec![1_u8; BYTES];
            let (before, rest) = memory.split_at_mut(100);
            let target = machine.download(rest);
            let before = before.as_ptr().addr()..target.start;
            assert!(
                !Emulator::must_be_said(&before) && Emulator::must_be_said(&target),
                "{mode:?}"
            );
            let across = before.start..target.end;
            assert!(Emulator::must_be_said(&across));
            assert_eq!(machine.uses(&across, 100, false), [], "only what is in front of it");
            assert_eq!(machine.uses(&across, 101, false), [FindingKind::Race]);
            assert_eq!(machine.uses(&across, 101, false), [], "once");
            machine.gpu.device_synchronize(0).unwrap();
            assert!(!Emulator::must_be_said(&target));
            assert_eq!(machine.uses(&target, BYTES, true), []);
        }
    }
}

#[test]
fn the_race_names_the_call_and_the_copy() {
    let machine = machine(Emulator::builder());
    let mut memory = vec![1_u8; BYTES];
    let target = machine.download(&mut memory);
    assert_eq!(machine.uses(&target, 10, true), [FindingKind::Race]);
    let findings = machine.gpu.findings();
    let race = findings[0].race().unwrap();
    assert_eq!((race.first.call, &*race.first.agent), (Some(Call::CopyD2H), "stream A"));
    assert_eq!((&*race.second.operation, race.bytes), ("host write", 10));
    assert_eq!(race.memory.kind, MemoryKind::Pageable);
}

#[test]
fn what_is_unregistered_reset_or_lost_is_not_asked_for() {
    let machine = machine(Emulator::builder());
    let mut memory = vec![1_u8; BYTES];
    // SAFETY: the memory lives until it is unregistered.
    unsafe { machine.gpu.register(memory.as_mut_ptr().cast(), BYTES, 0) }.unwrap();
    let target = machine.download(&mut memory);
    assert!(Emulator::must_be_said(&target), "registered memory has no closed pages either");
    machine.gpu.unregister(memory.as_mut_ptr().cast()).unwrap();
    assert!(!Emulator::must_be_said(&target));
    machine.download(&mut memory);
    machine.gpu.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
    assert_eq!(machine.uses(&target, BYTES, false), []);
    drop(machine);
    let machine = self::machine(Emulator::builder());
    machine.download(&mut memory);
    // SAFETY: nothing of it is used any more.
    unsafe { machine.gpu.reset(0) }.unwrap();
    assert!(!Emulator::must_be_said(&target));
}

#[test]
fn many_destinations_are_bounded_and_a_machine_takes_its_own_along() {
    let machine = machine(Emulator::builder());
    let mut memory = vec![1_u8; 3 * 1024];
    let ranges: Vec<_> = memory.chunks_mut(2).map(|chunk| machine.download(chunk)).collect();
    let listed =
        |ranges: &[Range<usize>]| ranges.iter().filter(|r| Emulator::must_be_said(r)).count();
    assert_eq!(listed(&ranges), 1024);
    assert!(Emulator::must_be_said(ranges.last().unwrap()), "the oldest went first");
    drop(machine);
    assert_eq!(listed(&ranges), 0);
}
