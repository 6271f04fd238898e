//! Batches between device buffers, of one device or of two, against `memcpy`.

use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, DeviceBuf, batch::DeviceCopy};
use proptest::prelude::*;

use super::support::{EXECUTIONS, bytes, config, contents, device, device_of, tiny, upload, views};
use crate::common::support::{Stalled, assert_nothing_is_left};

#[derive(Clone, Copy, Debug)]
struct Copy {
    bytes: usize,
    from: usize,
    gap: usize,
    devices: (usize, usize),
}

fn copy() -> impl Strategy<Value = Copy> {
    let bytes = prop_oneof![1 => Just(0), 5 => 1..300usize, 1 => 0..9000usize];
    let devices = prop_oneof![
        3 => Just((0, 0)),
        1 => Just((0, 1)),
        1 => Just((1, 0)),
    ];
    (bytes, 0..64usize, 0..64usize, devices).prop_map(|(bytes, from, gap, devices)| Copy {
        bytes,
        from,
        gap,
        devices,
    })
}

fn check(copies: &[Copy], execution: Execution, seed: u64, batches: bool) {
    let builder = Emulator::builder().devices(2).execution(execution).seed(seed);
    let emulator = builder.batches(batches).build();
    let devices = [0, 1].map(|ordinal| device_of(&emulator, ordinal, tiny()));
    // All copies read one buffer of their device, at any place. Each writes its own part.
    let data = [0, 1].map(|device| bytes(9100, seed ^ device));
    let sources: [DeviceBuf<u8>; 2] = [0, 1].map(|n| upload(&devices[n], &data[n]));
    let mut ranges = [vec![], vec![]];
    let mut ends = [0; 2];
    for copy in copies {
        let (end, to) = (&mut ends[copy.devices.1], copy.devices.1);
        ranges[to].push(*end + copy.gap..*end + copy.gap + copy.bytes);
        *end += copy.gap + copy.bytes;
    }
    let mut models = ends.map(|end| vec![0xee; end + 9]);
    let mut targets = [0, 1].map(|n: usize| upload(&devices[n], &models[n]));
    let stream = devices[0].stream().unwrap();
    {
        let [first, second] = &mut targets;
        let parts =
            [views(first, ranges[0].iter().cloned()), views(second, ranges[1].iter().cloned())];
        let mut parts = parts.map(Vec::into_iter);
        let mut places = ranges.map(Vec::into_iter);
        let mut item = |copy: &Copy| {
            let (src, dst) = copy.devices;
            let from = copy.from..copy.from + copy.bytes;
            models[dst][places[dst].next().unwrap()].copy_from_slice(&data[src][from.clone()]);
            DeviceCopy::new(sources[src].slice(from).unwrap(), parts[dst].next().unwrap())
        };
        let mut items: Vec<_> = copies.iter().map(&mut item).collect();
        stream.copy_batch(&mut items).unwrap();
    }
    let read = |n: usize, gpu: &DeviceBuf<u8>| contents(&devices[n], gpu);
    assert!([read(0, &targets[0]), read(1, &targets[1])] == models, "not what memcpy would do");
    assert!([read(0, &sources[0]), read(1, &sources[1])] == data, "a source changed");
    drop((sources, targets, stream));
    drop::<[Device; 2]>(devices);
    assert_nothing_is_left(&emulator);
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn batches_between_buffers_are_what_memcpy_would_do(
        copies in prop::collection::vec(copy(), 0..20),
        lazy: bool,
        seed: u64,
        batches: bool,
    ) {
        let execution = if lazy { Execution::Lazy } else { Execution::Eager };
        check(&copies, execution, seed, batches);
        let here: Vec<_> = copies.into_iter().filter(|copy| copy.devices == (0, 0)).collect();
        check(&here, execution, seed, batches);
    }
}

#[test]
fn more_copies_than_the_ring_has_room_for_their_items() {
    let copy = |n: usize| Copy { bytes: n % 5, from: n % 64, gap: n % 2, devices: (0, 0) };
    let copies: Vec<_> = (0..3000).map(copy).collect();
    check(&copies, Execution::Lazy, 1, true);
}

/// The kernel reads its list when it runs. Until then no other batch gets that memory.
#[test]
fn lists_are_kept_until_they_are_read() {
    for execution in EXECUTIONS {
        let emulator = Emulator::builder().execution(execution).build();
        let device = device(&emulator);
        let stream = device.stream().unwrap();
        let source = upload(&device, &[7; 90]);
        let mut targets = [(); 5].map(|()| upload(&device, &[0xee; 90]));
        let stalled = Stalled::new(&emulator, &stream);
        for target in &mut targets {
            let parts = views(target, (0..9).map(|n| 10 * n..10 * n + 9)).into_iter();
            let items = parts.map(|part| DeviceCopy::new(source.slice(..9).unwrap(), part));
            stream.copy_batch(items).unwrap();
        }
        drop(stalled);
        let copied: Vec<u8> = [7, 7, 7, 7, 7, 7, 7, 7, 7, 0xee].repeat(9);
        assert!(targets.iter().all(|target| contents(&device, target) == copied));
        assert_eq!(emulator.findings(), []);
    }
}
