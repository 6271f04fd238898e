//! Page-locked memory of several registrations, and adjacent buffers on the device: no copy spans
//! two of them.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::{
    CudaCode, ErrorKind, PinnedPool,
    batch::{Download, Route, Upload},
};

use super::support::{ByRoute, bytes, contents, device, pinned, upload, views};
use crate::common::support::{Stalled, assert_nothing_is_left};

const PART: usize = 8 << 20;

#[test]
fn entries_on_a_seam_are_split() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let refusing =
            Emulator::builder().page_lock_limit(2 * PART - 1, CudaCode::MEMORY_ALLOCATION);
        check(&refusing.execution(execution).build());
    }
}

/// The first part of the copy has reached the device, the second has not.
#[test]
fn a_copy_that_fails_at_a_seam_is_a_use_all_the_same() {
    for batch in [false, true] {
        let refusing =
            Emulator::builder().page_lock_limit(2 * PART - 1, CudaCode::MEMORY_ALLOCATION);
        let emulator = refusing.build();
        let device = device(&emulator);
        let stream = device.stream().unwrap();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let mut host = pool.alloc::<u8>(2 * PART).unwrap();
        host.write().unwrap().fill(0);
        let source = bytes(200, 1);
        let gpu = upload(&device, &source);
        let stalled = Stalled::new(&emulator, &stream);
        emulator.inject(Fault::once(Call::CopyD2H, CudaCode::UNKNOWN).nth(2));
        let dst = host.slice_mut(PART - 100..PART + 100).unwrap();
        let result = match batch {
            false => stream.download(&gpu, dst),
            true => stream.download_batch_by(Route::Copies, [(&gpu, dst)]),
        };
        assert_eq!(result.unwrap_err().cuda_code(), Some(CudaCode::UNKNOWN));
        assert_eq!(host.try_read().unwrap_err().kind(), ErrorKind::NotReady);
        drop(stalled);
        assert!(host.read().unwrap()[PART - 100..PART] == source[..100]);
        drop((host, gpu, pool, stream, device));
        assert_nothing_is_left(&emulator);
    }
}

fn check(emulator: &Emulator) {
    let device = device(emulator);
    let stream = device.stream().unwrap();
    let pool = PinnedPool::builder(&device).build().unwrap();
    let source = bytes(6000, 1);
    let mut host = pool.alloc::<u8>(2 * PART + 9000).unwrap();
    // Ranges before a seam, across it, after it and at it, and adjacent ranges that would be one
    // copy.
    let places = [PART - 900..PART - 1, PART - 1..PART + 700, PART + 700..PART + 701];
    let others = [2 * PART - 3000..2 * PART, 2 * PART..2 * PART + 500];
    let places: Vec<_> = places.into_iter().chain(others).collect();
    let mut end = 0;
    let on_device: Vec<_> = places
        .iter()
        .map(|place| {
            end += place.len();
            end - place.len()..end
        })
        .collect();
    for path in [Route::Copies, Route::BatchCall, Route::Kernel] {
        let whole = host.write().unwrap();
        for (place, part) in places.iter().zip(&on_device) {
            whole[place.clone()].copy_from_slice(&source[part.clone()][..place.len()]);
        }
        let mut gpu = device.alloc::<u8>(end).unwrap();
        let items = views(&mut gpu, on_device.iter().cloned()).into_iter().zip(&places);
        let items = items.map(|(dst, place)| Upload::new(host.slice(place.clone()).unwrap(), dst));
        let mut items = items.collect::<Vec<_>>();
        stream.upload_batch_by(path, &mut items).unwrap();
        assert!(contents(&device, &gpu) == source[..end], "{path}");
        host.write().unwrap().fill(0);
        let dst = host.slice_mut(PART - 2000..PART - 2000 + end).unwrap();
        let mut items = [Download::new(&gpu, dst)];
        stream.download_batch_by(path, &mut items).unwrap();
        let host = host.read().unwrap();
        assert!(host[PART - 2000..][..end] == source[..end], "{path}");
        assert!(host[..PART - 2000].iter().all(|&byte| byte == 0));
        assert!(host[PART - 2000 + end..].iter().all(|&byte| byte == 0));
    }
    drop((host, pool, stream, device));
    assert_nothing_is_left(emulator);
}

/// Adjacent buffers may be two allocations.
#[test]
fn no_copy_spans_two_device_buffers() {
    let emulator = Emulator::new();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    let pool = PinnedPool::builder(&device).build().unwrap();
    let source = bytes(1000, 1);
    let host = pinned(&pool, &source);
    let mut gpu = device.alloc::<u8>(1000).unwrap();
    // Until then the memory is not usable on every stream.
    stream.fill(&mut gpu, 0).unwrap().wait().unwrap();
    // Few slices, and more.
    for (locked, slices) in [(false, 2), (false, 100), (true, 2), (true, 100)] {
        // SAFETY: `gpu` outlives both, and nothing else uses it during their lives.
        let [mut first, mut second] = [0, 500]
            .map(|at| unsafe { device.borrow_memory(gpu.as_device_ptr() + at, 500) }.unwrap());
        let before = emulator.calls(Call::CopyH2D);
        let each = 1000 / slices;
        let parts = || (0..500).step_by(each).map(|at| at..at + each);
        let to = [views(&mut first, parts()), views(&mut second, parts())].into_iter().flatten();
        let items = to.enumerate().map(|(n, to)| {
            let from = n * each..(n + 1) * each;
            match locked {
                true => Upload::new(host.slice(from).unwrap(), to),
                false => Upload::new(&source[from], to),
            }
        });
        stream.upload_batch_by(Route::Copies, items).unwrap().wait().unwrap();
        assert_eq!(emulator.calls(Call::CopyH2D), before + 2);
        drop((first, second));
        assert!(contents(&device, &gpu) == source);
    }
    assert_eq!(emulator.findings(), []);
}
