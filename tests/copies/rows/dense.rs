//! Pageable rows that are contiguous on the device: through several slots, by a team.

use pinlane::staging::Staging;

use super::*;

const SLOT: usize = 4096;

fn device_of_short_slots() -> Device {
    let device = common::device();
    let staging = Staging::new().slot_bytes(SLOT).ring_bytes(4 * SLOT).first_bytes(1024);
    device.set_staging(staging.unit_bytes(1024).direct_bytes(64)).unwrap();
    device
}

/// Scattered numbers of a table of `rows` rows. They are distinct if the table has enough rows.
fn scattered(count: usize, rows: usize) -> Vec<u32> {
    let step = (rows as f64 * 0.618) as usize | 1;
    let step = (step..).find(|step| gcd(*step, rows) == 1).unwrap();
    (0..count).map(|n| (n * step % rows) as u32).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Row lengths around a line, a unit and a slot; up to three slots and a byte.
#[test]
fn rows_of_any_length_go_through_slots() {
    let device = device_of_short_slots();
    let stream = device.stream().unwrap();
    for row in [1, 7, 63, 64, 65, 257, 1023, 1024, 1025, SLOT - 1, SLOT, SLOT + 1, 3 * SLOT + 1] {
        for bytes in [1, SLOT - 1, SLOT + 1, 3 * SLOT + 1] {
            let count = bytes.div_ceil(row);
            let rows = 2 * count + 1;
            let source = noise(row, rows * row);
            let mut numbers = scattered(count, rows);
            let mut expected = vec![0; count * row];
            let pick = |n: u32| &source[n as usize * row..][..row];
            let gather = |numbers: &[u32], expected: &mut [u8]| {
                for (n, &number) in numbers.iter().enumerate() {
                    expected[n * row..][..row].copy_from_slice(pick(number));
                }
            };
            let mut gpu = device.alloc::<u8>(count * row).unwrap();

            let mut target = vec![0xee; rows * row];
            gather(&numbers, &mut expected);
            stream.upload_slice(&expected, &mut gpu).unwrap();
            stream.download_rows(&gpu, &numbers, &mut target).unwrap();
            for at in 0..rows {
                let found = &target[at * row..][..row];
                if numbers.contains(&(at as u32)) {
                    assert_eq!(found, pick(at as u32), "row {at} of {row} bytes");
                } else {
                    assert!(found.iter().all(|&byte| byte == 0xee), "row {at} of {row} bytes");
                }
            }

            // A row that is read may come twice.
            let last = *numbers.last().unwrap();
            numbers.fill(last);
            numbers[0] = 0;
            gather(&numbers, &mut expected);
            stream.upload_rows(&source, &numbers, &mut gpu).unwrap();
            let mut back = vec![0; count * row];
            stream.download_slice(&gpu, &mut back).unwrap();
            assert_eq!(back, expected, "rows of {row} bytes, {bytes} bytes");
        }
    }
}

/// No two threads of the team write the same row, whatever the caller promises.
#[test]
fn rows_that_come_twice_are_refused_whatever_was_promised() {
    let device = common::device();
    let stream = device.stream().unwrap();
    let gpu = device.alloc::<u8>(3 * 64).unwrap();
    let mut table = vec![1; 10 * 64];
    let numbers = Indices::from(&[4u32, 5, 4]).distinct();
    let refused = stream.download_rows(&gpu, numbers, &mut table).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidValue);
    assert_eq!(table, vec![1; 10 * 64]);
}

/// There is no entry for each row: the copies are those of one slice.
#[test]
fn rows_are_gathered_as_a_slice_is_copied() {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let stream = device.stream().unwrap();
    let table = noise(1, 1 << 20);
    let mut gpu = device.alloc::<u8>(1 << 19).unwrap();
    let calls =
        || [Call::CopyH2D, Call::CopyBatch, Call::MoveItems].map(|call| emulator.calls(call));
    let made = |copy: &mut dyn FnMut()| {
        copy(); // the first also makes the ring
        let before = calls();
        copy();
        let after = calls();
        [0, 1, 2].map(|call| after[call] - before[call])
    };
    let numbers = scattered(1 << 13, 1 << 14);
    let rows = made(&mut || {
        stream.upload_rows(&table, &numbers, &mut gpu).unwrap();
    });
    assert!(matches!(rows, [1..8, 0, 0]), "a few copies of many rows each: {rows:?}");
}
