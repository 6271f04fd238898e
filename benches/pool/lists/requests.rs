//! Requests that wait for memory of a pool.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pinlane::{PinnedBuf, PinnedPool, Result};

use super::{Rig, Row, SMALL, seconds};

pub const ROWS: &[Row] = &[
    ("queue.enter", enter_all, "alloc_async that must wait: the first poll"),
    ("queue.sizes", enter_sizes, "the same, each of another size"),
    ("queue.serve", serve, "requests that wait for one block, each served by the last one"),
    ("queue.leave_front", |rig, n| leave(rig, n, false), "requests withdrawn, oldest first"),
    ("queue.leave_back", |rig, n| leave(rig, n, true), "requests withdrawn, youngest first"),
    ("queue.others", others, "allocations of another size, past requests that wait"),
];

type Waits = Pin<Box<dyn Future<Output = Result<PinnedBuf<u8>>> + Send>>;

fn poll(future: &mut Waits) -> Poll<Result<PinnedBuf<u8>>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Requests for a block that is held.
fn waiting(pool: &PinnedPool, count: usize) -> Vec<Waits> {
    let request = |_| -> Waits { Box::pin(pool.alloc_async::<u8>(SMALL)) };
    (0..count).map(request).collect()
}

fn enter(requests: &mut [Waits]) {
    requests.iter_mut().for_each(|request| assert!(poll(request).is_pending()));
}

fn enter_all(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let _held = pool.alloc::<u8>(SMALL)?;
    let mut requests = waiting(&pool, count);
    seconds(|| {
        enter(&mut requests);
        Ok(())
    })
}

fn enter_sizes(rig: &Rig, count: usize) -> Result<f64> {
    // From here on every additional page is a separate size.
    const EXACT: usize = 32 << 20;
    let pool = PinnedPool::builder(&rig.device).max_bytes(EXACT + SMALL * count).build()?;
    let _held = pool.alloc::<u8>(EXACT + SMALL * count)?;
    let request = |n| -> Waits { Box::pin(pool.alloc_async::<u8>(EXACT + SMALL * (n + 1))) };
    let mut requests: Vec<Waits> = (0..count).map(request).collect();
    seconds(|| {
        enter(&mut requests);
        Ok(())
    })
}

fn serve(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let held = pool.alloc::<u8>(SMALL)?;
    let mut requests = waiting(&pool, count);
    enter(&mut requests);
    seconds(|| {
        drop(held);
        for mut request in requests {
            let block = loop {
                match poll(&mut request) {
                    Poll::Ready(block) => break block?,
                    Poll::Pending => std::thread::yield_now(),
                }
            };
            drop(black_box(block));
        }
        Ok(())
    })
}

fn leave(rig: &Rig, count: usize, from_the_back: bool) -> Result<f64> {
    let pool = rig.pool(1)?;
    let _held = pool.alloc::<u8>(SMALL)?;
    let mut requests = waiting(&pool, count);
    enter(&mut requests);
    if from_the_back {
        requests.reverse();
    }
    seconds(|| {
        drop(requests);
        Ok(())
    })
}

fn others(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(3)?;
    let _held = [pool.alloc::<u8>(SMALL)?, pool.alloc::<u8>(SMALL)?];
    // The other half of its page, so that the memory stays.
    let (other, _its_neighbour) = (pool.alloc::<u8>(SMALL / 2)?, pool.alloc::<u8>(SMALL / 2)?);
    let mut requests = waiting(&pool, count);
    enter(&mut requests);
    drop(other);
    let took = seconds(|| (0..1000).try_for_each(|_| pool.try_alloc::<u8>(SMALL / 2).map(drop)))?;
    Ok(took / 1000.0 * count as f64)
}
