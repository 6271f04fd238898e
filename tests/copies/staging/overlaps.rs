//! Destinations that overlap, which is possible only in borrowed memory, are refused before
//! anything is enqueued.

use pinlane::emulated::Emulator;
use pinlane::{
    Device, DeviceBuf, ErrorKind, PinnedPool, Stream,
    batch::{DeviceCopy, Download, Upload},
};

use super::support::{ByRoute, ROUTES, bytes, contents, device, pinned, upload};
use crate::common::support::all_calls;

/// The same memory twice.
fn twice(device: &Device, gpu: &DeviceBuf<u8>) -> [DeviceBuf<u8>; 2] {
    // SAFETY: the buffer outlives both in every test. It is used only through them, and all work
    // enqueued on it before is complete.
    [(); 2].map(|()| unsafe { device.borrow_memory(gpu.as_device_ptr(), gpu.len()) }.unwrap())
}

fn rig() -> (Emulator, Device, Stream, DeviceBuf<u8>) {
    let emulator = Emulator::new();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    let gpu = upload(&device, &[0xee; 1000]);
    // Makes everything that is made once.
    stream.upload_slice(&[0; 500], &mut device.alloc(500).unwrap()).unwrap().wait().unwrap();
    let mut other = device.alloc::<u8>(1).unwrap();
    stream.upload_batch(&mut [Upload::new(&[1], &mut other)]).unwrap();
    (emulator, device, stream, gpu)
}

#[test]
fn overlapping_destinations_are_refused() {
    let (emulator, device, stream, gpu) = rig();
    let pool = PinnedPool::builder(&device).build().unwrap();
    let (ordinary, locked) = (bytes(1000, 1), pinned(&pool, &bytes(1000, 2)));
    let [mut first, mut second] = twice(&device, &gpu);
    // The second range begins in the first, equals it, lies in it, or contains it; in either order.
    let ranges =
        [(0..10, 9..20), (0..10, 0..10), (0..10, 3..4), (5..6, 0..999), (500..600, 0..501)];
    for (one, two) in ranges {
        for path in [None].into_iter().chain(ROUTES.map(Some)) {
            let mut items = [
                Upload::new(&ordinary[one.clone()], first.slice_mut(one.clone()).unwrap()),
                Upload::new(
                    locked.slice(two.clone()).unwrap(),
                    second.slice_mut(two.clone()).unwrap(),
                ),
            ];
            let before = all_calls(&emulator);
            let error = match path {
                None => stream.upload_batch(&mut items),
                Some(path) => stream.upload_batch_by(path, &mut items),
            };
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidValue, "{one:?} {two:?}");
            assert_eq!(all_calls(&emulator), before, "nothing was enqueued");
        }
    }
    assert_eq!(contents(&device, &gpu), [0xee; 1000]);
    assert_eq!(emulator.findings(), []);
}

/// Enough that several threads check them, wherever the two are that overlap.
#[test]
fn overlaps_among_thousands_are_found() {
    let (emulator, device, stream, _) = rig();
    let gpu = upload(&device, &[0xee; 6000]);
    let source = bytes(3, 1);
    for (one, two) in [(0, 2999), (127, 128), (1500, 1499), (2999, 0)] {
        let [mut first, mut second] = twice(&device, &gpu);
        let range = |n: usize| 2 * n..2 * n + 2;
        let ranges = (0..3000).filter(|&n| n != two).map(range);
        let views = super::support::views(&mut first, ranges).into_iter();
        let items = views.map(|view| Upload::new(&source[..2], view));
        let mut items = items.collect::<Vec<_>>();
        let view = second.slice_mut(2 * one + 1..2 * one + 2).unwrap();
        items.insert(two, Upload::new(&source[2..], view));
        let before = all_calls(&emulator);
        let error = stream.upload_batch(&mut items).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue, "{one} {two}");
        assert_eq!(all_calls(&emulator), before, "nothing was enqueued");
    }
    assert_eq!(emulator.findings(), []);
}

