//! Files read into page-locked memory and to the device, on the emulated device, against a plain
//! model: the file's bytes as `std::fs` wrote them.

mod errors;
mod mapped;
mod support;

use pinlane::emulated::Execution;
use pinlane::{Device, PinnedPool, Result, file::FileReader};
use proptest::prelude::*;

use support::{LARGE_SLOT, SLOT, Scratch, contents, device, emulator};

/// One range, to a place on the device with other bytes on both sides.
fn check(device: &Device, file: &FileReader, offset: usize, bytes: usize, at: usize) -> Result<()> {
    let expected = &contents(offset + bytes)[offset..];
    let stream = device.stream()?;
    let mut gpu = device.alloc::<u8>(at + bytes + 64)?;
    stream.fill(&mut gpu, 0xee)?;
    stream.upload_file(file, offset as u64, gpu.slice_mut(at..at + bytes)?)?;
    let mut whole = vec![0; gpu.len()];
    stream.download_slice(&gpu, &mut whole)?;
    assert!(whole[at..at + bytes] == *expected, "{bytes} bytes from {offset} to {at}");
    let mut outside = whole[..at].iter().chain(&whole[at + bytes..]);
    assert!(outside.all(|&byte| byte == 0xee), "{bytes} bytes from {offset}: wrote outside");
    Ok(())
}

#[test]
fn every_alignment_and_length_up_to_three_slots() {
    for (execution, slot) in [(Execution::Eager, SLOT), (Execution::Lazy, LARGE_SLOT)] {
        let file = Scratch::new(&contents(3 * slot + 4200));
        let emulator = emulator(execution);
        let device = device(&emulator, slot);
        for reader in file.all_readers(&device) {
            for alignment in 0..64 {
                for bytes in [0, 1, 100, 101, slot / 4 + 1, slot - 1, slot, slot + 1, 3 * slot + 1]
                {
                    let at = alignment * 29 % 64;
                    check(&device, &reader, alignment, bytes, at).expect("no faults");
                }
                check(&device, &reader, 4096 - alignment, 2 * slot, alignment).expect("no faults");
            }
        }
        assert_eq!(emulator.findings(), []);
    }
}

#[derive(Clone, Debug)]
struct Wanted {
    offset: usize,
    bytes: usize,
    gap: usize,
    own_buffer: bool,
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let bytes = prop_oneof![4 => 0..300usize, 2 => 0..9000usize, 1 => 0..100_000usize];
    let gap = prop_oneof![Just(0), 0..70usize];
    (0..=60_000usize, bytes, gap, proptest::bool::weighted(0.2))
        .prop_map(|(offset, bytes, gap, own_buffer)| Wanted { offset, bytes, gap, own_buffer })
}

/// Ranges in any order, overlapping in the file, side by side or apart on the device.
fn check_many(slot: usize, execution: Execution, wanted: &[Wanted]) {
    let contents = contents(160_000);
    let file = Scratch::new(&contents);
    let emulator = emulator(execution);
    let device = device(&emulator, slot);
    for reader in file.all_readers(&device) {
        let stream = device.stream().expect("no faults");
        let (own, shared): (Vec<_>, Vec<_>) = wanted.iter().partition(|want| want.own_buffer);
        let total: usize = shared.iter().map(|want| want.gap + want.bytes).sum();
        let mut gpu = device.alloc::<u8>(total).expect("room");
        stream.fill(&mut gpu, 0xee).expect("no faults");
        let mut model = Vec::with_capacity(total);
        let mut buffers: Vec<_> =
            own.iter().map(|want| device.alloc::<u8>(want.bytes).expect("room")).collect();

        let mut ranges = Vec::new();
        let mut rest = gpu.as_slice_mut();
        for want in &shared {
            let (_, behind) = rest.split_at_mut(want.gap).expect("in the sum");
            let (part, behind) = behind.split_at_mut(want.bytes).expect("in the sum");
            ranges.push((want.offset as u64, part));
            rest = behind;
            model.resize(model.len() + want.gap, 0xee);
            model.extend(&contents[want.offset..][..want.bytes]);
        }
        for (want, buffer) in own.iter().zip(&mut buffers) {
            ranges.push((want.offset as u64, buffer.as_slice_mut()));
        }
        let ticket = stream.upload_file_ranges(&reader, ranges).expect("no faults");
        ticket.wait().expect("no faults");

        let mut found = vec![0; total];
        stream.download_slice(&gpu, &mut found).expect("no faults");
        assert!(found == model);
        for (want, buffer) in own.iter().zip(&buffers) {
            let mut found = vec![0; want.bytes];
            stream.download_slice(buffer, &mut found).expect("no faults");
            assert!(found == contents[want.offset..][..want.bytes]);
        }
    }
    assert_eq!(emulator.findings(), []);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn many_ranges_are_what_the_file_has(
        wanted in prop::collection::vec(wanted(), 0..60),
        large in any::<bool>(),
        lazy in any::<bool>(),
    ) {
        let slot = if large { LARGE_SLOT } else { SLOT };
        check_many(slot, if lazy { Execution::Lazy } else { Execution::Eager }, &wanted);
    }
}

