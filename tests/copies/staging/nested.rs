//! Copies inside the function that is called for each item.

use pinlane::emulated::{Emulator, Execution};
use pinlane::{ErrorKind, PinnedPool, batch::Download};

use super::support::{bytes, device, pinned, upload};

#[test]
fn copies_through_slots_are_refused_while_slots_are_in_use() {
    let emulator = Emulator::builder().execution(Execution::Lazy).build();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    let other = device.stream().unwrap();
    let source = bytes(20_000, 1);
    let mut gpu = device.alloc::<u8>(source.len()).unwrap();
    stream.upload_slice(&source, &mut gpu).unwrap();
    let mut spare = device.alloc::<u8>(source.len()).unwrap();
    let mut targets = vec![vec![0; 5000]; 4];
    let mut items: Vec<_> = targets
        .iter_mut()
        .enumerate()
        .map(|(n, target)| Download::new(gpu.slice(n * 5000..(n + 1) * 5000).unwrap(), target))
        .collect();
    let mut told = 0;
    stream
        .download_batch_each(&mut items, |_, landed| {
            told += 1;
            let error = other.upload_slice(landed, spare.slice_mut(..5000).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            // A small copy takes no slot.
            other.upload_slice(&landed[..64], spare.slice_mut(..64).unwrap()).unwrap();
        })
        .unwrap();
    assert_eq!(told, 4);
    drop(items);
    assert_eq!(targets.concat(), source);
    other.upload_slice(&source, &mut spare).unwrap();
}

#[test]
fn a_batch_that_is_refused_inside_copies_nothing() {
    let emulator = Emulator::builder().execution(Execution::Lazy).build();
    let device = device(&emulator);
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let source = bytes(8000, 1);
    let gpu = upload(&device, &source);
    let pool = PinnedPool::builder(&device).build().unwrap();
    let (mut locked, mut ordinary) = (pinned(&pool, &[7; 8000]), vec![7; 8000]);
    let mut target = vec![0; 8000];
    stream
        .download_batch_each([(&gpu, &mut target)], |_, _| {
            let both = [Download::new(&gpu, &mut locked), Download::new(&gpu, &mut ordinary)];
            let error = other.download_batch(both).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        })
        .unwrap();
    assert_eq!(locked.read().unwrap(), [7; 8000]);
    assert_eq!(ordinary, [7; 8000]);
    assert_eq!(target, source);
}
