//! Requests of tasks that are withdrawn, forgotten or polled late, and requests that nothing can
//! serve anymore.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, ErrorKind, PinnedBuf, Result};

use crate::budget::{LONG, SMALL, amid_small_requests, on_machines, wait_for_all_of_them};
use crate::support::{BLOCK, LEN, Rig, block_on, eventually, watched};
use crate::{assert_adds_up, poll_once};

#[test]
fn a_future_that_is_dropped_withdraws_its_request() {
    on_machines(1, |rig| {
        let held = rig.host(1);
        let mut first = Box::pin(rig.pool.alloc_async::<u32>(LEN));
        let mut second = Box::pin(rig.pool.alloc_async::<u32>(LEN));
        assert!(poll_once(&mut first).is_none() && poll_once(&mut second).is_none());
        assert_eq!(rig.pool.stats().waiting, 2);
        drop(first);
        assert_eq!(rig.pool.stats().waiting, 1);
        let block = held.as_ptr();
        drop(held);
        assert_eq!(block_on(second).unwrap().as_ptr(), block);
        // Served, then dropped: the block comes back.
        let held = rig.host(1);
        let mut third = Box::pin(rig.pool.alloc_async::<u32>(LEN));
        assert!(poll_once(&mut third).is_none());
        drop(held);
        eventually("it is served", || rig.pool.stats().waiting == 0);
        assert_eq!(rig.pool.stats().live_bytes, BLOCK);
        drop(third);
        assert_eq!(rig.host(2).as_ptr(), block);
        // Never polled: no request at all.
        drop(rig.pool.alloc_async::<u32>(LEN));
        rig.assert_nothing_is_left();
    });
}

/// Requests leave the queue from any place, and the others keep their order.
#[test]
fn requests_are_withdrawn_from_the_front_the_middle_and_the_back() {
    on_machines(1, |rig| {
        let held = rig.host(1);
        let mut waits: Vec<Option<Waits>> = Vec::new();
        for _ in 0..60 {
            let mut request: Waits = Box::pin(rig.pool.alloc_async::<u32>(LEN));
            assert!(poll_once(&mut request).is_none());
            waits.push(Some(request));
        }
        for gone in [59, 0, 30, 58, 1, 31] {
            waits[gone] = None;
        }
        assert_eq!(rig.pool.stats().waiting, 54);
        drop(held);
        for request in waits.into_iter().flatten() {
            // Each request that is served passes the block to the next one.
            drop(block_on(request).unwrap());
        }
        rig.assert_nothing_is_left();
    });
}

/// Holds a block, so that a request for all blocks, which is polled only once, is not served.
/// Passes both to `test`.
fn with_a_request_that_waits(
    blocks: usize,
    test: impl Fn(&Rig, PinnedBuf<u32>, Waits) + Send + 'static,
) {
    on_machines(blocks, move |rig| {
        let held = rig.host(1);
        let mut waits: Waits = Box::pin(rig.pool.alloc_async::<u32>(blocks * LEN));
        assert!(poll_once(&mut waits).is_none());
        test(&rig, held, waits);
        rig.assert_nothing_is_left();
    });
}

type Waits = Pin<Box<dyn Future<Output = Result<PinnedBuf<u32>>> + Send>>;

/// Enough blocks in the budget that threads may keep some.
const CACHED: usize = 64;

/// Allocates until the pool saves memory for the request that waits, so that threads keep no
/// blocks. Then allocates until threads keep blocks again, as when no request waits.
fn allocate_until_nobody_waits(rig: &Rig) {
    let own_hits = |pairs: u64| {
        let before = rig.pool.stats().thread_hits;
        (0..pairs).for_each(|_| drop(rig.pool.alloc_timeout::<u32>(LEN, LONG).unwrap()));
        rig.pool.stats().thread_hits - before
    };
    eventually("threads keep no blocks", || own_hits(10) == 0);
    eventually("threads keep blocks again", || own_hits(100) >= 90);
    assert_eq!(rig.pool.stats().waiting, 1, "as before");
}

#[test]
fn rule_02_a_forgotten_request_does_not_slow_others_down() {
    with_a_request_that_waits(CACHED, |rig, _held, _forgotten| allocate_until_nobody_waits(rig));
}

/// A task that was passed over is served once it polls.
#[test]
fn a_task_that_polls_late_is_served() {
    with_a_request_that_waits(CACHED, |rig, held, mut late| {
        allocate_until_nobody_waits(rig);
        assert!(poll_once(&mut late).is_none());
        drop(held);
        assert_eq!(block_on(late).unwrap().len(), CACHED * LEN);
    });
}

#[test]
fn rule_02_a_forgotten_request_takes_no_turns_from_those_behind_it() {
    with_a_request_that_waits(SMALL, |rig, _held, _forgotten| {
        let task = amid_small_requests(rig, false, || {
            let len = (SMALL - 1) * LEN;
            let thread = rig.pool.alloc_timeout::<u32>(len, Duration::from_secs(20)).map(drop);
            thread.and_then(|()| block_on(rig.pool.alloc_async::<u32>(len)).map(drop))
        });
        task.unwrap();
    });
}

/// A task that polls when it is woken gets the same turns as a thread that waits.
#[test]
fn small_requests_do_not_starve_a_large_one_of_a_task() {
    on_machines(SMALL, |rig| {
        let all = amid_small_requests(&rig, false, || {
            wait_for_all_of_them(&rig);
            (0..3).try_for_each(|_| block_on(rig.pool.alloc_async::<u32>(SMALL * LEN)).map(drop))
        });
        all.unwrap();
        rig.assert_nothing_is_left();
    });
}

/// A request that waits for live buffers fails when there are none left and the memory is lost.
#[test]
fn nobody_waits_for_memory_that_cannot_come_back() {
    watched(|| {
        for asks_as_task in [false, true] {
            let rig = Rig::new(Execution::Eager, 0, 2);
            drop([rig.host(1), rig.host(2)]);
            for call in [Call::HostFree, Call::HostUnregister] {
                rig.emulator.inject(Fault::forever(call, CudaCode::UNKNOWN));
            }
            // The request needs the room of both blocks, which the system does not take back.
            let ask = |len| {
                if asks_as_task {
                    block_on(rig.pool.alloc_async::<u32>(len))
                } else {
                    rig.pool.alloc_timeout::<u32>(len, LONG)
                }
            };
            let error = ask(2 * LEN).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BudgetExhausted, "{error}");
            assert!(error.to_string().contains("quarantined memory never comes back"), "{error}");
            assert_eq!(assert_adds_up(&rig.pool, &rig.emulator).quarantined_bytes, 2 * BLOCK);
        }
    });
}
