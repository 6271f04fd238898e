//! Growth that the system refuses in one piece, or completely.

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Fault};
use std::time::Duration;

use pinlane::{
    CudaCode, Device, Error, ErrorKind, PinnedBuf, PinnedPool,
    pool::{Builder, PageLocking},
};

const MIB: usize = 1 << 20;

/// A pool on a machine that page-locks at most `limit` bytes in one call.
fn limited(limit: usize) -> (Emulator, Builder) {
    let code = CudaCode::MEMORY_ALLOCATION;
    let emulator = Emulator::builder().page_lock_limit(limit, code).build();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    (emulator, PinnedPool::builder(&device).max_bytes(512 * MIB))
}

#[test]
fn what_is_refused_in_one_piece_comes_in_parts_and_the_pool_remembers_their_size() {
    let (emulator, pool) = limited(20 * MIB);
    let pool = pool.build().unwrap();
    let count = |work: &mut dyn FnMut()| {
        let before = emulator.calls(Call::HostRegister);
        work();
        emulator.calls(Call::HostRegister) - before
    };
    let mut buffers = Vec::new();
    let mut alloc = |bytes| buffers.push(pool.alloc::<u8>(bytes).unwrap());
    // 64 and 32 MiB are refused, then there are four parts of 16. 56 MiB are four at once.
    assert_eq!(count(&mut || alloc(64 * MIB)), 6);
    assert_eq!(count(&mut || alloc(56 * MIB)), 4);
    assert_eq!(count(&mut || alloc(16 * MIB)), 1);
    assert_eq!(count(&mut || alloc(4096)), 1);
    for buffer in &mut buffers {
        assert_eq!(buffer.write().unwrap().len(), buffer.len());
    }
    let stats = crate::assert_adds_up(&pool, &emulator);
    assert_eq!((stats.fallbacks.in_parts, stats.fallbacks.not_registered), (2, 0));
    assert_eq!(emulator.calls(Call::HostAlloc), 0);
    drop(buffers);
    pool.trim().unwrap();
    assert_eq!(emulator.usage().host_blocks, 0, "every part was unregistered");
    assert_eq!(emulator.findings(), []);
}

#[test]
fn parts_of_8_mib_are_the_smallest_that_are_tried() {
    let (emulator, pool) = limited(8 * MIB - 1);
    let pool = pool.build().unwrap();
    let error = pool.alloc::<u8>(30 * MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfHostMemory, "{error}");
    assert_eq!(emulator.usage().host_blocks, 0);
    assert!(pool.alloc::<u8>(4 * MIB).is_ok(), "what is small enough still comes");
    assert_eq!(pool.stats().fallbacks.in_parts, 0);
}

#[test]
fn memory_of_the_runtime_is_not_cut() {
    let (emulator, pool) = limited(20 * MIB);
    let pool = pool.page_locking(PageLocking::Allocate).build().unwrap();
    let error = pool.alloc::<u8>(64 * MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfHostMemory, "{error}");
    assert_eq!(emulator.calls(Call::HostRegister), 0);
}

/// A system that promises more memory than the machine or the control group has kills the process
/// when it touches that memory, in this crate or inside the runtime.
#[test]
fn what_the_system_has_no_memory_for_is_not_tried_another_way() {
    for how in [PageLocking::Register, PageLocking::Allocate] {
        let emulator = Emulator::new();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let pool = PinnedPool::builder(&device).max_bytes(usize::MAX).page_locking(how);
        let pool = pool.build().unwrap();
        let error = pool.alloc::<u8>(1 << 46).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfHostMemory, "{error}");
        let message = error.to_string();
        assert!(message.contains("has no 70368744177664 bytes to page-lock: "), "{message}");
        assert!(message.ends_with("raise the memory limit, or free memory elsewhere"), "{message}");
        let calls = [Call::HostAlloc, Call::HostRegister].map(|call| emulator.calls(call));
        assert_eq!(calls, [0, 0], "{how:?}");
        assert!(pool.alloc::<u8>(MIB).is_ok(), "and the pool continues");
    }
}

/// If an earlier part of the same size was registered, the refusal is not due to the size of the
/// call.
#[test]
fn a_later_part_that_is_refused_is_a_lack_of_memory() {
    let (emulator, pool) = limited(8 * MIB);
    let pool = pool.build().unwrap();
    // 32 and 16 MiB are refused, then the third of four parts of 8 fails.
    emulator.inject(Fault::once(Call::HostRegister, CudaCode::MEMORY_ALLOCATION).nth(5));
    // The pool tries again, because memory may have been freed in the meantime.
    let buffer = pool.alloc::<u8>(32 * MIB).unwrap();
    assert_eq!(emulator.calls(Call::HostRegister), (2 + 3) + (2 + 4));
    assert_eq!(emulator.calls(Call::HostAlloc), 0);
    drop(buffer);
    let fallbacks = crate::assert_adds_up(&pool, &emulator).fallbacks;
    assert_eq!((fallbacks.in_parts, fallbacks.not_registered), (1, 0));
}

