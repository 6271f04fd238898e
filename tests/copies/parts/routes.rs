//! Which calls of the driver copy parts, and what a route that is not possible does.

use pinlane::CudaCode;
use pinlane::driver::Call;
use pinlane::emulated::Builder;

use super::*;

const COPIES: [Call; 4] = [Call::MoveItems, Call::CopyBatch, Call::CopyH2D, Call::CopyD2H];

fn calls_of(emulator: &Emulator, work: impl FnOnce()) -> Vec<(Call, u64)> {
    let before = COPIES.map(|call| emulator.calls(call));
    work();
    let made = |n: usize| emulator.calls(COPIES[n]) - before[n];
    (0..COPIES.len()).map(|n| (COPIES[n], made(n))).filter(|it| it.1 > 0).collect()
}

fn rig(builder: Builder) -> (Emulator, Rig) {
    let emulator = builder.build();
    let rig = Rig::new(Device::of_emulator(&emulator, 0).unwrap());
    (emulator, rig)
}

/// The calls of an upload of page-locked parts.
fn calls(arrays: &Arrays, route: Option<Route>) -> Vec<(Call, u64)> {
    let (emulator, rig) = rig(Emulator::builder());
    let host = rig.page_locked(&noise(1, arrays.src));
    let mut gpu = rig.on_device(&noise(2, arrays.dst));
    calls_of(&emulator, || {
        rig.stream.upload_parts(&host, &mut gpu, arrays.parts(route)).unwrap();
    })
}

#[test]
fn page_locked_parts_take_one_call_by_the_rules_of_batches() {
    let one = scattered(1, 100);
    assert_eq!(calls(&one, None), [(Call::CopyH2D, 1)]);
    let few = scattered(3, 100);
    assert_eq!(calls(&few, None), [(Call::CopyBatch, 1)]);
    let many = scattered(1000, 100);
    assert_eq!(calls(&many, None), [(Call::MoveItems, 1)]);
    assert_eq!(calls(&many, Some(Route::Copies)), [(Call::CopyH2D, 1000)]);
    assert_eq!(calls(&many, Some(Route::BatchCall)), [(Call::CopyBatch, 1)]);
    // The device begins with the first half.
    assert_eq!(calls(&scattered(5000, 10), None), [(Call::MoveItems, 2)]);
}

/// Parts that follow each other on both sides are one copy.
#[test]
fn adjacent_parts_are_copied_as_one() {
    let row = |count: usize| (0..count).map(|n| 7 + n * 10).collect::<Vec<_>>();
    let arrays = |to: Vec<usize>| Arrays {
        from: row(100),
        to,
        lengths: vec![10; 100],
        equal: true,
        src: 2000,
        dst: 2000,
    };
    assert_eq!(calls(&arrays(row(100)), None), [(Call::CopyH2D, 1)]);
    let mut two = row(100);
    two[50..].iter_mut().for_each(|to| *to += 5);
    assert_eq!(calls(&arrays(two), Some(Route::Copies)), [(Call::CopyH2D, 2)]);
}

#[test]
fn a_route_that_is_not_possible_is_refused() {
    let (_emulator, rig) = rig(Emulator::builder().batches(false));
    let arrays = scattered(10, 10);
    for memory in MEMORIES {
        for done in [
            rig.up(memory, &arrays, Some(Route::BatchCall)),
            rig.down(memory, &arrays, Some(Route::BatchCall)),
        ] {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::Unsupported);
        }
        rig.check(memory, &arrays, None);
    }
}

/// Memory of several registrations: no copy spans two of them.
#[test]
fn parts_on_a_seam_are_split() {
    const PART: usize = 8 << 20;
    for execution in [Execution::Eager, Execution::Lazy] {
        let refusing =
            Emulator::builder().page_lock_limit(2 * PART - 1, CudaCode::MEMORY_ALLOCATION);
        let (emulator, rig) = rig(refusing.execution(execution));
        let seam = PART / 2; // elements of two bytes
        let mut arrays = scattered(20, 30);
        arrays.from.iter_mut().for_each(|from| *from += seam - 300);
        arrays.src = 2 * seam;
        for route in ROUTES {
            for inside in [false, true] {
                let mut arrays = arrays.clone();
                if inside {
                    // All of one registration: nothing is to be split.
                    arrays.from.iter_mut().for_each(|from| *from -= 400);
                }
                let source = rig.page_locked(&noise(1, arrays.src));
                let mut gpu = rig.on_device(&noise(2, arrays.dst));
                rig.stream.upload_parts(&source, &mut gpu, arrays.parts(route)).unwrap();
                let expected = arrays.copied(&noise(1, arrays.src), &noise(2, arrays.dst));
                assert!(rig.back(&gpu) == expected);
            }
        }
        drop(rig);
        common::support::assert_nothing_is_left(&emulator);
    }
}

/// The host waits for parts in a buffer that the device still copies, and not for bytes before the
/// first and behind the last of them.
#[test]
fn a_copy_is_a_use_from_the_first_part_to_the_last() {
    let (emulator, rig) = rig(Emulator::builder());
    let mut host = rig.page_locked(&noise(2, 1000));
    let gpu = rig.on_device(&noise(1, 1000));
    rig.stream.synchronize().unwrap();
    let stalled = common::support::Stalled::new(&emulator, &rig.stream);
    let parts = Parts::new(&[0, 50, 90], &[700, 100, 300], &[10, 10, 10]);
    rig.stream.download_parts(&gpu, &mut host, parts).unwrap();
    for (range, is_free) in [(0..100, true), (710..1000, true), (99..101, false), (500..501, false)]
    {
        let view = host.slice(range.clone()).unwrap();
        assert_eq!(view.try_read().is_ok(), is_free, "{range:?}");
    }
    drop(stalled);
    assert_eq!(host.read().unwrap()[700..710], noise(1, 1000)[..10]);
}
