//! The texts of races, and cases without a report.

use pinlane::CudaCode;
use pinlane::driver::{DevicePtr, RawStream};
use pinlane::emulated::{Builder, Emulator};

use super::{in_short, machine, only_race};
use crate::rig::{BYTES, Rig};

#[test]
fn a_race_is_the_same_in_every_mode_and_with_every_seed() {
    let found = |builder: Builder| {
        let (rig, emulator) = machine(builder);
        let (a, b) = (rig.memory(), rig.memory());
        let (first, second) = (rig.stream(false), rig.stream(false));
        rig.fill(first, a, 1);
        rig.copy(second, b, a);
        only_race(&emulator)
    };
    let eager = found(Emulator::builder());
    for seed in 0..10 {
        let lazy = Emulator::builder().execution(pinlane::emulated::Execution::Lazy).seed(seed);
        assert_eq!(found(lazy), eager);
    }
}

#[test]
fn a_machine_may_be_told_not_to_look() {
    let (rig, emulator) = machine(Emulator::builder().races(false));
    let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
    rig.fill(first, a, 1);
    rig.fill(second, a, 2);
    emulator.host_writes(rig.host().as_ptr(), BYTES);
    assert_eq!(emulator.findings(), []);
}

#[test]
fn one_operation_is_reported_once_for_each_stream_that_it_races_with() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, b) = (rig.memory(), rig.memory());
    let [first, second, third] = [(); 3].map(|()| rig.stream(false));
    rig.fill(first, a, 1);
    for stream in [second, second, third, third] {
        rig.copy(stream, b, a);
        rig.synchronize(stream);
    }
    assert_eq!(emulator.findings().len(), 2);
}

/// Whether this program was compiled with line numbers.
fn knows_its_lines() -> bool {
    std::backtrace::Backtrace::force_capture().to_string().contains("reports.rs:")
}

#[test]
fn a_report_says_who_where_what_and_what_would_help() {
    if !knows_its_lines() {
        return;
    }
    let (rig, emulator) = machine(Emulator::builder().sites(true));
    let line = line!();
    let a = rig.memory();
    let [first, second, third] = [(); 3].map(|()| rig.stream(false));
    let never = rig.event();
    // SAFETY: as in `rig`.
    unsafe {
        rig.driver.fill(first, a, BYTES, &[0xaa]).unwrap();
        let recorded = rig.mark(first);
        rig.driver.stream_wait_event(second, recorded).unwrap();
        rig.driver.stream_wait_event(third, never).unwrap();
        rig.driver.fill(third, a + 16, 32, &[0xcc]).unwrap();
    }
    let race = only_race(&emulator);
    let here = |site: &Option<pinlane::emulated::Site>| {
        let site = site.as_ref().expect("there is debug information");
        assert!(site.file.ends_with("races/reports.rs"), "{site:?}");
        site.line - line
    };
    assert_eq!((here(&race.first.site), here(&race.second.site)), (6, 10));
    let text = race.to_string();
    let at = |offset: u32| format!("reports.rs:{}", line + offset);
    let lines: Vec<&str> = text.lines().collect();
    let header = "pinlane: RACE write after write, device 0, ";
    assert_eq!(lines[0], format!("{header}{:#018x}..+32", a + 16));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(lines[1]), format!("second: Fill(0xcc) {} stream D #1", at(10)));
    assert_eq!(words(lines[2]), format!("first: Fill(0xaa) {} stream B #1", at(6)));
    assert!(lines[3].starts_with("  memory: 4096 bytes at 0xdea"), "{text}");
    assert!(lines[3].contains("generation 1, allocated at rig.rs:"), "{text}");
    let seen = lines[4];
    assert!(seen.starts_with("  order seen: B#2 -> record e2 (rig.rs:"), "{text}");
    assert!(seen.contains(&format!("-> wait by stream C ({})", at(8))), "{text}");
    assert!(seen.ends_with(&format!("waits for e1 ({}), never recorded", at(9))), "{text}");
    assert!(lines[5].starts_with("  missing:    B#1 -> D#1; "), "{text}");
    let help = format!("recording e1 on stream C before {} would add it", at(9));
    assert!(lines[5].ends_with(&help), "{text}");
    let finding = emulator.findings().remove(0).to_string();
    assert!(finding.starts_with("Race: write after write, device 0, "), "{finding}");
    assert!(finding.contains("..+32 (seed 0)\n  second: "), "{finding}");
}

#[test]
fn what_would_help_is_said_for_each_kind_of_attempt() {
    let missing = |program: &dyn Fn(&Rig, &Emulator, RawStream, RawStream, DevicePtr)| {
        let (rig, emulator) = machine(Emulator::builder());
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        program(&rig, &emulator, first, second, a);
        only_race(&emulator).missing
    };
    let nothing = missing(&|rig, _, first, second, a| {
        rig.fill(first, a, 1);
        rig.fill(second, a, 2);
    });
    assert!(nothing.contains("an event, recorded on stream B behind"), "{nothing}");
    let too_early = missing(&|rig, _, first, second, a| {
        let event = rig.mark(first);
        rig.fill(first, a, 1);
        rig.wait(second, event);
        rig.fill(second, a, 2);
    });
    assert!(too_early.contains("recording e1 on stream B after"), "{too_early}");
    let overwritten = missing(&|rig, _, first, second, a| {
        let other = rig.stream(false);
        rig.fill(first, a, 1);
        let event = rig.mark(first);
        rig.record(event, other);
        rig.wait(second, event);
        rig.fill(second, a, 2);
    });
    assert!(overwritten.contains("e1 was recorded again on stream D"), "{overwritten}");
    let late = missing(&|rig, _, first, second, a| {
        let event = rig.event();
        rig.fill(first, a, 1);
        rig.wait(second, event);
        rig.record(event, first);
        rig.fill(second, a, 2);
    });
    assert!(late.contains("recording e1 on stream B before the wait"), "{late}");
    let host = missing(&|rig, emulator, first, _, a| {
        let host = rig.host();
        rig.download(first, host, a);
        emulator.host_reads(host.as_ptr(), 1);
    });
    assert!(host.contains("a synchronize with stream B behind"), "{host}");
    assert!(
        [nothing, too_early, overwritten, late, host]
            .iter()
            .all(|text| text.ends_with(" would add it"))
    );
}

/// From a lost device the host learns nothing more.
#[test]
fn a_wait_that_fails_tells_nothing() {
    let (rig, emulator) = machine(Emulator::builder().devices(2));
    let there = rig.on_device(1);
    let (a, first, second) = (rig.memory(), rig.stream(false), there.stream(false));
    let b = there.memory();
    emulator.stall(first).unwrap();
    rig.copy_to_device_1(first, b, a);
    emulator.lose_device(0, CudaCode::LAUNCH_FAILURE).unwrap();
    // SAFETY: as in `rig`.
    let wait = unsafe { rig.driver.stream_synchronize(first) };
    assert_eq!(wait, Err(CudaCode::LAUNCH_FAILURE));
    there.fill(second, b, 1);
    let expected = "Fill(0x01) on stream C of device 1 after CopyPeer on stream B of device 0";
    assert_eq!(in_short(&only_race(&emulator)), expected);
}
