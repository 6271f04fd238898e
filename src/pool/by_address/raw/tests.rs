use super::*;
use crate::device::Device;
use crate::error::ErrorKind;
use crate::pool::classes::MAX_ALIGN;
use crate::pool::core::Core;
use crate::sync::Mutex;
use std::sync::Arc;

fn pool() -> PinnedPool {
    let device = Device::emulated().expect("no faults");
    PinnedPool::builder(&device).max_bytes(64 << 20).build().expect("fine options")
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn what_is_given_can_be_given_back_once() {
    let pool = pool();
    for bytes in [0, 1, 255, 5000, 40 << 20] {
        let memory = pool.allocate_raw("test", bytes, 1).expect("room");
        assert!(memory.len() >= bytes.max(1));
        assert_eq!(pool.stats().live_bytes, memory.len());
        let begin = memory.cast::<u8>().as_ptr();
        let inside = begin.wrapping_add(memory.len() - 1);
        assert_eq!(kind(pool.deallocate_raw("test", inside)), Some(ErrorKind::InvalidValue));
        pool.deallocate_raw("test", begin).expect("as given");
        assert_eq!(kind(pool.deallocate_raw("test", begin)), Some(ErrorKind::InvalidHandle));
        assert_eq!(pool.stats().live_bytes, 0);
    }
    pool.deallocate_raw("test", std::ptr::null()).expect("nothing");
}

#[test]
fn what_is_not_the_tables_is_refused() {
    let (pool, other) = (pool(), pool());
    let buffer = pool.alloc::<u8>(100).expect("room");
    let memory = other.allocate_raw("test", 100, 1).expect("room").cast::<u8>().as_ptr();
    let local = 0;
    for foreign in [buffer.as_ptr(), memory, &raw const local, std::ptr::dangling()] {
        assert_eq!(kind(pool.deallocate_raw("test", foreign)), Some(ErrorKind::InvalidHandle));
    }
    assert!(buffer.read().is_ok());
    other.deallocate_raw("test", memory).expect("its own");
}

#[test]
fn alignments_are_powers_of_two_up_to_the_largest() {
    let pool = pool();
    let mut out = Vec::new();
    for shift in 0..=MAX_ALIGN.ilog2() {
        let memory = pool.allocate_raw("test", 3, 1 << shift).expect("room").cast::<u8>();
        assert!(memory.addr().get().is_multiple_of(1 << shift));
        out.push(memory);
    }
    for align in [0, 3, 2 * MAX_ALIGN, usize::MAX] {
        let refused = pool.allocate_raw("test", 3, align);
        assert_eq!(kind(refused), Some(ErrorKind::InvalidValue), "{align}");
    }
    let too_large = pool.allocate_raw("test", usize::MAX, 1);
    assert_eq!(kind(too_large), Some(ErrorKind::InvalidValue));
    for memory in out {
        pool.deallocate_raw("test", memory.as_ptr()).expect("as given");
    }
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn memory_outlives_its_pool() {
    let pool = pool();
    let memory = pool.allocate_raw("test", 100, 1).expect("room").cast::<u8>();
    // SAFETY: 100 bytes from `memory` on belong to this test.
    unsafe { memory.write_bytes(7, 100) };
    // Keeps leaked pools reachable for the leak sanitizer.
    static LEAKED: Mutex<Option<Arc<Core>>> = Mutex::new(None);
    *LEAKED.lock() = Some(pool.handle.core.clone());
    drop(pool);
    // SAFETY: they still belong to this test.
    assert!((0..100).all(|at| unsafe { memory.add(at).read() } == 7));
}

#[cfg(feature = "capi")]
#[test]
fn what_is_lent_is_there_again_however_the_work_ends() {
    let pool = pool();
    let memory = pool.allocate_raw("test", 4096, 1).expect("room").cast::<u8>().as_ptr();
    let inside = memory.wrapping_add(4095);
    let length = pool.lend_raw("test", inside, |buffer| {
        let again = pool.lend_raw("test", memory, |_| Ok(()));
        assert_eq!(kind(again), Some(ErrorKind::Busy));
        Ok(buffer.len())
    });
    assert_eq!(length.expect("it is allocated"), 4096);
    let address = memory.addr();
    let panicked = std::thread::scope(|scope| {
        let panicking = || {
            let memory = std::ptr::without_provenance(address);
            pool.lend_raw::<()>("test", memory, |_| std::panic::resume_unwind(Box::new(1)))
        };
        scope.spawn(panicking).join().is_err()
    });
    assert!(panicked);
    pool.deallocate_raw("test", memory).expect("back in its place");
    let gone = pool.lend_raw("test", memory, |_| Ok(()));
    assert_eq!(kind(gone), Some(ErrorKind::InvalidHandle));
}

/// Memory that is freed during a loan goes back when the loan ends, and is freed once.
#[cfg(feature = "capi")]
#[test]
fn what_is_freed_while_it_is_lent_comes_back() {
    let pool = pool();
    for bytes in [4096, 40 << 20] {
        let memory = pool.allocate_raw("test", bytes, 1).expect("room").cast::<u8>().as_ptr();
        let lent = pool.lend_raw("test", memory, |_| {
            pool.deallocate_raw("test", memory).expect("as given");
            let again = pool.deallocate_raw("test", memory);
            assert_eq!(kind(again), Some(ErrorKind::InvalidHandle));
            assert!(pool.stats().live_bytes >= bytes);
            Ok(())
        });
        lent.expect("it is allocated");
        assert_eq!(pool.stats().live_bytes, 0);
        let again = pool.deallocate_raw("test", memory);
        assert_eq!(kind(again), Some(ErrorKind::InvalidHandle));
    }
}

#[test]
fn threads_allocate_and_free_each_others_memory() {
    let pool = pool();
    let mut mailbox = crate::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (pool, mailbox) = (&pool, &mailbox);
        let work = |thread: usize| {
            move || {
                for step in 0..500 {
                    let bytes = (thread * 977 + step * 131) % 9000;
                    let memory = pool.allocate_raw("test", bytes, 1).expect("room");
                    let mut mail = mailbox.lock();
                    mail.push(memory.cast::<u8>().as_ptr().expose_provenance());
                    let taken = if mail.len() > 8 { mail.swap_remove(step % 8) } else { continue };
                    drop(mail);
                    let taken = std::ptr::without_provenance(taken);
                    pool.deallocate_raw("test", taken).expect("once each");
                }
            }
        };
        let threads = [0, 1, 2, 3].map(|thread| scope.spawn(work(thread)));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    for address in mailbox.get_mut().drain(..) {
        pool.deallocate_raw("test", std::ptr::without_provenance(address)).expect("once each");
    }
    assert_eq!(pool.stats().live_bytes, 0);
}
