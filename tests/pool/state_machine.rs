//! Random programs against a plain model of the pool: which buffers are alive, where, and what they
//! hold.
//!
//! After each step: no two live buffers share a byte; all are aligned and hold what was written;
//! the budget is kept; the pool reports exactly the page-locked bytes; live, cached and in flight
//! add up; errors occur only where the model allows them. At the end everything has been given
//! back.
//!
//! `PROPTEST_CASES` sets how many programs run.

use std::cell::RefCell;
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::thread;
use std::time::{Duration, Instant};

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution};
use pinlane::{
    Device, DeviceBuf, Error, ErrorKind, PinnedBuf, PinnedPool, Result, Stream,
    pool::{PageLocking, Stats},
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::program::{Form, Op, Setup, program, setup};
use crate::support::{eventually, raw};
use crate::{assert_sums, poll_once};

/// The part of a buffer that copies use, in bytes; the rest stays as the host wrote it.
const HEAD: usize = 256;
/// The timeout of requests that a stuck stream may hold up.
const SOON: Duration = Duration::from_millis(2);

struct Live {
    buffer: PinnedBuf<u8>,
    /// The size of its block.
    bytes: usize,
    head: u8,
    body: u8,
}

struct Waiting {
    future: Pin<Box<dyn Future<Output = Result<PinnedBuf<u8>>> + Send>>,
    bytes: usize,
}

/// A stream, and what it copies to and from: `HEAD` times this byte.
struct Lane {
    stream: Stream,
    gpu: DeviceBuf<u8>,
    holds: u8,
    stalled: bool,
}

struct Machine {
    emulator: Emulator,
    pool: PinnedPool,
    clones: Vec<PinnedPool>,
    lanes: Vec<Lane>,
    live: Vec<Live>,
    waiting: Vec<Waiting>,
    /// Bytes that forgotten buffers hold forever.
    forgotten: usize,
    /// Sizes of blocks that only aligned requests get.
    aligned: HashSet<usize>,
    cookie: u8,
    max_bytes: usize,
    /// Whether a request has been withdrawn before it was served.
    has_withdrawn: bool,
}

fn block_bytes(len: usize) -> usize {
    PinnedPool::block_bytes(len).expect("small enough")
}

/// The smallest block that is a multiple of `align`.
fn aligned_bytes(len: usize, align: usize) -> usize {
    let mut bytes = block_bytes(len);
    while !bytes.is_multiple_of(align) {
        bytes = block_bytes(bytes + 1);
    }
    bytes
}

impl Machine {
    fn new(setup: &Setup) -> Machine {
        let emulator = Emulator::builder()
            .devices(2)
            .execution(if setup.lazy { Execution::Lazy } else { Execution::Eager })
            .seed(setup.seed)
            .build();
        let devices: Vec<Device> =
            (0..2).map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap()).collect();
        let how = if setup.register { PageLocking::Register } else { PageLocking::Allocate };
        let mut builder =
            PinnedPool::builder(&devices[0]).max_bytes(setup.max_bytes).page_locking(how);
        if !setup.caches {
            builder = builder.thread_cache_bytes(0);
        }
        let lane = |number: usize| {
            let device = &devices[number % setup.devices];
            let (stream, mut gpu) = (device.stream().unwrap(), device.alloc(HEAD).unwrap());
            stream.fill(&mut gpu, 0).unwrap();
            Lane { stream, gpu, holds: 0, stalled: false }
        };
        Machine {
            pool: builder.build().unwrap(),
            clones: Vec::new(),
            lanes: (0..3).map(lane).collect(),
            live: Vec::new(),
            waiting: Vec::new(),
            forgotten: 0,
            aligned: HashSet::new(),
            cookie: 0,
            max_bytes: setup.max_bytes,
            has_withdrawn: false,
            emulator,
        }
    }

    fn is_stalled(&self) -> bool {
        self.lanes.iter().any(|lane| lane.stalled)
    }

    /// The bytes of the slab that a live block may keep from being given back.
    fn pins(&self, bytes: usize) -> usize {
        let slab = (8 << 20).min(self.max_bytes / 16);
        if bytes == 0 { 0 } else { bytes.next_multiple_of(4096).max(slab) }
    }

    fn pinned_bytes(&self) -> usize {
        let live = self.live.iter().map(|live| live.bytes);
        let blocks = live.chain(self.waiting.iter().map(|waiting| waiting.bytes));
        blocks.map(|bytes| self.pins(bytes)).sum::<usize>() + self.forgotten
    }

    fn alloc(&mut self, form: Form, len: usize) {
        let before = self.pool.stats();
        let mut align = 1;
        // A form that waits for devices would wait forever.
        let patient = !self.is_stalled();
        let result = match form {
            Form::Try => self.pool.try_alloc(len),
            Form::Plain if patient => self.pool.alloc(len),
            Form::Zeroed if patient => self.pool.alloc_zeroed(len),
            Form::Aligned(shift) if patient => {
                align = 1 << shift;
                if align > 256 {
                    self.aligned.insert(aligned_bytes(len, align));
                }
                self.pool.alloc_aligned(len, align)
            }
            Form::Plain | Form::Zeroed | Form::Aligned(_) => self.pool.alloc_timeout(len, SOON),
            Form::AtOnce => self.pool.alloc_timeout(len, Duration::ZERO),
            Form::Async => {
                let bytes = block_bytes(len);
                let mut waiting = Waiting { future: Box::pin(self.pool.alloc_async(len)), bytes };
                match poll_once(&mut waiting.future) {
                    Some(result) => result,
                    None => return self.waiting.push(waiting),
                }
            }
        };
        let bytes = aligned_bytes(len, align);
        match result {
            Ok(buffer) => {
                assert_eq!(buffer.as_ptr().addr() % align, 0);
                assert!(matches!(form, Form::Aligned(_)) || buffer.as_ptr().addr() % 256 == 0);
                if form == Form::Zeroed && patient {
                    assert!(buffer.read().unwrap().iter().step_by(61).all(|&byte| byte == 0));
                }
                self.add(buffer, bytes);
            }
            Err(error) => self.assert_allowed(form, bytes, &error),
        }
        if form == Form::Try && self.waiting.is_empty() {
            let after = self.pool.stats();
            // The pool may still grow for a request that has been withdrawn.
            let grew = after.growths != before.growths;
            assert!(!grew || self.has_withdrawn, "try_alloc does not grow");
            let mut classes = before.classes.iter();
            let cached =
                classes.any(|class| class.block_bytes == block_bytes(len) && class.cached > 0);
            if cached && !self.aligned.contains(&block_bytes(len)) {
                assert_eq!(after.hits, before.hits + 1, "what is free is found: {before:?}");
            }
        }
    }

    fn assert_allowed(&self, form: Form, bytes: usize, error: &Error) {
        let (pinned, bytes) = (self.pinned_bytes(), bytes.next_multiple_of(4096));
        let fits = bytes <= self.max_bytes;
        let allowed = match error.kind() {
            ErrorKind::NotReady => form == Form::Try,
            ErrorKind::TimedOut => fits && (self.is_stalled() || form == Form::AtOnce),
            // Forms that wait do so however many bytes are live.
            ErrorKind::BudgetExhausted if matches!(form, Form::AtOnce | Form::Async) => !fits,
            ErrorKind::BudgetExhausted => pinned + bytes > self.max_bytes,
            _ => false,
        };
        assert!(allowed, "{form:?} of {bytes} bytes with {pinned} pinned: {error}");
    }

    fn add(&mut self, mut buffer: PinnedBuf<u8>, bytes: usize) {
        self.cookie = self.cookie.wrapping_add(1);
        buffer.try_write().expect("a new buffer is idle").fill(self.cookie);
        self.live.push(Live { buffer, bytes, head: self.cookie, body: self.cookie });
    }

    fn step(&mut self, op: &Op) {
        let pick = |at: usize, len: usize| (len > 0).then(|| at % len);
        match *op {
            Op::Alloc(form, len) => self.alloc(form, len),
            Op::Write(at) => {
                let Some(at) = pick(at, self.live.len()) else { return };
                let (stalled, live) = (self.is_stalled(), &mut self.live[at]);
                self.cookie = self.cookie.wrapping_add(1);
                let words = if stalled { live.buffer.try_write() } else { live.buffer.write() };
                match words {
                    Ok(words) => {
                        words.fill(self.cookie);
                        (live.head, live.body) = (self.cookie, self.cookie);
                    }
                    Err(error) => assert!(stalled && error.kind() == ErrorKind::NotReady),
                }
            }
            Op::Upload(at, lane) | Op::Download(at, lane) => {
                let Some(at) = pick(at, self.live.len()) else { return };
                let (live, lane) = (&mut self.live[at], &mut self.lanes[lane]);
                if live.buffer.len() < HEAD {
                    return;
                }
                if matches!(op, Op::Upload(..)) {
                    let head = live.buffer.slice(..HEAD).unwrap();
                    lane.stream.upload(head, &mut lane.gpu).unwrap();
                    lane.holds = live.head;
                } else {
                    let head = live.buffer.slice_mut(..HEAD).unwrap();
                    lane.stream.download(&lane.gpu, head).unwrap();
                    live.head = lane.holds;
                }
            }
            Op::Drop(at) => {
                if let Some(at) = pick(at, self.live.len()) {
                    drop(self.live.swap_remove(at));
                }
            }
            Op::DropElsewhere(at) => {
                if let Some(at) = pick(at, self.live.len()) {
                    let live = self.live.swap_remove(at);
                    thread::spawn(move || drop(live)).join().unwrap();
                }
            }
            Op::Forget(at) => {
                if let Some(at) = pick(at, self.live.len()) {
                    let live = self.live.swap_remove(at);
                    // A buffer without bytes keeps the pool too. The largest blocks may be an
                    // eighth larger than requested.
                    let spare = if live.bytes > 32 << 20 { live.bytes / 7 } else { 0 };
                    self.forgotten += self.pins(live.bytes).max(1) + spare;
                    std::mem::forget(live);
                }
            }
            Op::DyingThread(count, len) => {
                let pool = self.pool.clone();
                let work = move || -> Vec<PinnedBuf<u8>> {
                    let mut all: Vec<_> =
                        (0..count).map_while(|_| pool.try_alloc(len).ok()).collect();
                    all.extend(pool.alloc_timeout(len, Duration::ZERO));
                    all.truncate(count);
                    // Some go to the thread's cache, which ends; the others are returned.
                    all.split_off(all.len() / 2)
                };
                let moved = thread::spawn(work).join().unwrap();
                moved.into_iter().for_each(|buffer| self.add(buffer, block_bytes(len)));
            }
            Op::Trim(keep) => drop(self.pool.trim_to(keep).unwrap()),
            Op::Clone => self.clones.push(self.pool.clone()),
            // Either handle may be dropped first.
            Op::DropClone => self.pool = self.clones.pop().unwrap_or_else(|| self.pool.clone()),
            Op::Poll(at) => {
                let Some(at) = pick(at, self.waiting.len()) else { return };
                if let Some(result) = poll_once(&mut self.waiting[at].future) {
                    let Waiting { bytes, .. } = self.waiting.swap_remove(at);
                    self.add(result.unwrap(), bytes);
                }
            }
            Op::Cancel(at) => {
                if let Some(at) = pick(at, self.waiting.len()) {
                    drop(self.waiting.swap_remove(at));
                    self.has_withdrawn = true;
                }
            }
            Op::Stall(lane) => {
                let lane = &mut self.lanes[lane];
                self.emulator.stall(raw(&lane.stream)).unwrap();
                lane.stalled = true;
            }
            Op::Release(lane) => {
                let lane = &mut self.lanes[lane];
                self.emulator.release(raw(&lane.stream)).unwrap();
                lane.stalled = false;
            }
        }
    }

    fn check(&self) {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for Live { buffer, bytes, head, body } in &self.live {
            let start = buffer.as_ptr().addr();
            ranges.push((start, start + bytes));
            let split = HEAD.min(buffer.len());
            let slice = buffer.slice(split..).unwrap();
            let rest = slice.try_read().expect("the device writes to the head only");
            assert!(rest.iter().step_by(509).chain(rest.last()).all(|byte| byte == body));
            let slice = buffer.slice(..split).unwrap();
            match if self.is_stalled() { slice.try_read() } else { slice.read() } {
                Ok(first) => assert!(first.iter().all(|byte| byte == head), "{head} {first:?}"),
                Err(error) => {
                    assert!(self.is_stalled() && error.kind() == ErrorKind::NotReady, "{error}");
                }
            }
        }
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:x?}");

        let least: usize = self.live.iter().map(|live| live.bytes).sum();
        // The largest blocks may be an eighth larger than requested.
        let large = self.live.iter().map(|live| live.bytes).filter(|&bytes| bytes > 32 << 20);
        let most = least + large.map(|bytes| bytes / 7).sum::<usize>() + self.forgotten;
        let stats = self.stats_at_rest(most);
        if self.waiting.is_empty() {
            assert_sums(&stats);
            assert!((least..=most).contains(&stats.live_bytes), "{least}..={most}: {stats:?}");
            assert_eq!((stats.quarantined_bytes, stats.waiting), (0, 0), "{stats}");
        }
        assert_eq!(self.emulator.findings(), []);
    }

    /// The pool's numbers while nothing is on its way, with at most this many live bytes. Memory
    /// for a withdrawn request may be on its way: it is committed, then page-locked, then entered
    /// in the books. Its block is live until the pool sees that the request was withdrawn.
    fn stats_at_rest(&self, most: usize) -> Stats {
        let may_be_withdrawn = self.has_withdrawn && self.waiting.is_empty();
        let calls = || {
            let calls = [Call::HostRegister, Call::HostAlloc];
            calls.map(|call| self.emulator.calls(call)).iter().sum::<u64>()
        };
        let found = RefCell::new(None);
        eventually("the pool is at rest", || {
            let before = calls();
            let (stats, usage) = (self.pool.stats(), self.emulator.usage());
            let at_rest = stats.committed_bytes == usage.host_bytes
                && (stats.live_bytes <= most || !may_be_withdrawn)
                && stats.growths.count == before
                && before == calls();
            found.replace(at_rest.then_some(stats));
            at_rest
        });
        found.take().expect("eventually")
    }

    fn end(mut self) {
        (0..self.lanes.len()).for_each(|lane| self.step(&Op::Release(lane)));
        self.check();
        self.live.clear();
        let mut waiting = std::mem::take(&mut self.waiting);
        if self.forgotten > 0 {
            self.has_withdrawn |= !waiting.is_empty();
            waiting.clear();
        }
        // A served request holds a block that another may wait for.
        let start = Instant::now();
        while !waiting.is_empty() {
            waiting
                .retain_mut(|waiting| poll_once(&mut waiting.future).map(Result::unwrap).is_none());
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{} are never served",
                waiting.len()
            );
            thread::yield_now();
        }
        self.check();
        let Machine { emulator, pool, clones, lanes, forgotten, .. } = self;
        drop(clones);
        drop(pool);
        drop(lanes);
        let usage = emulator.usage();
        // A forgotten buffer keeps the pool, and so the blocks in flight.
        if forgotten == 0 {
            assert_eq!((usage.host_bytes, usage.streams, usage.events), (0, 0, 0), "{usage:?}");
        }
        assert_eq!(emulator.findings(), []);
    }
}

/// A failed test must not hang in a destructor.
struct Released(Emulator, Vec<pinlane::driver::RawStream>);

impl Drop for Released {
    fn drop(&mut self) {
        for &stream in &self.1 {
            let _ = self.0.release(stream);
        }
    }
}

fn config() -> Config {
    Config { failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn programs_agree_with_the_model(setup in setup(), program in program()) {
        let mut machine = Machine::new(&setup);
        let streams = machine.lanes.iter().map(|lane| raw(&lane.stream)).collect();
        // Dropped before the machine if a step fails.
        let _released = Released(machine.emulator.clone(), streams);
        for op in &program {
            machine.step(op);
            machine.check();
        }
        machine.end();
    }
}
