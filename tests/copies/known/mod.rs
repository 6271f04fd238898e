//! Slices in memory of a pool: the device copies them directly, and the call returns when it is
//! done with them. The tests run on the emulated device, which counts the calls: a slice that goes
//! through slots takes several copies.

mod batches;
mod faults;

use allocator_api2::vec::Vec as PoolVec;
use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution};
use pinlane::pool::{PageLocking, PinnedAllocator};
use pinlane::{CudaCode, Device, DeviceBuf, PinnedPool, Result, Stream, staging::Staging};

use crate::common::process::{in_a_forked_child, is_alone};

/// What a slot holds.
const SLOT: usize = 4096;
/// Longer than a small copy, and than three slots.
const LENGTH: usize = 3 * SLOT + 1;
const EXECUTIONS: [Execution; 2] = [Execution::Eager, Execution::Lazy];

type Pooled = PoolVec<u8, PinnedAllocator>;

/// A device that sends copies of pageable memory of more than 100 bytes through slots.
fn device(emulator: &Emulator, ordinal: i32) -> Device {
    let device = Device::of_emulator(emulator, ordinal).unwrap();
    let slots = Staging::new().slot_bytes(SLOT).ring_bytes(3 * SLOT).first_bytes(1024);
    device.set_staging(slots.unit_bytes(1024).direct_bytes(100)).unwrap();
    device
}

