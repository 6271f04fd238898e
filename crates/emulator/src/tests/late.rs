//! Uses that the race checker learns of when they run, against what was enqueued around them.
//!
//! Whether two operations are ordered is decided when they are enqueued. What a stream waits for
//! afterwards orders neither of them.

use super::*;
use pinlane_driver::{CopyKind, Item};

/// A call of the program, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// On stream A: what the checker learns of late.
    Late,
    /// On stream B: it downloads into the block that the late operation writes to.
    Download,
    /// B waits for what A has been given so far.
    WaitForA,
    /// A waits for what B has been given so far.
    WaitForB,
}

use Step::{Download, Late, WaitForA, WaitForB};

/// Every order of the late operation, the copy and a wait, and whether the two race.
const PROGRAMS: [(&[Step], bool); 8] = [
    (&[Late, Download], true),
    (&[Download, Late], true),
    (&[Late, Download, WaitForA], true),
    (&[Download, Late, WaitForA], true),
    (&[Late, Download, WaitForB], true),
    (&[Download, Late, WaitForB], true),
    (&[Late, WaitForA, Download], false),
    (&[Download, WaitForB, Late], false),
];

/// What the checker finds, though the late operation runs last.
fn found(steps: &[Step], late: impl Fn(&Rig, RawStream, NonNull<u8>)) -> Vec<FindingKind> {
    let rig = Rig::eager();
    let (a, b, memory, host) = (rig.stream(0), rig.stream(0), rig.memory(0), rig.host());
    rig.fill(b, memory, 7).unwrap();
    rig.emulator.stall(a).unwrap();
    for step in steps {
        match step {
            Late => late(&rig, a, host),
            Download => rig.download(b, host, memory).unwrap(),
            WaitForA => rig.wait(b, rig.mark(a)).unwrap(),
            WaitForB => rig.wait(a, rig.mark(b)).unwrap(),
        }
    }
    rig.emulator.release(a).unwrap();
    rig.synchronize(a).unwrap();
    rig.synchronize(b).unwrap();
    rig.found()
}

fn check(late: impl Fn(&Rig, RawStream, NonNull<u8>)) {
    for (steps, races) in PROGRAMS {
        let expected: &[_] = if races { &[FindingKind::Race] } else { &[] };
        assert_eq!(found(steps, &late), expected, "{steps:?}");
    }
}

/// A host function that writes to the block.
fn launch_a_write(rig: &Rig, stream: RawStream, host: NonNull<u8>) {
    let (emulator, address) = (rig.emulator.clone(), host.addr().get());
    rig.launch(stream, move || emulator.host_writes(address as *const u8, BYTES)).unwrap();
}

#[test]
fn a_wait_behind_a_host_function_and_a_copy_orders_neither() {
    check(launch_a_write);
}

#[test]
fn a_wait_behind_a_move_and_a_copy_orders_neither() {
    check(|rig, stream, host| {
        let (src, items, list) = (rig.memory(0), rig.memory(0), rig.host());
        let dst = host.as_ptr().expose_provenance() as u64;
        write(list, bytemuck::bytes_of(&Item { src, dst, bytes: BYTES as u64 }));
        let other = rig.stream(0);
        rig.upload(other, items, list).unwrap();
        rig.synchronize(other).unwrap();
        rig.move_item(stream, CopyKind::D2H, items).unwrap();
    });
}

#[test]
fn a_write_of_the_host_behind_a_late_use_races_with_it_though_the_host_learns_of_it() {
    for (is_behind, expected) in [(true, vec![FindingKind::Race]), (false, vec![])] {
        let rig = Rig::eager();
        let (stream, host) = (rig.stream(0), rig.host());
        let writes = || rig.emulator.host_writes(host.as_ptr(), BYTES);
        rig.emulator.stall(stream).unwrap();
        if !is_behind {
            writes();
        }
        launch_a_write(&rig, stream, host);
        if is_behind {
            writes();
        }
        rig.emulator.release(stream).unwrap();
        rig.synchronize(stream).unwrap();
        assert_eq!(rig.found(), expected);
    }
}