#[test]
fn neighbours_and_empty_ranges_do_not_overlap() {
    let (emulator, device, stream, gpu) = rig();
    let source = bytes(1000, 3);
    for path in ROUTES {
        let [mut first, mut second] = twice(&device, &gpu);
        let mut items = [
            Upload::new(&source[500..], first.slice_mut(500..).unwrap()),
            Upload::new(&source[..500], second.slice_mut(..500).unwrap()),
        ];
        stream.upload_batch_by(path, &mut items).unwrap().wait().unwrap();
        assert_eq!(contents(&device, &gpu), source);
        let mut items = [
            Upload::new(&source[..100], first.slice_mut(..100).unwrap()),
            Upload::new(&source[..0], second.slice_mut(50..50).unwrap()),
        ];
        stream.upload_batch_by(path, &mut items).unwrap().wait().unwrap();
    }
    assert_eq!(emulator.findings(), []);
}

/// Single copies refuse the same overlaps as a batch.
#[test]
fn overlapping_single_copies_are_refused() {
    let (emulator, device, stream, gpu) = rig();
    let [first, mut second] = twice(&device, &gpu);
    let file = std::env::temp_dir().join(format!("pinlane-overlaps-{}", std::process::id()));
    std::fs::write(&file, [1; 100]).unwrap();
    let reader = pinlane::file::FileReader::open(&file).unwrap();
    let before = all_calls(&emulator);
    for (from, to) in [(0..10, 9..19), (0..10, 0..10), (100..200, 50..150)] {
        let (src, dst) = (first.slice(from).unwrap(), second.slice_mut(to).unwrap());
        assert_eq!(stream.copy(src, dst).unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    let sum = second.slice_mut(8..16).unwrap().cast::<u64>().unwrap();
    let error = stream.checksum(first.slice(..100).unwrap(), sum).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    let mut first = first;
    let ranges = [(0, first.slice_mut(..10).unwrap()), (10, second.slice_mut(5..15).unwrap())];
    let error = stream.upload_file_ranges(&reader, ranges).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    assert_eq!(all_calls(&emulator), before, "nothing was enqueued");
    // Neighbours do not overlap.
    let neighbours = stream.copy(first.slice(..10).unwrap(), second.slice_mut(10..20).unwrap());
    // `gpu` does not know of the uses of the borrowed buffers.
    neighbours.unwrap().wait().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(contents(&device, &gpu), [0xee; 1000]);
    assert_eq!(emulator.findings(), []);
}

/// Memory that is only read may be read twice.
#[test]
fn sources_may_overlap() {
    let (emulator, device, stream, gpu) = rig();
    let source = bytes(1000, 4);
    stream.upload_slice(&source, &mut twice(&device, &gpu)[0]).unwrap().wait().unwrap();
    let [first, second] = twice(&device, &gpu);
    for path in ROUTES.into_iter().take(3) {
        let mut targets = [vec![0; 1000], vec![0; 900]];
        let [one, two] = &mut targets;
        let mut items =
            [Download::new(&first, one), Download::new(second.slice(100..).unwrap(), two)];
        stream.download_batch_by(path, &mut items).unwrap();
        assert_eq!(targets, [&source[..], &source[100..]]);
    }
    let mut targets = [(); 2].map(|()| device.alloc::<u8>(1000).unwrap());
    let [one, two] = &mut targets;
    let mut items = [DeviceCopy::new(&first, one), DeviceCopy::new(&second, two)];
    stream.copy_batch(&mut items).unwrap().wait().unwrap();
    assert!(targets.iter().all(|target| contents(&device, target) == source));
    assert_eq!(emulator.findings(), []);
}

#[test]
fn copies_between_overlapping_buffers_are_refused() {
    let (emulator, device, stream, gpu) = rig();
    let mut other = device.alloc::<u8>(100).unwrap();
    let [first, mut second] = twice(&device, &gpu);
    for (one, two) in [(0..10, 9..19), (5..15, 0..10), (7..17, 7..17)] {
        let before = all_calls(&emulator);
        let dst = second.slice_mut(two).unwrap();
        let mut items = [DeviceCopy::new(first.slice(one).unwrap(), dst)];
        let error = stream.copy_batch(&mut items).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert_eq!(all_calls(&emulator), before);
    }
    // Across two items.
    let mut items = [
        DeviceCopy::new(first.slice(..100).unwrap(), &mut other),
        DeviceCopy::new(first.slice(300..310).unwrap(), second.slice_mut(90..100).unwrap()),
    ];
    let error = stream.copy_batch(&mut items).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    assert_eq!(emulator.findings(), []);
}