fn pool(device: &Device) -> PinnedPool {
    PinnedPool::builder(device).build().unwrap()
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn pooled(pool: &PinnedPool, bytes: &[u8]) -> Pooled {
    let mut vec = PoolVec::new_in(pool.allocator());
    vec.extend_from_slice(bytes);
    vec
}

fn contents(stream: &Stream, gpu: &DeviceBuf<u8>) -> Vec<u8> {
    let mut host = vec![0; gpu.len()];
    stream.download_slice(gpu, &mut host).unwrap();
    host
}

/// How many copies `work` makes, up and down.
fn copies(emulator: &Emulator, work: impl FnOnce()) -> [u64; 2] {
    let counts = || [Call::CopyH2D, Call::CopyD2H].map(|call| emulator.calls(call));
    let before = counts();
    work();
    let after = counts();
    [after[0] - before[0], after[1] - before[1]]
}

/// Uploads `source`, overwrites it right after, and downloads to `target`. Returns the number of
/// copies, each way.
fn there_and_back(
    emulator: &Emulator,
    stream: &Stream,
    gpu: &mut DeviceBuf<u8>,
    source: &mut [u8],
    target: &mut [u8],
) -> [u64; 2] {
    let sent = source.to_vec();
    copies(emulator, || {
        let part = gpu.slice_mut(..source.len()).unwrap();
        stream.upload_slice(source, part).unwrap();
        source.fill(0xaa);
        stream.download_slice(gpu.slice(..sent.len()).unwrap(), target).unwrap();
        assert!(target == sent, "{} bytes", sent.len());
    })
}

#[test]
fn a_slice_in_memory_of_a_pool_is_one_copy_whoever_has_the_memory() {
    for execution in EXECUTIONS {
        let emulator = Emulator::builder().execution(execution).seed(3).build();
        let device = device(&emulator, 0);
        let (stream, pool) = (device.stream().unwrap(), pool(&device));
        let mut gpu = device.alloc(LENGTH).unwrap();
        let (mut source, mut target) = (bytes(LENGTH, 1), vec![0; LENGTH]);
        let staged = there_and_back(&emulator, &stream, &mut gpu, &mut source, &mut target);
        assert!(staged.iter().all(|&copies| copies >= 4), "pageable: {staged:?}");

        let mut source = pooled(&pool, &bytes(LENGTH, 2));
        let mut target = pool.alloc::<u8>(LENGTH).unwrap();
        let back = target.write().unwrap();
        let direct = there_and_back(&emulator, &stream, &mut gpu, &mut source, back);
        assert_eq!(direct, [1, 1], "of a collection, to a buffer");
        target.write().unwrap().copy_from_slice(&bytes(LENGTH, 3));
        let from = target.write().unwrap();
        let direct = there_and_back(&emulator, &stream, &mut gpu, from, &mut source);
        assert_eq!(direct, [1, 1], "of a buffer, to a collection");
        target.write().unwrap().copy_from_slice(&source);
        let up = copies(&emulator, || {
            stream.upload_slice(target.read().unwrap(), &mut gpu).unwrap();
        });
        assert_eq!(up, [1, 0], "of a buffer that is read");
        let frozen = target.freeze().unwrap();
        let up = copies(&emulator, || {
            stream.upload_slice::<u8>(frozen.as_ref(), &mut gpu).unwrap();
        });
        assert_eq!(up, [1, 0], "of a frozen buffer");
        assert!(contents(&stream, &gpu) == source[..]);
        assert_eq!(emulator.findings(), []);
    }
}

#[test]
fn every_alignment_and_length() {
    for execution in EXECUTIONS {
        let emulator = Emulator::builder().execution(execution).seed(7).build();
        let device = device(&emulator, 0);
        let (stream, pool) = (device.stream().unwrap(), pool(&device));
        let mut gpu = device.alloc(2 * LENGTH).unwrap();
        let mut host = pooled(&pool, &bytes(4 * LENGTH, 1));
        for at in 0..64 {
            for length in [0, 1, 99, 100, 101, 4095, 4096, 4097, LENGTH] {
                let (source, target) = host.split_at_mut(2 * LENGTH);
                let (source, end) = (&mut source[at..], (at * 29) % 64);
                source[..length].copy_from_slice(&bytes(length, 1 + (at * length) as u64));
                target.fill(0x11);
                let made = there_and_back(
                    &emulator,
                    &stream,
                    &mut gpu,
                    &mut source[..length],
                    &mut target[end..end + length],
                );
                let expected = u64::from(length > 0);
                assert_eq!(made, [expected; 2], "{length} bytes");
                let outside = target[..end].iter().chain(&target[end + length..]);
                assert!(outside.copied().all(|byte| byte == 0x11), "{length} bytes: wrote outside");
            }
        }
        assert_eq!(emulator.findings(), []);
    }
}

/// There may be several pools, of any kind, of any device of the machine.
#[test]
fn any_pool_of_the_machine_will_do_and_no_other() {
    let emulator = Emulator::builder().devices(2).execution(Execution::Lazy).build();
    let (here, there) = (device(&emulator, 0), device(&emulator, 1));
    let elsewhere = device(&Emulator::new(), 0);
    let allocated = PinnedPool::builder(&here).page_locking(PageLocking::Allocate);
    let combined = PinnedPool::builder(&there).write_combined(true);
    let stream = here.stream().unwrap();
    let mut gpu = here.alloc(LENGTH).unwrap();
    let ours = [pool(&here), pool(&there), allocated.build().unwrap(), combined.build().unwrap()];
    for pool in ours {
        let (mut source, mut target) =
            (pooled(&pool, &bytes(LENGTH, 2)), pooled(&pool, &[0; LENGTH]));
        let made = there_and_back(&emulator, &stream, &mut gpu, &mut source, &mut target);
        assert_eq!(made, [1, 1]);
    }
    let theirs = pool(&elsewhere);
    let (mut source, mut target) =
        (pooled(&theirs, &bytes(LENGTH, 2)), pooled(&theirs, &[0; LENGTH]));
    let made = there_and_back(&emulator, &stream, &mut gpu, &mut source, &mut target);
    assert!(made.iter().all(|&copies| copies >= 4), "{made:?}");
    assert_eq!(emulator.findings(), []);
}

/// Unsafe code can make a slice that spans two blocks. No block knows of a copy of it.
#[test]
fn what_spans_two_blocks_goes_through_slots() {
    const EACH: usize = 2 * SLOT;
    let emulator = Emulator::builder().execution(Execution::Lazy).build();
    let device = device(&emulator, 0);
    let (stream, pool) = (device.stream().unwrap(), pool(&device));
    let mut blocks: Vec<_> = (0..8).map(|_| pool.alloc::<u8>(EACH).unwrap()).collect();
    blocks.sort_by_key(|block| block.as_ptr());
    for (number, block) in blocks.iter_mut().enumerate() {
        block.write().unwrap().copy_from_slice(&bytes(EACH, number as u64));
    }
    let neighbours =
        |pair: &[pinlane::PinnedBuf<u8>]| pair[0].as_ptr().wrapping_add(EACH) == pair[1].as_ptr();
    let at = blocks.windows(2).position(neighbours).expect("they are of one slab");
    let first = blocks[at].as_ptr();
    let mut gpu = device.alloc(2 * EACH - 200).unwrap();
    // SAFETY: the two blocks are adjacent in one mapping and initialised, and nothing writes to
    // them during the borrow.
    let both = unsafe { std::slice::from_raw_parts(first.add(100), 2 * EACH - 200) };
    let made = copies(&emulator, || drop(stream.upload_slice(both, &mut gpu).unwrap()));
    assert!(made[0] >= 4, "{made:?}");
    assert!(contents(&stream, &gpu) == both);
    let whole = copies(&emulator, || {
        let part = gpu.slice_mut(..EACH - 100).unwrap();
        drop(stream.upload_slice(&both[..EACH - 100], part).unwrap());
    });
    assert_eq!(whole[0], 1, "up to the last byte of one");
    assert_eq!(emulator.findings(), []);
}

#[test]
fn a_slice_on_a_seam_is_split() {
    const PART: usize = 8 << 20;
    let refusing = Emulator::builder().page_lock_limit(2 * PART - 1, CudaCode::MEMORY_ALLOCATION);
    let emulator = refusing.execution(Execution::Lazy).build();
    let device = device(&emulator, 0);
    let (stream, pool) = (device.stream().unwrap(), pool(&device));
    let mut host = pool.alloc::<u8>(2 * PART + SLOT).unwrap();
    let mut gpu = device.alloc(PART + 600).unwrap();
    let mut target = vec![0; PART + 600];
    let memory = &mut host.write().unwrap()[PART - 300..][..PART + 600];
    memory.copy_from_slice(&bytes(PART + 600, 5));
    let made = there_and_back(&emulator, &stream, &mut gpu, memory, &mut target);
    assert_eq!(made[0], 3);
    memory.fill(0);
    let down = copies(&emulator, || stream.download_slice(&gpu, memory).unwrap());
    assert_eq!(down[1], 3);
    assert!(memory == target);
    assert_eq!(emulator.findings(), []);
}

/// A small slice of any memory is enqueued after pending work, without a wait.
#[test]
fn a_small_upload_does_not_wait() {
    let emulator = Emulator::new();
    let device = device(&emulator, 0);
    let (stream, pool) = (device.stream().unwrap(), pool(&device));
    let mut source = pooled(&pool, &bytes(100, 1));
    let sent = source.to_vec();
    let mut gpu = device.alloc(100).unwrap();
    let raw = pinlane::driver::RawStream { device: 0, handle: stream.as_raw().addr() };
    emulator.stall(raw).unwrap();
    let ticket = stream.upload_slice(&source, &mut gpu).unwrap();
    source.fill(0);
    assert!(!ticket.is_done().unwrap());
    emulator.release(raw).unwrap();
    assert!(contents(&stream, &gpu) == sent);
}

/// Once a pool has given memory back to the system, new memory at its addresses is pageable.
#[test]
fn addresses_are_forgotten_with_their_memory() {
    let test = "addresses_are_forgotten_with_their_memory";
    // No other thread may map memory in the meantime.
    if !is_alone(module_path!(), test) {
        return;
    }
    let emulator = Emulator::new();
    let device = device(&emulator, 0);
    let (stream, pool) = (device.stream().unwrap(), pool(&device));
    let mut gpu = device.alloc(LENGTH).unwrap();
    let host = pool.alloc::<u8>(LENGTH).unwrap();
    let (address, bytes_there) = (host.as_ptr().addr(), host.len());
    drop(host);
    assert!(pool.trim().unwrap() >= bytes_there);
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
    );
    let place = std::ptr::without_provenance_mut(address & !4095);
    // SAFETY: a mapping that replaces none.
    let page = unsafe { libc::mmap(place, 4 * SLOT, protection, flags, -1, 0) };
    assert_eq!(page.addr(), address & !4095, "the pool's memory has left it");
    // SAFETY: just mapped, zeroed, and this test's own.
    let memory = unsafe { std::slice::from_raw_parts_mut(page.cast::<u8>(), LENGTH) };
    memory.copy_from_slice(&bytes(LENGTH, 4));
    let mut target = vec![0; LENGTH];
    let made = there_and_back(&emulator, &stream, &mut gpu, memory, &mut target);
    assert!(made[0] >= 4, "{made:?}");
    assert_eq!(emulator.findings(), []);
}

