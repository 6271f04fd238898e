//! Which calls of the driver make a strided copy, and that each way copies the same.

use pinlane::driver::Call;
use pinlane::emulated::Builder;
use pinlane::{CudaCode, Device, ErrorKind, PinnedBuf};

use super::*;

/// Calls that copy.
const COPIES: [Call; 6] = [
    Call::CopyStrided,
    Call::MoveItems,
    Call::CopyBatch,
    Call::CopyH2D,
    Call::CopyD2H,
    Call::CopyD2D,
];

struct Machine {
    emulator: Emulator,
    device: Device,
    stream: Stream,
    pool: PinnedPool,
}

impl Machine {
    fn new(builder: Builder) -> Self {
        let emulator = builder.build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let stream = device.stream().unwrap();
        let pool = PinnedPool::builder(&device).build().unwrap();
        Machine { emulator, device, stream, pool }
    }

    /// The calls that copy, each as often as it was made.
    fn calls_of(&self, work: impl FnOnce()) -> Vec<(Call, u64)> {
        let before = COPIES.map(|call| self.emulator.calls(call));
        work();
        let made = |n: usize| self.emulator.calls(COPIES[n]) - before[n];
        (0..COPIES.len()).map(|n| (COPIES[n], made(n))).filter(|it| it.1 > 0).collect()
    }

    fn pinned(&self, len: usize) -> PinnedBuf<u16> {
        let mut buffer = self.pool.alloc::<u16>(len).unwrap();
        buffer.write().unwrap().copy_from_slice(&noise(1, len));
        buffer
    }

    /// Copies rows up to a buffer without gaps and back to other rows. Compares, and returns the
    /// calls of both.
    fn round_trip(&self, strides: Strides) -> [Vec<(Call, u64)>; 2] {
        let all = Side { at: 0, strides: Some(strides), len: 0 }.places();
        let len = all.iter().max().unwrap() + 1;
        let host = self.pinned(len);
        let mut gpu = self.device.alloc::<u16>(all.len()).unwrap();
        let mut back = self.pinned(len);
        back.write().unwrap().fill(7);
        let up = self.calls_of(|| {
            let rows = Strided::new(host.as_slice(), strides).unwrap();
            self.stream.upload_strided(rows, &mut gpu).unwrap();
        });
        let down = self.calls_of(|| {
            let rows = Strided::new(back.as_slice_mut(), strides).unwrap();
            self.stream.download_strided(&gpu, rows).unwrap();
        });
        let mut expected = vec![7; len];
        for &place in &all {
            expected[place] = host.read().unwrap()[place];
        }
        assert!(back.read().unwrap() == expected);
        assert_eq!(self.emulator.findings(), []);
        [up, down]
    }
}

const LONG: usize = 5000;

#[test]
fn short_rows_take_the_kernel_and_long_ones_a_call() {
    let machine = Machine::new(Emulator::builder());
    let kernel = || vec![(Call::MoveItems, 1)];
    let call = || vec![(Call::CopyStrided, 1)];
    assert_eq!(machine.round_trip(Strides::new(100, 50, 128)), [kernel(), kernel()]);
    assert_eq!(machine.round_trip(Strides::new(LONG, 9, LONG + 1)), [call(), call()]);
    // Few rows are not worth a kernel.
    assert_eq!(machine.round_trip(Strides::new(100, 3, 128)), [call(), call()]);
    // Volumes.
    let volume = |row, plane| Strides::new(row, 5, row + 3).planes(4, plane);
    assert_eq!(machine.round_trip(volume(100, 7 * 103)), [kernel(), kernel()]);
    assert_eq!(machine.round_trip(volume(LONG, 7 * (LONG + 3))), [call(), call()]);
    // Planes that do not begin whole rows apart are no volume of the copy engine.
    assert_eq!(machine.round_trip(volume(LONG, 7 * (LONG + 3) + 1)), [kernel(), kernel()]);
}

