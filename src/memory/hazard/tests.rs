use super::*;
use crate::device::Device;
use crate::driver::emulated::Emulator;
use crate::memory::block::Block;
use crate::memory::device::DeviceRegion;

fn stream() -> Arc<Timeline> {
    Device::emulated().and_then(|device| device.stream()).expect("no faults").timeline
}

fn read(
    hazards: &Hazards,
    stream: &Arc<Timeline>,
    position: u64,
    covers: u64,
    range: Range<usize>,
) {
    hazards.note(stream, Fence { position, covers }, range, Access::Read);
}

fn positions(hazards: &Hazards) -> Vec<u64> {
    let mut positions: Vec<_> = hazards.lock().iter().map(|u| u.fence.position).collect();
    positions.sort_unstable();
    positions
}

/// Two threads have read the buffer, and each fenced before it saw the position of the other. A
/// wait must wait for both events: the event with the later position may be the earlier one.
#[test]
fn uses_fenced_at_once_are_not_merged() {
    let (hazards, stream) = (Hazards::default(), stream());
    read(&hazards, &stream, 0, 0, 0..8);
    read(&hazards, &stream, 1, 0, 0..8);
    assert_eq!(positions(&hazards), [0, 1]);
    read(&hazards, &stream, 2, 2, 0..8);
    assert_eq!(positions(&hazards), [1, 2], "the third covers the first");

    let hazards = Hazards::default();
    read(&hazards, &stream, 1, 0, 0..8);
    read(&hazards, &stream, 0, 0, 0..8);
    assert_eq!(positions(&hazards), [0, 1], "whichever is recorded first");
}

#[test]
fn a_full_list_is_merged_but_for_uses_fenced_at_once() {
    let (hazards, stream, other) = (Hazards::default(), stream(), stream());
    for position in 0..100 {
        let start = position as usize;
        read(&hazards, &stream, position, position.saturating_sub(1), start..start + 1);
        read(&hazards, &other, position, position, start..start + 1);
        assert!(hazards.lock().len() <= TIDY_ABOVE + 1);
    }
    let uses = hazards.lock();
    for stream in [&stream, &other] {
        let ours = || uses.iter().filter(|u| Arc::ptr_eq(&u.stream, stream));
        let is_known = |byte: usize| ours().any(|u| u.range.contains(&byte));
        assert!((0..100).all(is_known), "no range is forgotten");
        assert_eq!(ours().map(|u| u.fence.position).max(), Some(99));
    }
}

/// The pool uses the same list for one buffer after another.
#[test]
fn a_list_is_idle_again_when_all_is_complete() {
    let (hazards, stream, other) = (Hazards::default(), stream(), stream());
    assert!(hazards.is_idle() && hazards.all_complete());
    assert!(hazards.a_stream().is_none() && hazards.first_pending_stream().is_none());
    for _ in 0..3 {
        for (at, stream) in [&stream, &other, &stream].into_iter().enumerate() {
            let submission = stream.submit("test", |_, _| ()).expect("no faults");
            hazards.note(stream, submission.fence, at..at + 1, Access::Write);
        }
        assert!(!hazards.is_idle() && !hazards.all_complete());
        stream.advance().expect("no faults");
        assert!(!hazards.all_complete());
        let pending = hazards.first_pending_stream().expect("one is");
        assert!(Arc::ptr_eq(&pending, &other));
        assert_eq!(positions(&hazards).len(), 1);
        other.advance().expect("no faults");
        assert!(hazards.all_complete() && hazards.is_idle());
    }
}

/// A buffer that is copied up and down in turns keeps one use, and its list needs no memory.
#[test]
fn a_use_makes_place_when_it_is_complete_and_not_before() {
    let (hazards, stream, other) = (Hazards::default(), stream(), stream());
    for (stream, access) in
        [(&stream, Access::Write), (&stream, Access::Read), (&other, Access::Read)]
    {
        note_work(&hazards, stream, access);
        assert_eq!(hazards.lock().len(), 1);
        stream.advance().expect("no faults");
    }
    assert!(hazards.is_used_elsewhere(&stream) && !hazards.is_used_elsewhere(&other));
    for (stream, access, len) in
        [(&stream, Access::Write, 1), (&stream, Access::Read, 2), (&other, Access::Read, 3)]
    {
        note_work(&hazards, stream, access);
        assert_eq!(hazards.lock().len(), len, "what is pending stays");
    }
    assert!(hazards.is_used_elsewhere(&stream) && hazards.is_used_elsewhere(&other));
}

#[test]
fn no_bytes_are_no_use() {
    let (hazards, stream) = (Hazards::default(), stream());
    read(&hazards, &stream, 0, 0, 4..4);
    assert!(hazards.is_idle());
}

fn note_work(hazards: &Hazards, stream: &Arc<Timeline>, access: Access) {
    let submission = stream.submit("test", |_, _| ()).expect("no faults");
    hazards.note(stream, submission.fence, 0..8, access);
}