#[test]
fn elements_of_any_type_arrive_as_they_lie_in_the_file() {
    let values: Vec<f64> = (0..5000).map(f64::from).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let file = Scratch::new(&bytes);
    let device = device(&emulator(Execution::Eager), SLOT);
    let stream = device.stream().expect("a stream");
    for reader in file.all_readers(&device) {
        let mut gpu = device.alloc::<f64>(4000).expect("room");
        stream.upload_file(&reader, 8 * 1000, &mut gpu).expect("no faults");
        let mut found = vec![0.0; 4000];
        stream.download_slice(&gpu, &mut found).expect("no faults");
        assert_eq!(found, values[1000..]);
    }
}

/// Several units for several threads, at every alignment of both sides relative to a block.
#[test]
fn page_locked_memory_is_filled_to_the_byte() {
    const BYTES: usize = 1_600_001;
    let contents = contents(BYTES + 9000);
    let file = Scratch::new(&contents);
    let device = device(&emulator(Execution::Eager), SLOT);
    let pool = PinnedPool::builder(&device).build().expect("a pool");
    let mut host = pool.alloc::<u8>(BYTES + 4096).expect("room");
    for reader in file.all_readers(&device) {
        for (offset, at) in [(0, 0), (1, 1), (4095, 4095), (4096, 0), (7, 512), (8999, 3)] {
            for bytes in [0, 1, 4096, 524_288, BYTES] {
                host.write().expect("idle").fill(0xee);
                let view = host.slice_mut(at..at + bytes).expect("inside");
                reader.read_into(offset, view).expect("it can be read");
                let found = host.read().expect("idle");
                assert!(found[at..][..bytes] == contents[offset as usize..][..bytes]);
                let mut outside = found[..at].iter().chain(&found[at + bytes..]);
                assert!(outside.all(|&byte| byte == 0xee), "{bytes} bytes to {at}: wrote outside");
            }
        }
    }
}

/// More callers than slots, on one file and one device.
#[test]
fn sixty_four_callers_at_once() {
    let file = Scratch::new(&contents(9 * SLOT));
    let emulator = emulator(Execution::Lazy);
    let device = device(&emulator, SLOT);
    for reader in file.all_readers(&device) {
        let (device, reader) = (&device, &reader);
        std::thread::scope(|scope| {
            let call = |caller: usize| {
                scope.spawn(move || {
                    let bytes = (caller % 5 + 1) * SLOT + caller;
                    check(device, reader, caller * 37, bytes, caller).expect("no faults");
                })
            };
            let callers: Vec<_> = (0..64).map(call).collect();
            // The thread sanitizer sees a join, but not the end of a scope.
            callers.into_iter().for_each(|caller| caller.join().expect("no panics"));
        });
    }
    assert_eq!(emulator.findings(), []);
}
