//! Refused calls: each names the part, and enqueues nothing.

use pinlane::driver::Call;

use super::*;

struct Refused {
    emulator: Emulator,
    rig: Rig,
}

impl Refused {
    fn new() -> Self {
        let emulator = Emulator::new();
        let rig = Rig::new(Device::of_emulator(&emulator, 0).unwrap());
        Refused { emulator, rig }
    }

    fn copies(&self) -> u64 {
        let calls = [Call::MoveItems, Call::CopyBatch, Call::CopyD2H, Call::CopyH2D];
        calls.into_iter().map(|call| self.emulator.calls(call)).sum()
    }

    /// The error of a copy between sides of 100 elements, in both directions, of any memory.
    fn error(&self, parts: Parts<'_>) -> (ErrorKind, String) {
        let rig = &self.rig;
        let mut gpu = rig.on_device(&noise(1, 100));
        let (mut pageable, mut pinned) = (noise(2, 100), rig.page_locked(&noise(2, 100)));
        rig.stream.synchronize().unwrap();
        let before = self.copies();
        let results = [
            rig.stream.upload_parts(&pageable, &mut gpu, parts),
            rig.stream.upload_parts(&pinned, &mut gpu, parts),
            rig.stream.upload_parts(pinned.read().unwrap(), &mut gpu, parts),
            rig.stream.download_parts(&gpu, &mut pageable, parts),
            rig.stream.download_parts(&gpu, &mut pinned, parts),
            rig.stream.download_parts(&gpu, pinned.write().unwrap(), parts),
        ];
        assert_eq!(self.copies(), before, "nothing was enqueued");
        assert!(pageable == noise(2, 100) && *pinned.read().unwrap() == noise(2, 100)[..]);
        let errors: Vec<_> = results.into_iter().map(|result| result.unwrap_err()).collect();
        let text = |error: &pinlane::Error| {
            let text = error.to_string();
            text.split_once(": ").map(|it| it.1.to_owned()).unwrap_or(text)
        };
        for error in &errors {
            assert_eq!(error.kind(), errors[0].kind());
            assert_eq!(text(error), text(&errors[0]));
        }
        (errors[0].kind(), errors[0].to_string())
    }
}

#[test]
fn parts_that_do_not_lie_in_a_side_are_refused_by_their_number() {
    let it = Refused::new();
    for (from, to, lengths, number, side) in [
        ([0, 91, 20], [0, 10, 20], [10, 10, 10], 1, "source"),
        ([0, 10, 20], [0, 10, 91], [10, 10, 10], 2, "destination"),
        ([100, 10, 20], [0, 10, 20], [1, 10, 10], 0, "source"),
        ([0, 10, 20], [0, 10, 100], [10, 10, 1], 2, "destination"),
        ([101, 10, 20], [0, 10, 20], [0, 10, 10], 0, "source"),
        ([0, 10, 20], [0, 101, 20], [10, 0, 10], 1, "destination"),
        ([0, usize::MAX, 20], [0, 10, 20], [10, 1, 10], 1, "source"),
        ([0, 10, 20], [0, 10, 20], [10, 10, usize::MAX], 2, "source"),
        ([0, 10, 20], [0, 10, usize::MAX - 4], [10, 10, 5], 2, "destination"),
    ] {
        let (kind, text) = it.error(Parts::new(&from, &to, &lengths));
        assert_eq!(kind, ErrorKind::OutOfRange);
        assert!(text.contains(&format!("part {number} is")), "{text}");
        assert!(text.contains(&format!("in a {side} of 100 elements")), "{text}");
    }
    let (kind, text) = it.error(Parts::of_length(&[0, 5], &[0, 96], 5));
    assert_eq!(kind, ErrorKind::OutOfRange);
    assert!(text.contains("part 1 is 5 elements from 96 on, in a destination"), "{text}");
}

#[test]
fn destinations_that_overlap_are_refused_by_their_numbers() {
    let it = Refused::new();
    for (to, lengths, numbers) in [
        ([0, 9, 20, 30], [10, 10, 10, 10], (0, 1)),
        ([50, 20, 0, 29], [10, 10, 20, 10], (1, 3)),
        ([50, 20, 0, 20], [10, 10, 10, 1], (1, 3)),
        // Empty parts overlap nothing.
        ([50, 55, 0, 59], [10, 0, 20, 10], (0, 3)),
    ] {
        let (kind, text) = it.error(Parts::new(&[0, 20, 40, 60], &to, &lengths));
        assert_eq!(kind, ErrorKind::InvalidValue);
        let (first, second) = numbers;
        assert!(text.contains(&format!("part {second} (")), "{text}");
        assert!(text.contains(&format!("overlaps part {first} (")), "{text}");
    }
    let (kind, text) = it.error(Parts::of_length(&[0, 0, 0], &[90, 5, 0], 6));
    assert_eq!(kind, ErrorKind::InvalidValue);
    assert!(text.contains("part 2 (6 elements at 0) overlaps part 1 (6 elements at 5)"), "{text}");
}

/// Any two of many parts that overlap, wherever they are among the others.
#[test]
fn one_overlap_among_many_parts_is_found() {
    let it = Refused::new();
    let arrays = scattered(1000, 8);
    let mut gpu = it.rig.device.alloc::<u16>(arrays.dst).unwrap();
    let host = it.rig.page_locked(&noise(1, arrays.src));
    for (one, other) in [(0, 999), (17, 18), (998, 3), (500, 501)] {
        for near in [3, 0, -3isize] {
            let mut to = arrays.to.clone();
            to[one] = to[other].saturating_add_signed(near).min(arrays.dst - 8);
            let parts = Parts::of_length(&arrays.from, &to, 8);
            let error = it.rig.stream.upload_parts(&host, &mut gpu, parts).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidValue);
            assert!(text.contains(&format!("part {} (", one.max(other))), "{text}");
            assert!(text.contains(&format!("part {} (", one.min(other))), "{text}");
        }
    }
    it.rig.stream.upload_parts(&host, &mut gpu, arrays.parts(None)).unwrap();
}

#[test]
fn arrays_of_different_lengths_are_refused() {
    let it = Refused::new();
    for parts in [
        Parts::new(&[0, 1], &[0], &[1, 1]),
        Parts::new(&[0], &[0, 1], &[1]),
        Parts::new(&[0, 1], &[0, 1], &[1]),
        Parts::new(&[], &[], &[1]),
        Parts::of_length(&[0, 1], &[0], 1),
        Parts::of_length(&[], &[0], 1),
    ] {
        assert_eq!(it.error(parts).0, ErrorKind::LengthMismatch);
    }
}

#[test]
fn memory_of_another_device_or_machine_is_refused() {
    let (it, elsewhere) = (Refused::new(), Refused::new());
    let parts = Parts::of_length(&[0], &[0], 1);
    let host = it.rig.page_locked(&[1]);
    let mut foreign = elsewhere.rig.on_device(&[0]);
    let stream = &it.rig.stream;
    let refused = stream.upload_parts(&host, &mut foreign, parts).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongDevice);
    let mut theirs = elsewhere.rig.page_locked(&[1]);
    let mut gpu = it.rig.on_device(&[0]);
    let refused = stream.upload_parts(&theirs, &mut gpu, parts).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongDevice);
    let refused = stream.download_parts(&gpu, &mut theirs, parts).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongDevice);
}
