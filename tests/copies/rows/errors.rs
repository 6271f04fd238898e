//! Refused calls, and the state after a call that fails.

use super::*;

const ROW: usize = 300;
const ROWS: usize = 20;

fn machine() -> (Emulator, Device, Stream, PinnedPool) {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let (stream, pool) = (device.stream().unwrap(), PinnedPool::builder(&device).build().unwrap());
    (emulator, device, stream, pool)
}

/// The number of copies that were enqueued.
fn copies(emulator: &Emulator) -> u64 {
    let calls = [Call::MoveItems, Call::CopyBatch, Call::CopyD2H, Call::CopyH2D];
    calls.into_iter().map(|call| emulator.calls(call)).sum()
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_enqueued() {
    let (emulator, device, stream, pool) = machine();
    let mut table = pool.alloc_zeroed::<u8>(ROWS * ROW).unwrap();
    let mut rows = device.alloc::<u8>(4 * ROW).unwrap();
    let before = copies(&emulator);
    let mut up = |indices: Indices<'_>| stream.upload_rows(&table, indices, &mut rows);
    let kind = |result: pinlane::Result<pinlane::Ticket>| result.unwrap_err().kind();

    assert_eq!(kind(up((&[0u32, 1, 2, ROWS as u32]).into())), ErrorKind::OutOfRange);
    assert_eq!(kind(up((&[0i32, 1, 2, -1]).into())), ErrorKind::OutOfRange);
    assert_eq!(kind(up((&[0u64, 1, 2, u64::MAX]).into())), ErrorKind::OutOfRange);
    // 1200 bytes are not seven rows; 400 bytes are no row of this table's length in rows of 1200.
    assert_eq!(kind(up((&[0u32; 7]).into())), ErrorKind::LengthMismatch);
    assert_eq!(kind(up((&[0u32; 0]).into())), ErrorKind::LengthMismatch);
    assert_eq!(kind(up((..).into())), ErrorKind::InvalidValue);
    let odd = pool.alloc_zeroed::<u8>(ROWS * ROW + 1).unwrap();
    let refused = stream.upload_rows(&odd, &[0u32, 1, 2, 3], &mut rows);
    assert_eq!(kind(refused), ErrorKind::LengthMismatch);

    let twice = stream.download_rows(&rows, &[3u32, 5, 3, 7], &mut table).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::InvalidValue);
    assert!(twice.to_string().contains("index 2 names row 3"), "{twice}");
    let mut other = device.alloc::<u8>(5 * ROW).unwrap();
    let refused = stream.upload_blocks([(&table, &mut other)], ROW, &[1u32, 2], &[0u32]);
    assert_eq!(kind(refused), ErrorKind::LengthMismatch);
    let refused = stream.upload_blocks([(&table, &mut other)], ROW, .., ..);
    assert_eq!(kind(refused), ErrorKind::LengthMismatch);
    let refused = stream.upload_blocks([(&table, &mut other)], ROW, &[0u32; 6], ..);
    assert_eq!(kind(refused), ErrorKind::LengthMismatch);
    let refused = stream.upload_blocks([(&table, &mut other)], 0, .., ..);
    assert_eq!(kind(refused), ErrorKind::LengthMismatch);
    let mut short = device.alloc::<u8>(4 * ROW).unwrap();
    let unequal = [(&table, &mut other), (&table, &mut short)];
    let refused = stream.upload_blocks(unequal, ROW, &[0u32], &[0u32]);
    assert_eq!(kind(refused), ErrorKind::LengthMismatch);

    let (_, elsewhere, ..) = machine();
    let mut foreign = elsewhere.alloc::<u8>(4 * ROW).unwrap();
    let refused = stream.upload_rows(&table, &[0u32, 1, 2, 3], &mut foreign);
    assert_eq!(kind(refused), ErrorKind::WrongDevice);
    assert_eq!(copies(&emulator), before, "nothing was enqueued");
    assert_eq!(emulator.findings(), []);
}

#[test]
fn nothing_to_copy_is_done() {
    let (emulator, device, stream, pool) = machine();
    let table = pool.alloc_zeroed::<u8>(ROWS * ROW).unwrap();
    let mut none = device.alloc::<u8>(0).unwrap();
    let before = copies(&emulator);
    assert!(stream.upload_rows(&table, &[0u32; 0], &mut none).unwrap().is_done().unwrap());
    let mut rows = device.alloc::<u8>(ROW).unwrap();
    let no_layers: [(&[u8], &mut pinlane::DeviceBuf<u8>); 0] = [];
    assert!(stream.upload_blocks(no_layers, ROW, .., ..).unwrap().is_done().unwrap());
    let nothing = stream.upload_blocks([(&table, &mut rows)], ROW, &[0u32; 0], &[0u32; 0]);
    assert!(nothing.unwrap().is_done().unwrap());
    assert_eq!(copies(&emulator), before);
}

#[test]
fn rows_of_page_locked_tables_take_one_launch() {
    let (emulator, device, stream, pool) = machine();
    let table = pool.alloc_zeroed::<u8>(ROWS * ROW).unwrap();
    let mut rows = device.alloc::<u8>(8 * ROW).unwrap();
    let (launches, all) = (emulator.calls(Call::MoveItems), copies(&emulator));
    stream.upload_rows(&table, &[5u32, 5, 1, 19, 0, 5, 7, 7], &mut rows).unwrap();
    assert_eq!(emulator.calls(Call::MoveItems), launches + 1);
    assert_eq!(copies(&emulator), all + 1);
}

