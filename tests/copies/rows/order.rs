//! Rows are uses of their tables, in the order of all others.

use std::thread;

use super::*;

const ROW: usize = 64;

#[test]
fn who_writes_a_table_waits_for_its_readers() {
    for seed in 0..50 {
        let emulator = Emulator::builder().execution(Execution::Lazy).seed(seed).build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let pool = PinnedPool::builder(&device).build().unwrap();
        let mut table = pool.alloc::<u8>(100 * ROW).unwrap();
        table.write().unwrap().copy_from_slice(&noise(seed as usize, 100 * ROW));
        let expected = noise(seed as usize, 100 * ROW)[90 * ROW..91 * ROW].to_vec();
        let mut rows = device.alloc::<u8>(4 * ROW).unwrap();
        first.upload_rows(&table, &[90u32, 1, 2, 3], &mut rows).unwrap();
        // The host, another stream that writes rows of the table, and one that reads the rows.
        table.write().unwrap().fill(0);
        second.download_rows(&rows, &[0u32, 50, 51, 52], &mut table).unwrap();
        assert_eq!(table.read().unwrap()[..ROW], expected);
        assert_eq!(table.read().unwrap()[ROW..50 * ROW], vec![0; 49 * ROW]);
        assert_eq!(emulator.findings(), []);
    }
}

#[test]
fn numbers_on_the_device_are_read_in_stream_order() {
    for seed in 0..50 {
        let emulator = Emulator::builder().execution(Execution::Lazy).seed(seed).build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let pool = PinnedPool::builder(&device).build().unwrap();
        let mut table = pool.alloc::<u8>(100 * ROW).unwrap();
        table.write().unwrap().copy_from_slice(&noise(1, 100 * ROW));
        let mut made = pool.alloc::<u32>(4).unwrap();
        made.write().unwrap().copy_from_slice(&[99, 0, 99, 7]);
        let mut numbers = device.alloc::<u32>(4).unwrap();
        let mut rows = device.alloc::<u8>(4 * ROW).unwrap();
        first.upload(&made, &mut numbers).unwrap();
        second.upload_rows(&table, &numbers, &mut rows).unwrap();
        first.upload(&made, &mut numbers).unwrap();
        let mut back = pool.alloc::<u8>(4 * ROW).unwrap();
        first.download(&rows, &mut back).unwrap();
        let source = noise(1, 100 * ROW);
        for (at, row) in [99, 0, 99, 7].into_iter().enumerate() {
            let found = &back.read().unwrap()[at * ROW..][..ROW];
            assert_eq!(found, &source[row * ROW..][..ROW]);
        }
        assert_eq!(emulator.findings(), []);
    }
}

/// Only the device knows which rows of a table these copies use.
#[test]
fn tables_are_in_use_whatever_rows_the_device_finds() {
    const NUMBERS: [u32; 4] = [99, 0, 3, 7];
    for seed in 0..50 {
        let execution = if seed % 2 == 0 { Execution::Lazy } else { Execution::Random };
        let emulator = Emulator::builder().execution(execution).seed(seed).build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let pool = PinnedPool::builder(&device).build().unwrap();
        let (source, sent) = (noise(1, 100 * ROW), noise(2, 4 * ROW));
        let mut table = pool.alloc::<u8>(100 * ROW).unwrap();
        table.write().unwrap().copy_from_slice(&source);
        let mut numbers = device.alloc::<u32>(4).unwrap();
        first.upload_slice(&NUMBERS, &mut numbers).unwrap();
        let (mut rows, mut scattered) =
            (device.alloc::<u8>(4 * ROW).unwrap(), device.alloc::<u8>(4 * ROW).unwrap());
        second.upload_slice(&sent, &mut scattered).unwrap();
        let mut zeros = device.alloc::<u8>(100 * ROW).unwrap();
        second.fill(&mut zeros, 0).unwrap();
        second.synchronize().unwrap();

        first.upload_rows(&table, &numbers, &mut rows).unwrap();
        second.download(&zeros, &mut table).unwrap();
        second.download_rows(&scattered, &numbers, &mut table).unwrap();
        let mut copy = device.alloc::<u8>(100 * ROW).unwrap();
        first.upload(&table, &mut copy).unwrap();
        second.download(&zeros, &mut table).unwrap();

        let mut back = vec![0; 4 * ROW];
        first.download_slice(&rows, &mut back).unwrap();
        for (n, row) in NUMBERS.into_iter().enumerate() {
            assert_eq!(back[n * ROW..][..ROW], source[row as usize * ROW..][..ROW], "seed {seed}");
        }
        let mut back = vec![1; 100 * ROW];
        first.download_slice(&copy, &mut back).unwrap();
        let mut expected = vec![0; 100 * ROW];
        for (n, row) in NUMBERS.into_iter().enumerate() {
            expected[row as usize * ROW..][..ROW].copy_from_slice(&sent[n * ROW..][..ROW]);
        }
        assert!(back == expected, "seed {seed}");
        assert_eq!(emulator.findings(), []);
    }
}

#[test]
fn sixty_four_callers_share_a_table() {
    let device = common::device();
    let pool = PinnedPool::builder(&device).build().unwrap();
    let mut table = pool.alloc::<u8>(1000 * ROW).unwrap();
    table.write().unwrap().copy_from_slice(&noise(3, 1000 * ROW));
    let (device, table, source) = (&device, &table, &noise(3, 1000 * ROW));
    thread::scope(|scope| {
        for caller in 0..64usize {
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                let mut rows = device.alloc::<u8>(50 * ROW).unwrap();
                for round in 0..4 {
                    let pick = |n: usize| (n * 7919 + caller * 31 + round) % 1000;
                    let indices: Vec<u32> = (0..50).map(|n| pick(n) as u32).collect();
                    if round % 2 == 0 {
                        stream.upload_rows(table, &indices, &mut rows).unwrap();
                    } else {
                        stream.upload_rows(source, &indices, &mut rows).unwrap();
                    }
                    let mut back = vec![0; 50 * ROW];
                    stream.download_slice(&rows, &mut back).unwrap();
                    for n in 0..50 {
                        assert_eq!(back[n * ROW..][..ROW], source[pick(n) * ROW..][..ROW]);
                    }
                }
            });
        }
    });
}
