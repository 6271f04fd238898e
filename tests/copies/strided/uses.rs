//! The uses of rows: work waits for a copy of rows only if it has a byte in common with it.

use pinlane::staging::Staging;
use pinlane::{DeviceBuf, ErrorKind, PinnedBuf};

use super::*;
use crate::common::support::{Stalled, assert_nothing_is_left};

/// The rows of a matrix, and their length.
const ROWS: usize = 40;
const PITCH: usize = 1000;

struct World {
    emulator: Emulator,
    device: Device,
    pool: PinnedPool,
    stream: Stream,
}

/// Columns of a matrix, which begin at the first of them.
fn columns(count: usize) -> Strides {
    Strides::new(count, ROWS, PITCH)
}

/// So many elements, without gaps.
fn elements(count: usize) -> Strides {
    Strides::new(count, 1, count)
}

impl World {
    /// Whatever need not wait is done at once.
    fn new() -> World {
        let emulator = Emulator::builder().execution(Execution::Eager).seed(3).build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        // Slices of more than a few bytes go through slots.
        let staging = Staging::new().slot_bytes(16 << 10).ring_bytes(64 << 10);
        let staging = staging.first_bytes(4 << 10).unit_bytes(4 << 10);
        device.set_staging(staging.direct_bytes(64)).unwrap();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let stream = device.stream().unwrap();
        World { emulator, device, pool, stream }
    }

    fn stalled(&self) -> Stalled {
        Stalled::new(&self.emulator, &self.stream)
    }

    fn host(&self, len: usize) -> PinnedBuf<u16> {
        self.pool.alloc_zeroed(len).unwrap()
    }

    fn matrix(&self) -> DeviceBuf<u16> {
        let mut matrix = self.device.alloc(ROWS * PITCH).unwrap();
        self.stream.fill(&mut matrix, 1).unwrap().wait().unwrap();
        matrix
    }

    /// Whether these rows can be read now, on a stream of their own.
    fn can_read(&self, matrix: &DeviceBuf<u16>, at: usize, strides: Strides) -> bool {
        let rows = Strided::new(matrix.slice(at..).unwrap(), strides).unwrap();
        let mut found = self.host(strides.row * strides.rows);
        let stream = self.device.stream().unwrap();
        stream.download_strided(rows, &mut found).unwrap().is_done().unwrap()
    }

    /// Whether so many columns can be written now, on a stream of their own.
    fn can_write(&self, matrix: &mut DeviceBuf<u16>, at: usize, count: usize) -> bool {
        let rows = Strided::new(matrix.slice_mut(at..).unwrap(), columns(count)).unwrap();
        let stream = self.device.stream().unwrap();
        let source = self.host(count * ROWS);
        stream.upload_strided(&source, rows).unwrap().is_done().unwrap()
    }
}

/// By the kernel and by a call.
#[test]
fn work_waits_for_columns_only_if_it_has_a_byte_of_them() {
    for count in [16, 300] {
        let world = World::new();
        let (mut matrix, other) = (world.matrix(), world.matrix());
        let source = world.host(count * ROWS);
        for on_device in [false, true] {
            let stalled = world.stalled();
            let rows = Strided::new(matrix.slice_mut(200..).unwrap(), columns(count)).unwrap();
            match on_device {
                false => world.stream.upload_strided(&source, rows),
                true => {
                    let from = Strided::new(other.slice(9..).unwrap(), columns(count)).unwrap();
                    world.stream.copy_strided(from, rows)
                }
            }
            .unwrap();
            let reads = |at, strides| world.can_read(&matrix, at, strides);
            assert!(reads(0, columns(200)) && reads(200 + count, columns(500)));
            assert!(!reads(0, columns(201)) && !reads(199 + count, columns(1)));
            // The last columns, and the first ones of the next row.
            assert!(reads(200 + count, Strides::new(PITCH - count, ROWS - 1, PITCH)));
            assert!(!reads(200 + count, Strides::new(PITCH - count + 1, ROWS - 1, PITCH)));
            // Without rows: in a gap, over its end, and behind the last row.
            assert!(reads(200 + count, elements(PITCH - count)));
            assert!(!reads(200 + count, elements(PITCH - count + 1)));
            assert!(reads((ROWS - 1) * PITCH + 200 + count, elements(10)));
            // Rows of the matrix below, and every third one.
            let column = |at, every| (at, Strides::new(1, ROWS / every, every * PITCH));
            let [(first, all), (_, thirds)] = [column(200, 1), column(200, 3)];
            assert!(!reads(first, all) && !reads(first, thirds) && reads(first - 1, thirds));
            drop(stalled);
            world.stream.synchronize().unwrap();
        }
        let World { emulator, .. } = world;
        drop((matrix, other, source));
        assert_eq!(emulator.findings(), []);
    }
}