#[test]
fn numbers_on_the_device_that_are_not_in_the_table_copy_nothing() {
    for memory in ["page-locked", "pageable"] {
        let (emulator, device, stream, pool) = machine();
        let mut table = pool.alloc::<u8>(ROWS * ROW).unwrap();
        table.write().unwrap().copy_from_slice(&noise(1, ROWS * ROW));
        let mut rows = device.alloc::<u8>(4 * ROW).unwrap();
        stream.upload_slice(&[9; 4 * ROW], &mut rows).unwrap();
        let mut numbers = device.alloc::<u64>(4).unwrap();
        stream.upload_slice(&[2, u64::MAX, ROWS as u64, 3], &mut numbers).unwrap();
        if memory == "pageable" {
            stream.upload_rows(&table.read().unwrap().to_vec(), &numbers, &mut rows).unwrap();
        } else {
            stream.upload_rows(&table, &numbers, &mut rows).unwrap();
        }
        let (mut back, source) = (vec![0; 4 * ROW], noise(1, ROWS * ROW));
        stream.download_slice(&rows, &mut back).unwrap();
        assert_eq!(back[..ROW], source[2 * ROW..3 * ROW], "{memory}");
        assert_eq!(back[ROW..3 * ROW], [9; 2 * ROW], "{memory}");
        assert_eq!(back[3 * ROW..], source[3 * ROW..4 * ROW], "{memory}");

        let mut signed = device.alloc::<i32>(4).unwrap();
        stream.upload_slice(&[-1, i32::MIN, ROWS as i32, 0], &mut signed).unwrap();
        stream.upload_rows(&table, &signed, &mut rows).unwrap();
        stream.download_slice(&rows, &mut back).unwrap();
        assert_eq!(back[..ROW], source[2 * ROW..3 * ROW], "{memory}: as it was");
        assert_eq!(back[3 * ROW..], source[..ROW], "{memory}");
        assert_eq!(emulator.findings(), []);
    }
}

#[test]
fn numbers_on_the_device_that_come_twice_are_refused_where_threads_would_write() {
    let (_, device, stream, _) = machine();
    let mut table = vec![0u8; ROWS * ROW];
    let rows = device.alloc::<u8>(2 * ROW).unwrap();
    let mut numbers = device.alloc::<u32>(2).unwrap();
    stream.upload_slice(&[4, 4], &mut numbers).unwrap();
    let refused = stream.download_rows(&rows, &numbers, &mut table).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidValue);
    let promised = Indices::from(&[4u32, 4]).distinct();
    let refused = stream.download_rows(&rows, promised, &mut table).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidValue);
}

#[test]
fn a_promise_that_is_broken_leaves_one_of_the_two_rows() {
    let (_, device, stream, pool) = machine();
    let mut table = pool.alloc_zeroed::<u8>(ROWS * ROW).unwrap();
    let mut rows = device.alloc::<u8>(4 * ROW).unwrap();
    let sent: Vec<u8> = [1, 2, 3, 4].iter().flat_map(|&n| [n; ROW]).collect();
    stream.upload_slice(&sent, &mut rows).unwrap();
    let promised = Indices::from(&[7u32, 8, 7, 9]).distinct();
    stream.download_rows(&rows, promised, &mut table).unwrap();
    let table = table.read().unwrap();
    assert!(table[7 * ROW..8 * ROW].iter().all(|&byte| byte == 1 || byte == 3));
    assert_eq!((table[8 * ROW], table[9 * ROW]), (2, 4));
}

#[test]
fn after_any_failing_call_the_next_copy_works() {
    use Call::{
        CopyBatch, CopyD2H, CopyH2D, EventRecord, HostRegister, MoveItems, StreamWaitEvent,
    };
    for call in [MoveItems, CopyBatch, CopyD2H, CopyH2D, EventRecord, HostRegister, StreamWaitEvent]
    {
        for nth in 1..5 {
            for pageable in [false, true] {
                let (emulator, device, stream, pool) = machine();
                let mut table = pool.alloc::<u8>(ROWS * ROW).unwrap();
                table.write().unwrap().copy_from_slice(&noise(1, ROWS * ROW));
                let host = table.read().unwrap().to_vec();
                let mut rows = device.alloc::<u8>(5 * ROW).unwrap();
                let indices = [3u32, 17, 3, 0, 9];
                let copy = |rows: &mut pinlane::DeviceBuf<u8>| {
                    if pageable {
                        stream.upload_rows(&host, &indices, rows)
                    } else {
                        stream.upload_rows(&table, &indices, rows)
                    }
                };
                emulator.inject(Fault::once(call, CudaCode::UNKNOWN).nth(nth));
                for _ in 0..3 {
                    let _ = copy(&mut rows);
                }
                emulator.clear_faults();
                copy(&mut rows).unwrap();
                let mut back = vec![0; 5 * ROW];
                stream.download_slice(&rows, &mut back).unwrap();
                for (at, &row) in indices.iter().enumerate() {
                    let expected = &host[row as usize * ROW..][..ROW];
                    assert_eq!(&back[at * ROW..][..ROW], expected, "{call:?} {nth}");
                }
                assert_eq!(emulator.findings(), []);
            }
        }
    }
}