#[test]
fn rows_without_gaps_are_one_plain_copy() {
    let machine = Machine::new(Emulator::builder());
    let plain = [vec![(Call::CopyH2D, 1)], vec![(Call::CopyD2H, 1)]];
    assert_eq!(machine.round_trip(Strides::new(100, 50, 100)), plain);
    assert_eq!(machine.round_trip(Strides::new(100, 50, 100).planes(3, 5000)), plain);
    assert_eq!(machine.round_trip(Strides::new(100, 1, 0)), plain);
    assert_eq!(machine.round_trip(Strides::new(1, 100, 1)), plain);
}

#[test]
fn without_host_addresses_short_rows_take_a_call() {
    let machine = Machine::new(Emulator::builder().host_addresses(false));
    let call = || vec![(Call::CopyStrided, 1)];
    assert_eq!(machine.round_trip(Strides::new(100, 50, 128)), [call(), call()]);
    // What is no volume goes row by row.
    let odd = Strides::new(100, 5, 103).planes(4, 7 * 103 + 1);
    let batch = || vec![(Call::CopyBatch, 1)];
    assert_eq!(machine.round_trip(odd), [batch(), batch()]);
    let old = Machine::new(Emulator::builder().host_addresses(false).batches(false));
    let [up, down] = [vec![(Call::CopyH2D, 20)], vec![(Call::CopyD2H, 20)]];
    assert_eq!(old.round_trip(odd), [up, down]);
}

/// Few bytes of slices go by a block at once, and more through slots.
#[test]
fn rows_of_slices_go_by_way_of_page_locked_memory() {
    let machine = Machine::new(Emulator::builder());
    let Machine { device, stream, .. } = &machine;
    // 16 KiB: the device sees two buffers.
    let small = Strides::new(64, 128, 100);
    let (mut host, mut gpu) = (noise(1, 12_800), device.alloc::<u16>(128 * 64).unwrap());
    let up = machine.calls_of(|| {
        stream.upload_strided(Strided::new(&host[..], small).unwrap(), &mut gpu).unwrap();
    });
    assert_eq!(up, [(Call::CopyH2D, 1)]);
    let down = machine.calls_of(|| {
        let rows = Strided::new(&mut host[..], small).unwrap();
        stream.download_strided(&gpu, rows).unwrap();
    });
    assert_eq!(down, [(Call::CopyD2H, 1)]);
    let mut wide = device.alloc::<u16>(12_800).unwrap();
    let up = machine.calls_of(|| {
        let rows = Strided::new(wide.as_slice_mut(), small).unwrap();
        stream.upload_strided(&host[..128 * 64], rows).unwrap();
    });
    assert_eq!(up, [(Call::MoveItems, 1)]);

    // 1 MiB of rows that follow each other on the device: some copies of many rows each.
    let large = Strides::new(64, 8192, 100);
    let host = noise(2, 819_200);
    let mut gpu = device.alloc::<u16>(64 * 8192).unwrap();
    stream.upload_slice(&host[..64 * 8192], &mut gpu).unwrap(); // makes the ring
    let rows = machine.calls_of(|| {
        stream.upload_strided(Strided::new(&host[..], large).unwrap(), &mut gpu).unwrap();
    });
    assert!(matches!(rows[..], [(Call::CopyH2D, 1..8)]), "{rows:?}");
}

/// A page-locked buffer of two registrations: no copy spans both.
#[test]
fn rows_on_a_seam_are_split() {
    const PART: usize = 4 << 20; // elements
    let limit = 4 * PART - 1;
    let machine =
        Machine::new(Emulator::builder().page_lock_limit(limit, CudaCode::MEMORY_ALLOCATION));
    let mut host = machine.pool.alloc::<u16>(2 * PART).unwrap();
    let near = PART - 1000;
    let source = noise(3, 2000);
    host.write().unwrap()[near..near + 2000].copy_from_slice(&source);
    let strides = Strides::new(300, 6, 310);
    let mut gpu = machine.device.alloc::<u16>(1800).unwrap();
    let rows = Strided::new(host.slice(near..).unwrap(), strides).unwrap();
    machine.stream.upload_strided(rows, &mut gpu).unwrap();
    let expected: Vec<u16> = (0..6).flat_map(|row| source[row * 310..][..300].to_vec()).collect();
    assert!(back(&machine.stream, &gpu) == expected);

    let rows = Strided::new(host.slice_mut(near + 5..).unwrap(), strides).unwrap();
    machine.stream.download_strided(&gpu, rows).unwrap();
    for row in 0..6 {
        let found = &host.read().unwrap()[near + 5 + row * 310..][..300];
        assert!(*found == expected[row * 300..][..300], "row {row}");
    }
    assert_eq!(machine.emulator.findings(), []);
}