#[test]
fn rows_in_turn_do_not_wait_for_each_other() {
    let world = World::new();
    let mut matrix = world.matrix();
    let source = world.host(ROWS / 2 * PITCH);
    let every_second = Strides::new(PITCH, ROWS / 2, 2 * PITCH);
    let stalled = world.stalled();
    let even = Strided::new(matrix.as_slice_mut(), every_second).unwrap();
    world.stream.upload_strided(&source, even).unwrap();
    let reads = |at, strides| world.can_read(&matrix, at, strides);
    assert!(reads(PITCH, every_second) && reads(PITCH, elements(PITCH)));
    assert!(!reads(0, every_second) && !reads(PITCH - 1, every_second));
    assert!(!reads(7, columns(1)));
    drop(stalled);
}

/// A write of rows stands for no earlier use, because it does not cover its gaps.
#[test]
fn a_write_of_columns_keeps_the_earlier_uses_of_the_others() {
    let world = World::new();
    let mut matrix = world.matrix();
    // It lies in the range of the columns.
    let mut target = world.host(ROWS / 2 * PITCH);
    let stalled = world.stalled();
    world.stream.download(matrix.slice(..ROWS / 2 * PITCH).unwrap(), &mut target).unwrap();
    assert!(!world.can_write(&mut matrix, 0, 20));
    assert!(!world.can_write(&mut matrix, 500, 20));
    // A write of everything stands for all of them.
    let source = world.host(ROWS * PITCH);
    let other = world.device.stream().unwrap();
    assert!(!other.upload(&source, &mut matrix).unwrap().is_done().unwrap());
    assert!(!world.can_read(&matrix, 0, columns(1)) && !world.can_read(&matrix, 900, columns(1)));
    drop(stalled);
    assert!(target.read().unwrap().iter().all(|&element| element == 1));
}

#[test]
fn the_host_reads_and_writes_what_lies_between_the_rows() {
    let world = World::new();
    let matrix = world.matrix();
    let mut host = world.host(ROWS * PITCH);
    let stalled = world.stalled();
    let rows = Strided::new(host.slice_mut(100..).unwrap(), columns(50)).unwrap();
    let from = Strided::new(matrix.as_slice(), columns(50)).unwrap();
    world.stream.download_strided(from, rows).unwrap();
    let not_ready = |error: pinlane::Error| error.kind() == ErrorKind::NotReady;
    for row in [0, 1, ROWS - 1] {
        let start = row * PITCH;
        host.slice_mut(start..start + 100).unwrap().try_into_write().unwrap().fill(5);
        host.slice(start + 150..start + PITCH).unwrap().try_read().unwrap();
        assert!(host.slice(start..start + 101).unwrap().try_read().is_err_and(not_ready));
        assert!(
            host.slice_mut(start + 149..start + 150)
                .unwrap()
                .try_into_write()
                .is_err_and(not_ready)
        );
    }
    drop(stalled);
    let found = host.read().unwrap();
    assert_eq!((found[99], found[100], found[149], found[150]), (5, 1, 1, 0));
    assert_eq!(found[(ROWS - 1) * PITCH + 149..][..1], [1]);
}

/// Through slots, as a copy of many entries. If it waited for the other columns, it would never
/// return.
#[test]
fn pageable_columns_do_not_wait_for_others() {
    let world = World::new();
    let mut matrix = world.matrix();
    let source = world.host(100 * ROWS);
    let stalled = world.stalled();
    let rows = Strided::new(matrix.slice_mut(100..).unwrap(), columns(100)).unwrap();
    world.stream.upload_strided(&source, rows).unwrap();

    let other = world.device.stream().unwrap();
    let slice = noise(3, 100 * ROWS);
    let rows = Strided::new(matrix.slice_mut(200..).unwrap(), columns(100)).unwrap();
    other.upload_strided(&slice[..], rows).unwrap().wait().unwrap();
    let mut found = vec![0; 100 * ROWS];
    let rows = Strided::new(matrix.slice(200..).unwrap(), columns(100)).unwrap();
    other.download_strided(rows, &mut found[..]).unwrap();
    assert!(found == slice);
    // Their own use is that of columns too.
    let stalled_too = Stalled::new(&world.emulator, &other);
    let rows = Strided::new(matrix.slice_mut(200..).unwrap(), columns(100)).unwrap();
    other.upload_strided(&source, rows).unwrap();
    assert!(world.can_read(&matrix, 300, columns(50)) && !world.can_read(&matrix, 250, columns(1)));
    drop((stalled, stalled_too));
    let World { emulator, device, pool, stream } = world;
    drop((matrix, source, other, stream, pool, device));
    assert_nothing_is_left(&emulator);
}
