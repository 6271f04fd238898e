//! Awaited tickets.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use pinlane::{Result, Ticket};

use super::{Rig, Row, seconds};

pub const ROWS: &[Row] = &[
    ("wakers.polls", polls, "polls of one pending ticket, each with another waker"),
    ("wakers.futures", futures, "clones of one ticket, awaited, then woken"),
    ("tickets.one_stream", one_stream, "tickets of one stream, awaited, then woken"),
    ("tickets.others", others, "a ticket awaited and woken, beside those that stay pending"),
];

/// Counts the tasks that were woken.
struct Woken(Arc<AtomicUsize>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn wait_for(woken: &AtomicUsize, count: usize) {
    while woken.load(Ordering::Relaxed) < count {
        std::thread::yield_now();
    }
}

fn await_with(ticket: &mut Ticket, woken: &Arc<AtomicUsize>) {
    let waker = Waker::from(Arc::new(Woken(woken.clone())));
    assert!(Pin::new(ticket).poll(&mut Context::from_waker(&waker)).is_pending());
}

fn polls(rig: &Rig, count: usize) -> Result<f64> {
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    let mut ticket = stream.record()?;
    let woken = Arc::<AtomicUsize>::default();
    seconds(|| {
        (0..count).for_each(|_| await_with(&mut ticket, &woken));
        rig.release(&streams);
        wait_for(&woken, 1);
        Ok(())
    })
}

fn futures(rig: &Rig, count: usize) -> Result<f64> {
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    let ticket = stream.record()?;
    let woken = Arc::<AtomicUsize>::default();
    let mut tickets = vec![ticket; count];
    seconds(|| {
        tickets.iter_mut().for_each(|ticket| await_with(ticket, &woken));
        rig.release(&streams);
        wait_for(&woken, count);
        Ok(())
    })
}

fn one_stream(rig: &Rig, count: usize) -> Result<f64> {
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    let woken = Arc::<AtomicUsize>::default();
    let mut tickets = Vec::with_capacity(count);
    seconds(|| {
        for _ in 0..count {
            let mut ticket = stream.record()?;
            await_with(&mut ticket, &woken);
            tickets.push(ticket);
        }
        rig.release(&streams);
        wait_for(&woken, count);
        Ok(())
    })
}

fn others(rig: &Rig, count: usize) -> Result<f64> {
    const OTHERS: usize = 100;
    let stalled = rig.stalled(1)?;
    let woken = Arc::<AtomicUsize>::default();
    let mut pending = (0..count).map(|_| stalled[0].record()).collect::<Result<Vec<_>>>()?;
    pending.iter_mut().for_each(|ticket| await_with(ticket, &woken));
    let took = seconds(|| {
        for done in 1..=OTHERS {
            let other = rig.stalled(1)?;
            let mut ticket = other[0].record()?;
            await_with(&mut ticket, &woken);
            rig.release(&other);
            wait_for(&woken, done);
        }
        Ok(())
    });
    rig.release(&stalled);
    Ok(took? / OTHERS as f64 * count as f64)
}
