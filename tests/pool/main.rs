//! The pool through its public interface, on the emulated device.
//!
//! | module | what it shows |
//! |---|---|
//! | `page_locked` | the runtime accepts page-locked memory of every origin; also on a GPU |
//! | `allocator` | `Vec` and `Box` in the pool's memory |
//! | `events`, `stats` | what a pool reports to `tracing`, as JSON and to Prometheus |
//! | `state_machine` | random programs keep the pool's promises, step by step |
//! | `faults` | whichever driver call fails, and when: no panic, no hang, nothing lost |
//! | `budget` | requests wait in order; those that cannot be served get the reason |
//! | `requests` | requests that are withdrawn, forgotten or polled late hold up no other |
//! | `lost_memory` | requests that only lost memory could serve end at once |
//! | `in_flight` | a thread finds the blocks again that it dropped in flight |
//! | `growth` | what the system refuses in one call comes in parts; lack of memory is an error |
//! | `giving_back` | memory goes back to the system, whatever is dropped, on any thread |
//! | `stress` | many threads, blocks that change hands, threads that die |
//! | `wakers` | a task that runs inside its waker holds up no thread of the crate |

#![cfg(feature = "emulated")]

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "allocator-api2")]
mod allocator;
mod budget;
#[cfg(feature = "tracing")]
mod events;
mod faults;
mod giving_back;
mod growth;
mod in_flight;
mod lost_memory;
mod page_locked;
mod program;
mod requests;
mod state_machine;
mod stats;
mod stress;
mod wakers;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use common::{executor, support};
use pinlane::emulated::Emulator;
use pinlane::{PinnedPool, pool::Stats};

/// Checks the pool's numbers while no thread allocates or drops.
fn assert_adds_up(pool: &PinnedPool, emulator: &Emulator) -> Stats {
    let stats = assert_counts_add_up(pool);
    assert_eq!(stats.committed_bytes, emulator.usage().host_bytes, "{stats}");
    stats
}

fn assert_counts_add_up(pool: &PinnedPool) -> Stats {
    let stats = pool.stats();
    assert_sums(&stats);
    stats
}

/// Asserts that the classes' counts add up to the pool's.
fn assert_sums(stats: &Stats) {
    let mut sums = [0; 4];
    for class in &stats.classes {
        let parts = [class.live, class.cached, class.in_flight, class.quarantined];
        assert_eq!(parts.iter().sum::<usize>(), class.blocks, "{class:?}");
        (0..4).for_each(|part| sums[part] += parts[part] * class.block_bytes);
    }
    assert_eq!(sums[0], stats.live_bytes);
    assert_eq!(sums[1], stats.cached_bytes);
    assert_eq!(sums[2], stats.in_flight_bytes);
    assert!(sums[3] <= stats.quarantined_bytes, "and slabs that were not released");
    let blocks = sums[0] + sums[1] + sums[2] + stats.quarantined_bytes;
    assert!(blocks <= stats.committed_bytes, "{stats}");
    assert!(stats.committed_bytes <= stats.peak_bytes && stats.peak_bytes <= stats.max_bytes);
    assert!(stats.thread_bytes <= stats.cached_bytes, "{stats}");
}

/// Polls a future once, with a waker that does nothing.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