/// If the second device is lost, a wait for its write says nothing about the uses of the first one.
#[test]
fn a_write_stands_for_earlier_uses_on_its_own_device_only() {
    let emulator = Emulator::builder().devices(2).build();
    let device = |ordinal| Device::of_emulator(&emulator, ordinal).expect("no faults");
    let (first, second) = (device(0), device(1));
    let stream = |device: &Device| device.stream().expect("no faults").timeline;
    let (a, b, elsewhere) = (stream(&first), stream(&first), stream(&second));
    let hazards = Hazards::default();
    note_work(&hazards, &a, Access::Read);
    for (writer, left) in [(&elsewhere, 2), (&b, 2)] {
        note_work(&hazards, writer, Access::Write);
        hazards.supersede(writer, &(0..8));
        assert_eq!(hazards.lock().len(), left);
    }
    let is_known = |stream| hazards.lock().iter().any(|user| user.is_on(stream));
    assert!(is_known(&elsewhere) && is_known(&b) && !is_known(&a));
}

/// Each request uses the buffer on streams of its own, and no caller ever waits for them.
#[test]
fn streams_that_are_gone_are_forgotten() {
    let device = Device::emulated().expect("no faults");
    let hazards = Hazards::default();
    let mut streams = Vec::new();
    for request in 0..1000 {
        let stream = device.stream().expect("no faults").timeline;
        note_work(&hazards, &stream, [Access::Read, Access::Write][request % 2]);
        streams.push(Arc::downgrade(&stream));
        drop(stream);
        let alive = streams.iter().filter(|stream| stream.strong_count() > 0).count();
        assert!(alive <= TIDY_ABOVE + 1, "{alive} streams are alive");
        assert!(hazards.lock().len() <= TIDY_ABOVE + 1);
    }
}

#[test]
fn streams_that_are_busy_are_all_remembered_and_then_forgotten() {
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).expect("no faults");
    let hazards = Hazards::default();
    let streams: Vec<_> = (0..300).map(|_| device.stream().expect("no faults").timeline).collect();
    for stream in &streams {
        emulator.stall(stream.raw()).expect("no faults");
        note_work(&hazards, stream, Access::Read);
    }
    assert_eq!(hazards.pending(&(0..8), Access::Write).iter().count(), 300);
    assert_eq!(hazards.pending(&(0..8), Access::Read).iter().count(), 0);
    for stream in &streams {
        emulator.release(stream.raw()).expect("no faults");
    }
    while hazards.lock().len() > TIDY_ABOVE {
        let stream = device.stream().expect("no faults").timeline;
        note_work(&hazards, &stream, Access::Read);
    }
    assert!(hazards.lock().iter().all(|user| !streams.iter().any(|old| user.is_on(old))));
}

#[test]
fn uses_of_rows_are_few_and_keep_their_gaps_until_there_are_many() {
    let rows = Rows::new(1, [(8, 100), (1, 0)]);
    let column = |at: usize| at..at + 701;
    let (hazards, stream) = (Hazards::default(), stream());
    let note = |position, at| {
        let fence = Fence { position, covers: position };
        hazards.note_rows(&stream, fence, &column(at), &rows, Access::Write);
    };
    let found = |at: usize| {
        let (uses, column) = (hazards.lock(), column(at));
        let found = uses.conflicts(&column, Some(&rows), Access::Read);
        let found = found.chain(uses.conflicts_of_rows(&column, Some(&rows), Access::Read));
        found.map(|found| found.fence.position).max()
    };
    for position in 0..400 {
        note(position, position as usize % 4);
    }
    assert_eq!(positions(&hazards), [396, 397, 398, 399], "one for each column");
    assert_eq!([found(0), found(3), found(4)], [Some(396), Some(399), None]);
    assert_eq!(hazards.pending(&(4..100), Access::Write).iter().count(), 0);
    assert_eq!(hazards.pending(&(4..101), Access::Read).iter().count(), 1);

    for position in 400..500 {
        note(position, position as usize % 99);
        assert!(hazards.lock().len() <= 2 * TIDY_ABOVE + 1);
        assert_eq!(found(position as usize % 99), Some(position), "the newest");
    }
    assert!((0..99).all(|at| found(at).is_some()), "none is forgotten");
    assert!(!hazards.is_idle());
}

/// The lock and the first use lie in one cache line, beside no other field that is written.
#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn a_use_is_recorded_in_one_cache_line() {
    use std::mem::{align_of, offset_of, size_of};

    const LINE: usize = 64;
    assert_eq!(size_of::<SpinLock<List>>(), LINE);
    let in_parents = [offset_of!(Block, hazards), DeviceRegion::HAZARDS];
    assert_eq!((align_of::<Block>(), align_of::<DeviceRegion>()), (LINE, LINE));
    for hazards in in_parents {
        assert_eq!((hazards + offset_of!(Hazards, uses)) % LINE, 0);
    }
    let hazards = Hazards::default();
    let (lock, list) = (&raw const hazards.uses, &raw const *hazards.lock());
    assert_eq!(list.addr() - lock.addr(), 8, "the lock's word comes first");
    assert!(8 + size_of::<Option<Use>>() <= LINE);
}
