//! What the lists cost that callers can make long: the time of one entry, in lists of a thousand to
//! a hundred thousand. A cost that grows with the length is quadratic in all.
//!
//! On the emulated device, also where there is a GPU: the lists are this crate's.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use pinlane::batch::{Indices, Upload};
use pinlane::driver::RawStream;
use pinlane::emulated::Emulator;
use pinlane::{Device, PinnedBuf, PinnedPool, Result, Stream, Ticket};

use super::SMALL;
use super::common::figures::{Figure, Report};

const LENGTHS: [(usize, &str); 3] = [(1_000, "1e3"), (10_000, "1e4"), (100_000, "1e5")];
/// A list that takes longer than this many seconds is made no longer.
const PATIENCE: f64 = 2.0;

/// The seconds that a list of so many entries takes.
type Measure = fn(&Rig, usize) -> Result<f64>;

const LISTS: [(&str, Measure, &str); 17] = [
    ("queue.enter", queue_enter, "alloc_async that must wait: the first poll"),
    ("queue.serve", queue_serve, "requests that wait for one block, each served by the last one"),
    ("queue.leave_front", |rig, n| queue_leave(rig, n, false), "requests withdrawn, oldest first"),
    ("queue.leave_back", |rig, n| queue_leave(rig, n, true), "requests withdrawn, youngest first"),
    ("queue.others", queue_others, "allocations of another size, past requests that wait"),
    ("wakers.polls", wakers_polls, "polls of one pending ticket, each with another waker"),
    ("wakers.futures", wakers_futures, "clones of one ticket, awaited, then woken"),
    ("tickets", tickets, "tickets of one stream, awaited, then woken"),
    ("operations", operations, "fills on a stalled stream, then run"),
    ("streams.readers", readers, "streams that all read one buffer"),
    ("parked.blocks", parked_blocks, "blocks freed in flight, then taken again"),
    ("parked.streams", parked_streams, "the same, each used by a stream of its own"),
    ("registered", registered, "vectors of 64 bytes registered, then unregistered"),
    ("batch", batch, "entries of 64 bytes of one upload_batch"),
    ("rows.distinct", rows_distinct, "numbers of rows that are chosen to collide"),
    ("tensors", tensors, "buffers exported to DLPack and deleted"),
    ("findings", findings, "misuses that the emulated device reports"),
];

/// A machine of its own for each list.
struct Rig {
    emulator: Emulator,
    device: Device,
    stream: Stream,
}

impl Rig {
    fn new() -> Result<Self> {
        let emulator = Emulator::new();
        let device = Device::of_emulator(&emulator, 0)?;
        Ok(Rig { stream: device.stream()?, device, emulator })
    }

    /// A pool of so many small blocks.
    fn pool(&self, blocks: usize) -> Result<PinnedPool> {
        PinnedPool::builder(&self.device).max_bytes(blocks * SMALL).build()
    }

    fn raw(stream: &Stream) -> RawStream {
        RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() }
    }

    /// So many streams, on which nothing runs.
    fn stalled(&self, count: usize) -> Result<Vec<Stream>> {
        let streams = (0..count).map(|_| self.device.stream()).collect::<Result<Vec<_>>>()?;
        streams.iter().for_each(|stream| {
            self.emulator.stall(Self::raw(stream)).expect("a live stream");
        });
        Ok(streams)
    }

    fn release(&self, streams: &[Stream]) {
        streams.iter().for_each(|stream| {
            self.emulator.release(Self::raw(stream)).expect("a live stream");
        });
    }
}

pub fn run(quick: bool, report: &mut Report) -> Result<()> {
    for (list, measure, method) in LISTS {
        let lengths = if quick { &LENGTHS[..1] } else { &LENGTHS[..] };
        let mut last = 0.0;
        for &(length, size) in lengths {
            let name = format!("lists.{list}.{size}");
            if !report.wants(&name) {
                continue;
            }
            if last > PATIENCE {
                report.skip(&name, format!("a tenth of it took {last:.0} s"));
                continue;
            }
            last = measure(&Rig::new()?, length)?;
            let each = last / length as f64 * 1e9;
            report.add(Figure::lower(name, each, "ns").by(method, 1));
        }
    }
    Ok(())
}

fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

type Waits = Pin<Box<dyn Future<Output = Result<PinnedBuf<u8>>> + Send>>;

fn poll(future: &mut Waits) -> Poll<Result<PinnedBuf<u8>>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Requests for a block that somebody holds.
fn waiting(pool: &PinnedPool, count: usize) -> Vec<Waits> {
    let request = |_| -> Waits { Box::pin(pool.alloc_async::<u8>(SMALL)) };
    (0..count).map(request).collect()
}

fn enter(requests: &mut [Waits]) {
    requests.iter_mut().for_each(|request| assert!(poll(request).is_pending()));
}

fn queue_enter(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let _held = pool.alloc::<u8>(SMALL)?;
    let mut requests = waiting(&pool, count);
    seconds(|| {
        enter(&mut requests);
        Ok(())
    })
}

