//! Threads allocate, write, pass on, drop and end, until a number of operations is done.
//!
//! One operation is an allocation and its drop. `PINLANE_STRESS_OPS` sets their number;
//! `scripts/stress` runs a billion.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Instant;

use pinlane::emulated::Emulator;
use pinlane::{Device, ErrorKind, PinnedBuf, PinnedPool, Result};

use crate::assert_adds_up;
use crate::support::eventually;

const THREADS: usize = 32;
/// After this many operations a thread ends, and another replaces it.
const LIFE: u64 = 100_000;
/// How many buffers a thread holds at a time.
const HELD: usize = 8;
/// After this many operations a thread passes a buffer on, and looks for one passed to it.
const BETWEEN_TRANSFERS: u64 = 32;

/// A buffer with a cookie at both of its ends.
struct Marked {
    buffer: PinnedBuf<u64>,
    cookie: u64,
}

impl Marked {
    fn new(mut buffer: PinnedBuf<u64>, cookie: u64) -> Marked {
        let words = buffer.write().unwrap();
        words[0] = cookie;
        words[words.len() - 1] = !cookie;
        Marked { buffer, cookie }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let words = self.buffer.read().unwrap();
        let ends = (words[0], words[words.len() - 1]);
        assert_eq!(ends, (self.cookie, !self.cookie), "two buffers have one block");
    }
}

/// Numbers that look random: the upper bits of a linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as usize) % limit
    }

    /// A length in words: mostly small, and sometimes too large for a thread to keep.
    fn len(&mut self) -> usize {
        let words: Range<usize> = match self.below(1024) {
            0 => 16_384..140_000,
            1..16 => 512..16_384,
            _ => 2..512,
        };
        words.start + self.below(words.len())
    }
}

/// The place of a thread, which the next thread takes over.
struct Seat {
    number: usize,
    random: Random,
    incoming: Receiver<Marked>,
    next: SyncSender<Marked>,
    done: u64,
}

impl Seat {
    fn live(&mut self, pool: &PinnedPool, limit: u64) {
        let mut held: [Option<Marked>; HELD] = std::array::from_fn(|_| None);
        for _ in 0..LIFE.min(limit - self.done) {
            self.done += 1;
            let cookie = ((self.number as u64) << 48) | self.done;
            let buffer = self.alloc(pool, &mut held);
            let marked = Marked::new(buffer, cookie);
            let place = self.random.below(HELD);
            let old = held[place].replace(marked);
            if self.done.is_multiple_of(BETWEEN_TRANSFERS) {
                self.exchange(old);
            }
        }
    }

    /// The budget is tight: a thread that gets no block drops those that it holds.
    fn alloc(&mut self, pool: &PinnedPool, held: &mut [Option<Marked>]) -> PinnedBuf<u64> {
        let len = self.random.len();
        let exhausted = |result: &Result<PinnedBuf<u64>>| {
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BudgetExhausted)
        };
        let first = pool.alloc(len);
        if !exhausted(&first) {
            return first.unwrap();
        }
        held.fill_with(|| None);
        loop {
            self.incoming.try_iter().for_each(drop);
            let result = pool.alloc(len);
            if !exhausted(&result) {
                return result.unwrap();
            }
            thread::yield_now();
        }
    }

    fn exchange(&mut self, old: Option<Marked>) {
        if let Some(old) = old {
            // It is dropped there, or here if too many wait there.
            if let Err(TrySendError::Disconnected(_)) = self.next.try_send(old) {
                panic!("the seat next to this one is never left");
            }
        }
        self.incoming.try_iter().for_each(drop);
    }
}

#[test]
fn blocks_are_never_shared_nor_lost() {
    let operations: u64 = std::env::var("PINLANE_STRESS_OPS")
        .map_or(200_000, |text| text.replace('_', "").parse().expect("a number"));
    let emulator = Emulator::new();
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let pool = PinnedPool::builder(&device).max_bytes(256 << 20).build().unwrap();
    let (next, incoming): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(16)).unzip();
    let seats = incoming.into_iter().enumerate().map(|(number, incoming)| Seat {
        number,
        random: Random(number as u64),
        incoming,
        next: next[(number + 1) % THREADS].clone(),
        done: 0,
    });
    let limit = operations.div_ceil(THREADS as u64);
    let start = Instant::now();
    let seats: Vec<Seat> = thread::scope(|scope| {
        let lives = seats.map(|mut seat| {
            let pool = &pool;
            scope.spawn(move || {
                while seat.done < limit {
                    // A thread of its own for each life.
                    thread::scope(|scope| scope.spawn(|| seat.live(pool, limit)).join().unwrap());
                }
                seat
            })
        });
        let lives: Vec<_> = lives.collect();
        lives.into_iter().map(|life| life.join().unwrap()).collect()
    });
    let (total, seconds): (u64, f64) =
        (seats.iter().map(|seat| seat.done).sum(), start.elapsed().as_secs_f64());
    // Drops the buffers that were passed to threads that had ended.
    drop(seats);
    assert!(total >= operations);
    let stats = assert_adds_up(&pool, &emulator);
    println!(
        "{total} operations in {seconds:.1} s, {:.1} million a second, {} of them from the \
         thread's own blocks: {stats}",
        total as f64 / seconds / 1e6,
        stats.thread_hits
    );
    assert_eq!((stats.live_bytes, stats.in_flight_bytes, stats.quarantined_bytes), (0, 0, 0));
    assert!(stats.threads <= 1 && stats.waiting == 0, "only this thread is left: {stats}");
    eventually("a trim gives all back, once no growth is under way", || {
        pool.trim().unwrap();
        emulator.usage().host_bytes == 0
    });
    drop((pool, device));
    let usage = emulator.usage();
    assert_eq!((usage.host_bytes, usage.streams, usage.events), (0, 0, 0), "{usage:?}");
    assert_eq!(emulator.findings(), []);
}

/// A thread that uses many pools keeps blocks of each. Pools that have ended do no harm.
#[test]
fn a_thread_keeps_blocks_of_many_pools() {
    let device = pinlane::Device::emulated().unwrap();
    let pool = || PinnedPool::builder(&device).max_bytes(1 << 20).build().unwrap();
    let mut pools: Vec<PinnedPool> = (0..100).map(|_| pool()).collect();
    for round in 0..4 {
        for (index, pool) in pools.iter().enumerate() {
            let before = pool.stats();
            drop(pool.alloc::<u8>(4096).unwrap());
            drop(pool.alloc::<u8>(4096).unwrap());
            let stats = pool.stats();
            let known = u64::from(before.hits + before.misses > 0);
            assert_eq!(stats.thread_hits - before.thread_hits, 1 + known, "{round}, {index}");
            assert_eq!(stats.threads, 1);
        }
        pools.retain(|_| round % 2 == 1);
        pools.extend((0..60).map(|_| pool()));
    }
}
