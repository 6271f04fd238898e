//! Batches of slices, some of which lie in memory of a pool.

use pinlane::batch::{Download, Downloads, Route, Upload, Uploads};
use pinlane::driver::Call;

use super::*;

const COPIES: usize = 24;
const EACH: usize = 300;

/// Where a copy's host memory is.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Pageable,
    /// A slice in memory of a pool.
    Pooled,
    /// A view of a buffer.
    Buffer,
}

/// Batches of one kind of memory, of two, and of all.
fn mixtures() -> impl Iterator<Item = (usize, Vec<Memory>)> {
    use Memory::{Buffer, Pageable, Pooled};
    let kinds = [
        vec![Pooled],
        vec![Pooled, Buffer],
        vec![Pageable, Pooled],
        vec![Pooled, Pageable, Buffer],
    ];
    let counts = [1, 2, COPIES];
    let of_kinds = move |kinds: Vec<Memory>| counts.map(|count| (count, kinds.clone()));
    kinds.into_iter().flat_map(of_kinds)
}

const ROUTES: [Option<Route>; 4] =
    [None, Some(Route::Copies), Some(Route::BatchCall), Some(Route::Kernel)];

#[test]
fn a_batch_is_done_with_its_slices_when_it_returns() {
    for execution in EXECUTIONS {
        let emulator = Emulator::builder().execution(execution).seed(5).build();
        let device = device(&emulator, 0);
        let (stream, pool) = (device.stream().unwrap(), pool(&device));
        for (count, kinds) in mixtures() {
            for route in ROUTES {
                batch(&device, &stream, &pool, count, &kinds, route);
            }
        }
        assert_eq!(emulator.findings(), []);
    }
}

fn batch(
    device: &Device,
    stream: &Stream,
    pool: &PinnedPool,
    count: usize,
    kinds: &[Memory],
    route: Option<Route>,
) {
    let sent = bytes(COPIES * EACH, count as u64);
    let (mut pageable, mut slices) = (sent.clone(), pooled(pool, &sent));
    let mut buffer = pool.alloc::<u8>(sent.len()).unwrap();
    buffer.write().unwrap().copy_from_slice(&sent);
    let mut gpus: Vec<_> = (0..count).map(|_| device.alloc::<u8>(EACH).unwrap()).collect();
    let kind = |n: usize| kinds[n % kinds.len()];
    let place = |n: usize| n * EACH..(n + 1) * EACH;

    let uploads = gpus.iter_mut().enumerate().map(|(n, gpu)| match kind(n) {
        Memory::Pageable => Upload::new(&pageable[place(n)], gpu),
        Memory::Pooled => Upload::new(&slices[place(n)], gpu),
        Memory::Buffer => Upload::new(buffer.slice(place(n)).unwrap(), gpu),
    });
    let mut list = Uploads::from_iter(uploads).route(route);
    let ticket = stream.upload_list(&mut list).unwrap();
    drop(list);
    pageable.fill(0);
    slices.fill(0);
    buffer.write().unwrap().fill(0);
    ticket.wait().unwrap();
    for (n, gpu) in gpus.iter().enumerate() {
        assert!(contents(stream, gpu) == sent[place(n)], "{n} of {count}, {route:?}");
    }

    for told in [false, true] {
        let mut ordinary = pageable.chunks_exact_mut(EACH);
        let mut pooled = slices.chunks_exact_mut(EACH);
        let mut views = buffer.as_slice_mut().chunks_mut(EACH);
        let mut downloads = Downloads::new().route(route);
        for (n, gpu) in gpus.iter().enumerate() {
            let (ordinary, pooled) = (ordinary.next().unwrap(), pooled.next().unwrap());
            let view = views.next().unwrap();
            downloads.push(match kind(n) {
                Memory::Pageable => Download::new(gpu, ordinary),
                Memory::Pooled => Download::new(gpu, pooled),
                Memory::Buffer => Download::new(gpu, view),
            });
        }
        drop(views);
        if told {
            let mut landed = vec![0; count];
            let each = |n: usize, bytes: &[u8]| {
                assert!(bytes == &sent[place(n)], "{n} of {count}");
                landed[n] += 1;
            };
            stream.download_list_each(&mut downloads, each).unwrap();
            assert_eq!(landed, vec![1; count]);
        } else {
            stream.download_list(&mut downloads).unwrap();
        }
        drop(downloads);
        for n in 0..count {
            let host = match kind(n) {
                Memory::Pageable => &mut pageable[place(n)],
                Memory::Pooled => &mut slices[place(n)],
                Memory::Buffer => &mut buffer.write().unwrap()[place(n)],
            };
            assert!(host == &sent[place(n)], "{n} of {count}, {route:?}");
            host.fill(0);
        }
    }
}

/// The rules for page-locked memory apply: no slots, and no thread of the team.
#[test]
fn slices_in_memory_of_a_pool_take_the_routes_of_page_locked_memory() {
    let emulator = Emulator::new();
    let device = device(&emulator, 0);
    let (stream, pool) = (device.stream().unwrap(), pool(&device));
    let slices = pooled(&pool, &bytes(8 * LENGTH, 1));
    let mut gpu = device.alloc::<u8>(8 * LENGTH).unwrap();
    // The first batch makes the device's own pools.
    stream.upload_batch([(&slices[..LENGTH], gpu.slice_mut(..LENGTH).unwrap())]).unwrap();
    let held = emulator.usage().host_bytes;
    let made = copies(&emulator, || {
        stream.upload_batch([(&slices[..], &mut gpu)]).unwrap();
    });
    assert_eq!(made, [1, 0]);
    let kernels = emulator.calls(Call::MoveItems);
    let mut gpus: Vec<_> = (0..8).map(|_| device.alloc::<u8>(SLOT).unwrap()).collect();
    stream.upload_batch(slices.chunks(LENGTH).map(|slice| &slice[..SLOT]).zip(&mut gpus)).unwrap();
    assert_eq!(emulator.calls(Call::MoveItems), kernels + 1);
    assert_eq!(emulator.usage().host_bytes - held, 256 << 10, "the kernel's list");
    assert_eq!(emulator.findings(), []);
}