#[test]
fn rows_go_from_device_to_device() {
    let emulator = Emulator::builder().devices(2).build();
    let [a, b] = [0, 1].map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap());
    let stream = a.stream().unwrap();
    let source = noise(4, 2000);
    let mut near = a.alloc::<u16>(2000).unwrap();
    stream.upload_slice(&source, &mut near).unwrap();
    let mut far = b.alloc::<u16>(2000).unwrap();
    b.stream().unwrap().fill(&mut far, 9).unwrap();
    let from = Strided::new(near.slice(3..).unwrap(), Strides::new(50, 4, 90).planes(3, 500));
    let to = Strides::new(50, 4, 60).planes(3, 300);
    let to = Strided::new(far.slice_mut(100..).unwrap(), to).unwrap();
    let calls = || [Call::CopyStridedPeer, Call::CopyPeer].map(|call| emulator.calls(call));
    stream.copy_strided(from.unwrap(), to).unwrap();
    // 500 elements are no whole number of pitches of 90.
    assert_eq!(calls(), [0, 12]);
    let mut expected = vec![9; 2000];
    for plane in 0..3 {
        for row in 0..4 {
            let from = &source[3 + plane * 500 + row * 90..][..50];
            expected[100 + plane * 300 + row * 60..][..50].copy_from_slice(from);
        }
    }
    assert!(back(&b.stream().unwrap(), &far) == expected);
    let strides = [Strides::new(50, 4, 100).planes(3, 500), Strides::new(50, 4, 60).planes(3, 300)];
    let from = Strided::new(near.as_slice(), strides[0]).unwrap();
    let to = Strided::new(far.slice_mut(100..).unwrap(), strides[1]).unwrap();
    stream.copy_strided(from, to).unwrap();
    assert_eq!(calls(), [1, 12]);
    for plane in 0..3 {
        for row in 0..4 {
            let from = &source[plane * 500 + row * 100..][..50];
            expected[100 + plane * 300 + row * 60..][..50].copy_from_slice(from);
        }
    }
    assert!(back(&b.stream().unwrap(), &far) == expected);
    assert_eq!(emulator.findings(), []);
}

#[test]
fn sides_of_other_shapes_are_refused_and_nothing_is_enqueued() {
    let machine = Machine::new(Emulator::builder());
    let Machine { device, stream, .. } = &machine;
    let (host, mut gpu) = (machine.pinned(1000), device.alloc::<u16>(1000).unwrap());
    let calls = machine.calls_of(|| {
        let mut refused = |src: Strides, dst: Strides| {
            let src = Strided::new(host.as_slice(), src).unwrap();
            let dst = Strided::new(gpu.as_slice_mut(), dst).unwrap();
            stream.upload_strided(src, dst).unwrap_err().kind()
        };
        let rows = Strides::new(10, 4, 20);
        // As many elements, and as many rows, but other ones.
        assert_eq!(refused(rows, Strides::new(20, 2, 30)), ErrorKind::LengthMismatch);
        assert_eq!(refused(rows, Strides::new(8, 4, 20)), ErrorKind::LengthMismatch);
        assert_eq!(refused(rows, Strides::new(39, 1, 0)), ErrorKind::LengthMismatch);
        assert_eq!(refused(Strides::new(0, 4, 9), rows), ErrorKind::LengthMismatch);
        assert_eq!(refused(rows, Strides::new(10, 0, 0)), ErrorKind::LengthMismatch);
    });
    assert_eq!(calls, []);
    // Nothing to copy is no error, of any two shapes.
    let calls = machine.calls_of(|| {
        let src = Strided::new(host.as_slice(), Strides::new(0, 4, 9)).unwrap();
        let dst = Strided::new(gpu.as_slice_mut(), Strides::new(10, 0, 0)).unwrap();
        assert!(stream.upload_strided(src, dst).unwrap().is_done().unwrap());
    });
    assert_eq!(calls, []);
}