fn queue_serve(rig: &Rig, count: usize) -> Result<f64> {
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

fn queue_leave(rig: &Rig, count: usize, from_the_back: bool) -> Result<f64> {
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

fn queue_others(rig: &Rig, count: usize) -> Result<f64> {
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

fn wakers_polls(rig: &Rig, count: usize) -> Result<f64> {
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

fn wakers_futures(rig: &Rig, count: usize) -> Result<f64> {
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

fn tickets(rig: &Rig, count: usize) -> Result<f64> {
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

fn operations(rig: &Rig, count: usize) -> Result<f64> {
    let mut gpu = rig.device.alloc::<u8>(64)?;
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    seconds(|| {
        (0..count).try_for_each(|n| stream.fill(&mut gpu, n as u8).map(drop))?;
        rig.release(&streams);
        stream.synchronize()
    })
}

fn readers(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let source = pool.alloc_zeroed::<u8>(64)?;
    let streams = rig.stalled(count)?;
    let target = || rig.device.alloc::<u8>(64);
    let mut targets = (0..count).map(|_| target()).collect::<Result<Vec<_>>>()?;
    let took = seconds(|| {
        for (stream, target) in streams.iter().zip(&mut targets) {
            stream.upload(&source, target)?;
        }
        Ok(())
    });
    rig.release(&streams);
    took
}

fn parked_blocks(rig: &Rig, count: usize) -> Result<f64> {
    parked(rig, count, 1)
}

fn parked_streams(rig: &Rig, count: usize) -> Result<f64> {
    parked(rig, count, count)
}

/// Blocks that streams still use when they are dropped, and are taken again.
fn parked(rig: &Rig, count: usize, streams: usize) -> Result<f64> {
    let pool = rig.pool(count)?;
    let mut gpus = (0..streams).map(|_| rig.device.alloc::<u8>(64)).collect::<Result<Vec<_>>>()?;
    let streams = rig.stalled(streams)?;
    let blocks = (0..count).map(|_| pool.alloc::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
    for (number, block) in blocks.iter().enumerate() {
        let number = number % streams.len();
        streams[number].upload(block.slice(..64)?, &mut gpus[number])?;
    }
    seconds(|| {
        drop(blocks);
        rig.release(&streams);
        let again = (0..count).map(|_| pool.alloc::<u8>(SMALL));
        again.collect::<Result<Vec<_>>>().map(drop)
    })
}

fn registered(rig: &Rig, count: usize) -> Result<f64> {
    seconds(|| {
        let registered =
            (0..count).map(|_| rig.device.register(vec![0u8; 64]).map_err(|refused| refused.error));
        registered.collect::<Result<Vec<_>>>().map(drop)
    })
}

fn batch(rig: &Rig, count: usize) -> Result<f64> {
    let source = vec![1u8; 64 * count];
    let mut gpu = rig.device.alloc::<u8>(64 * count)?;
    seconds(|| {
        let mut rest = gpu.slice_mut(..)?;
        let mut copies = Vec::with_capacity(count);
        for part in source.chunks(64) {
            let (first, others) = rest.split_at_mut(64)?;
            copies.push(Upload::new(part, first));
            rest = others;
        }
        rig.stream.upload_batch(copies)?.wait()
    })
}

fn rows_distinct(rig: &Rig, count: usize) -> Result<f64> {
    // As many numbers as there are places, all of which want a few hundred of them.
    let rows = (count * 670) as u64;
    let bits = (2 * count).next_power_of_two().trailing_zeros();
    let place = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits);
    let window = (1u64 << bits) / 600;
    let mut chosen: Vec<u64> = (0..rows).filter(|&n| place(n) < window).take(count).collect();
    chosen.reverse();
    let gpu = rig.device.alloc::<u8>(chosen.len())?;
    let mut table = vec![0u8; rows as usize];
    seconds(|| rig.stream.download_rows(&gpu, Indices::from(&chosen), &mut table)?.wait())
}

fn tensors(rig: &Rig, count: usize) -> Result<f64> {
    use pinlane::dlpack::{DataType, Layout, delete};
    let pool = rig.pool(count)?;
    let buffers: Vec<_> = (0..count).map(|_| pool.alloc::<u8>(SMALL)).collect::<Result<_>>()?;
    seconds(|| {
        let layout = Layout { shape: &[SMALL as i64], ..Layout::new(DataType::U8) };
        let mut tensors = Vec::with_capacity(count);
        for buffer in buffers {
            tensors.push(buffer.into_dlpack(&layout, None).map_err(|refused| refused.error)?);
        }
        // SAFETY: each is live, owned here, and deleted once.
        tensors.into_iter().for_each(|tensor| unsafe { delete(tensor) });
        Ok(())
    })
}

fn findings(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let mut block = pool.alloc_zeroed::<u8>(64)?;
    let gpu = rig.device.alloc::<u8>(64)?;
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    stream.download(&gpu, &mut block)?;
    let took = seconds(|| {
        for n in 0..count {
            rig.emulator.host_reads(block.as_ptr().wrapping_add(n % 64), 1);
        }
        assert!(!rig.emulator.findings().is_empty());
        Ok(())
    });
    rig.release(&streams);
    took
}