/// As on the Windows Subsystem for Linux. The budget is larger than what the system allows.
#[test]
fn a_system_that_allows_little_fills_the_pool_before_its_budget_is_spent() {
    for how in [PageLocking::Register, PageLocking::Allocate] {
        let emulator = Emulator::new();
        emulator.limit_page_locked(16 * MIB);
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let pool = PinnedPool::builder(&device).max_bytes(1 << 30).page_locking(how);
        let pool = pool.build().unwrap();
        let mut held = Vec::new();
        let error = loop {
            match pool.alloc::<u8>(MIB) {
                Ok(block) => held.push(block),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::OutOfHostMemory, "{error}");
        assert!(held.len() >= 8, "{how:?}: {} MiB of 16", held.len());
        // What comes back is given out again.
        held.pop();
        held.push(pool.alloc(MIB).unwrap());
        // Blocks of another size take the memory of free ones.
        held.clear();
        pool.alloc::<u8>(8 * MIB).unwrap();
        assert!(pool.stats().committed_bytes <= 16 << 20, "{how:?}");
    }
}

/// A machine that page-locks 16 MiB, and a pool with the default budget.
fn pool_of_default_budget(how: PageLocking) -> (Emulator, PinnedPool) {
    let emulator = Emulator::new();
    emulator.limit_page_locked(16 * MIB);
    let device = Device::of_emulator(&emulator, 0).unwrap();
    (emulator, PinnedPool::builder(&device).page_locking(how).build().unwrap())
}

/// Blocks of `bytes` until the pool has no more.
fn fill(pool: &PinnedPool, bytes: usize) -> (Vec<PinnedBuf<u8>>, Error) {
    let mut held = Vec::new();
    loop {
        match pool.alloc::<u8>(bytes) {
            Ok(block) => held.push(block),
            Err(error) => return (held, error),
        }
    }
}

#[test]
fn the_default_budget_ends_where_the_system_page_locks_no_more() {
    for how in [PageLocking::Register, PageLocking::Allocate] {
        let (emulator, pool) = pool_of_default_budget(how);
        let (mut held, error) = fill(&pool, MIB);
        assert_eq!(error.kind(), ErrorKind::BudgetExhausted, "{how:?}: {error}");
        let message = error.to_string();
        assert!(
            message.contains("16 MiB of 16 MiB that the system allows page-locked"),
            "{message}"
        );
        assert_eq!((held.len(), pool.stats().max_bytes), (16, 16 * MIB), "{how:?}");
        // What is larger fails at once, and does not take the free blocks along.
        let error = pool.alloc::<u8>(17 * MIB).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExhausted, "{error}");
        // A request that waits gets the block that comes back.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.alloc_timeout::<u8>(MIB, Duration::from_secs(60)));
            while pool.stats().waiting == 0 {
                std::thread::yield_now();
            }
            held.pop();
            waiting.join().unwrap().expect("the block that came back");
        });
        drop(held);
        pool.alloc::<u8>(8 * MIB).expect("blocks of another size take the memory of free ones");
        assert_eq!(emulator.usage().host_bytes, pool.stats().committed_bytes, "{how:?}");
        assert_eq!(emulator.findings(), []);
    }
}

#[test]
fn parts_that_were_page_locked_count_for_what_the_system_allows() {
    let (emulator, pool) = pool_of_default_budget(PageLocking::Register);
    let small = pool.alloc::<u8>(4 * MIB).unwrap();
    // One part of 8 MiB, and then no second one.
    let error = pool.alloc::<u8>(32 * MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BudgetExhausted, "{error}");
    assert_eq!(pool.stats().max_bytes, 12 * MIB);
    assert_eq!(emulator.usage().host_bytes, small.len(), "the part was given back");
    pool.alloc::<u8>(8 * MIB).expect("what the system allows");
}

/// Another process may have released some.
#[test]
fn the_pool_asks_a_system_that_refused_again() {
    let (emulator, pool) = pool_of_default_budget(PageLocking::Register);
    let default = pool.stats().max_bytes;
    let (held, _) = fill(&pool, MIB);
    emulator.limit_page_locked(64 * MIB);
    while pool.stats().max_bytes < default {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (more, error) = fill(&pool, MIB);
    assert_eq!(held.len() + more.len(), 64, "{error}");
}

/// Nothing is page-locked that could come back.
#[test]
fn a_system_that_page_locks_nothing_is_an_error_also_for_the_default_budget() {
    let (emulator, pool) = pool_of_default_budget(PageLocking::Register);
    emulator.limit_page_locked(0);
    let error = pool.alloc::<u8>(MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfHostMemory, "{error}");
    assert!(pool.stats().max_bytes > 16 * MIB);
}