/// Elements without bytes have places, but nothing to copy.
#[test]
fn elements_of_no_bytes_are_copied_by_no_call() {
    let machine = Machine::new(Emulator::builder());
    let mut gpu = machine.device.alloc::<()>(100).unwrap();
    let calls = machine.calls_of(|| {
        let dst = Strided::new(gpu.as_slice_mut(), Strides::new(5, 4, 9)).unwrap();
        machine.stream.upload_strided(&[(); 20], dst).unwrap();
    });
    assert_eq!(calls, []);
}

#[test]
fn pitched_memory_has_aligned_rows_and_takes_a_copy() {
    let machine = Machine::new(Emulator::builder());
    let (mut gpu, lines) = machine.device.alloc_pitched::<u16>(100, 7).unwrap();
    assert_eq!((lines, gpu.len()), (Strides::new(100, 7, 128), 7 * 128));
    assert!(gpu.as_device_ptr().is_multiple_of(256));
    let source = noise(5, 700);
    let rows = Strided::new(gpu.as_slice_mut(), lines).unwrap();
    machine.stream.upload_strided(&source, rows).unwrap();
    let mut found = vec![0; 700];
    let rows = Strided::new(gpu.as_slice(), lines).unwrap();
    machine.stream.download_strided(rows, &mut found).unwrap();
    assert_eq!(found, source);

    let (none, lines) = machine.device.alloc_pitched::<u16>(0, 7).unwrap();
    assert!(none.is_empty() && Strided::new(none.as_slice(), lines).is_ok());
    for (row, rows) in [(usize::MAX, 1), (usize::MAX / 2, 3), (1, usize::MAX)] {
        let refused = machine.device.alloc_pitched::<u16>(row, rows).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue);
    }
}

#[test]
fn memory_of_another_device_is_refused() {
    let emulator = Emulator::builder().devices(2).build();
    let [a, b] = [0, 1].map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap());
    let (stream, mut far) = (a.stream().unwrap(), b.alloc::<u16>(100).unwrap());
    let strides = Strides::new(10, 4, 20);
    let host = vec![0u16; 40];
    let rows = Strided::new(far.as_slice_mut(), strides).unwrap();
    let refused = stream.upload_strided(&host, rows).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongDevice);
    let rows = Strided::new(far.as_slice(), strides).unwrap();
    let refused = stream.download_strided(rows, &mut host.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongDevice);
}

/// The copy is a use of its rows, and of nothing before, between or behind them.
#[test]
fn a_use_ends_with_the_last_row() {
    let machine = Machine::new(Emulator::builder().execution(Execution::Lazy));
    let (device, stream) = (&machine.device, &machine.stream);
    let mut host = machine.pinned(1000);
    let gpu = device.alloc::<u16>(4 * 50).unwrap();
    let stalled = crate::common::support::Stalled::new(&machine.emulator, stream);
    let rows = Strided::new(host.slice_mut(100..).unwrap(), Strides::new(50, 4, 100)).unwrap();
    let ticket = stream.download_strided(&gpu, rows).unwrap();
    assert!(host.slice(..100).unwrap().try_read().is_ok());
    assert!(host.slice(450..).unwrap().try_read().is_ok());
    assert!(host.slice(150..200).unwrap().try_read().is_ok());
    for used in [100..101, 449..450, 160..201] {
        assert_eq!(host.slice(used).unwrap().try_read().unwrap_err().kind(), ErrorKind::NotReady);
    }
    drop(stalled);
    ticket.wait().unwrap();
    assert!(host.try_read().is_ok());
}