/// Rule 14: a child does not treat addresses of its parent's pools as page-locked, whatever is
/// mapped there. It knows the memory of its own pools.
#[test]
fn a_forked_child_knows_its_own_pools_only() {
    if !is_alone(module_path!(), "a_forked_child_knows_its_own_pools_only") {
        return;
    }
    let device_of_parent = device(&Emulator::new(), 0);
    let pool_of_parent = pool(&device_of_parent);
    let kept: Vec<_> = (0..40).map(|_| pool_of_parent.alloc::<u8>(LENGTH).unwrap()).collect();
    in_a_forked_child(|| {
        let emulator = Emulator::new();
        let device = device(&emulator, 0);
        let (stream, pool) = (device.stream().unwrap(), pool(&device));
        let mut gpu = device.alloc(LENGTH).unwrap();
        // Some of it lies where the parent's pool was.
        for seed in 0..40 {
            let (mut pageable, mut target) = (bytes(LENGTH, seed), vec![0; LENGTH]);
            let made = there_and_back(&emulator, &stream, &mut gpu, &mut pageable, &mut target);
            let mut own = pooled(&pool, &bytes(LENGTH, seed));
            let direct = there_and_back(&emulator, &stream, &mut gpu, &mut own, &mut target);
            if made[0] < 4 || direct[0] != 1 {
                return 1;
            }
            std::mem::forget((pageable, own, target));
        }
        0
    });
    drop(kept);
}

/// Threads copy while pools come and go.
#[test]
fn many_threads_find_their_own_memory() -> Result<()> {
    let emulator = Emulator::new();
    let device = device(&emulator, 0);
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (emulator, device) = (&emulator, &device);
            move || {
                let stream = device.stream().unwrap();
                let mut gpu = device.alloc(LENGTH).unwrap();
                for round in 0..60 {
                    let pool = pool(device);
                    let mut source = pooled(&pool, &bytes(LENGTH, thread * 100 + round));
                    let mut target = pooled(&pool, &[0; LENGTH]);
                    there_and_back(emulator, &stream, &mut gpu, &mut source, &mut target);
                    drop((source, target));
                    pool.trim().unwrap();
                }
            }
        };
        let threads = [1, 2, 3].map(|thread| scope.spawn(work(thread)));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    assert_eq!(emulator.findings(), []);
    Ok(())
}
