//! Every driver call fails, at every point of a program that uses all features of a pool.
//!
//! Whatever fails: there is no panic and no hang; data that is read is right; the pool reports
//! exactly the page-locked bytes; blocks that must never be reused are counted; and after the
//! faults the pool works as before, unless the device is lost.

use std::future::Future;
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use pinlane::driver::Call;
use pinlane::emulated::{Builder, Emulator, Execution, Fault};
use pinlane::{CudaCode, Device, DeviceBuf, ErrorKind, PinnedBuf, PinnedPool, Result, Stream};

use crate::common::faults::{Run, at_calls, at_every_call};
use crate::support::{BLOCK, LEN, eventually, raw, watched};
use crate::{assert_adds_up, assert_counts_add_up, poll_once};

/// The budget. Each block is one slab.
const BLOCKS: usize = 8;
/// The timeout of requests that might otherwise wait forever.
const SOON: Duration = Duration::from_millis(1);

/// The program's objects, made before anything fails.
struct World {
    emulator: Emulator,
    pool: PinnedPool,
    /// The handle of the second is known outside the crate.
    streams: [Stream; 2],
    gpus: [DeviceBuf<u32>; 2],
    device: Device,
}

impl World {
    fn new(emulator: &Emulator) -> World {
        let emulator = emulator.clone();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let pool = PinnedPool::builder(&device).max_bytes(BLOCKS * BLOCK).build().unwrap();
        let streams = [(); 2].map(|()| device.stream().unwrap());
        let _ = raw(&streams[1]);
        let gpus = [(); 2].map(|()| device.alloc(LEN).unwrap());
        World { emulator, pool, streams, gpus, device }
    }

    /// Uses a buffer on both streams and drops it while they still use it.
    fn use_and_drop(&mut self, mut host: PinnedBuf<u32>) -> Result<()> {
        host.write()?.fill(7);
        for (stream, gpu) in self.streams.iter().zip(&mut self.gpus) {
            stream.upload(&host, gpu)?;
        }
        self.streams[0].download(&self.gpus[0], &mut host)?;
        Ok(())
    }

    /// Uploads and downloads a value, and checks it.
    fn use_and_read(&mut self, mut host: PinnedBuf<u32>, value: u32) -> Result<()> {
        host.write()?.fill(value);
        let [stream, other] = &self.streams;
        stream.upload(&host, &mut self.gpus[0])?;
        host.write()?.fill(!value);
        other.download(&self.gpus[0], &mut host)?;
        assert!(host.read()?.iter().all(|&word| word == value), "not what was uploaded");
        Ok(())
    }

    fn grow_and_retire(&mut self) -> Result<()> {
        for _ in 0..2 * BLOCKS {
            let host = self.pool.alloc(LEN)?;
            self.use_and_drop(host)?;
        }
        Ok(())
    }

    fn all_forms(&mut self) -> Result<()> {
        let aligned = self.pool.alloc_aligned(LEN, 2 * BLOCK)?;
        self.use_and_read(aligned, 1)?;
        let zeroed = self.pool.alloc_zeroed(LEN)?;
        self.use_and_drop(zeroed)?;
        let timed = self.pool.alloc_timeout(LEN, SOON)?;
        self.use_and_read(timed, 2)?;
        if let Ok(host) = self.pool.try_alloc(LEN) {
            self.use_and_drop(host)?;
        }
        match soon(self.pool.alloc_async(LEN)) {
            Some(host) => self.use_and_drop(host?),
            None => Ok(()),
        }
    }

    /// Blocks of another size: free memory must be released for them.
    fn change_sizes(&mut self) -> Result<()> {
        for factor in [1, 4, 2, BLOCKS, 1] {
            let mut host = self.pool.alloc(factor * LEN)?;
            host.write()?.fill(3);
            let part = host.slice(..LEN)?;
            self.streams[1].upload(part, &mut self.gpus[1])?;
        }
        Ok(())
    }

    /// One thread holds the whole budget, others wait for it.
    fn wait_for_others(&mut self) -> Result<()> {
        let held: Result<Vec<PinnedBuf<u32>>> =
            (0..BLOCKS).map(|_| self.pool.alloc_timeout(LEN, SOON)).collect();
        let pool = &self.pool;
        thread::scope(|scope| {
            let sync = scope.spawn(|| pool.alloc_timeout::<u32>(LEN, SOON).map(drop));
            let future = scope.spawn(|| soon(pool.alloc_async::<u32>(2 * LEN)).map(drop));
            drop(held);
            let _ = (sync.join().unwrap(), future.join().unwrap());
        });
        Ok(())
    }

    fn drop_in_a_host_function(&mut self) -> Result<()> {
        let host = self.pool.alloc::<u32>(LEN)?;
        self.streams[0].upload(&host, &mut self.gpus[0])?;
        let pool = self.pool.clone();
        self.streams[1].launch_host(move || drop((host, pool)))?.wait()
    }

    /// Uses all features of a pool, and collects the results.
    fn run(&mut self) -> Vec<Result<()>> {
        let mut results = vec![
            self.grow_and_retire(),
            self.all_forms(),
            self.change_sizes(),
            self.pool.trim().map(drop),
            self.drop_in_a_host_function(),
            self.wait_for_others(),
            self.grow_and_retire(),
        ];
        results.push(self.streams.iter().try_for_each(Stream::synchronize));
        results.push(self.pool.trim_to(BLOCK).map(drop));
        results
    }

    /// Asserts that everything works with the rest of the budget.
    fn assert_works(&mut self) {
        // Records an event after operations that may have none.
        self.streams.iter().for_each(|stream| drop(stream.record().unwrap()));
        let left = BLOCKS - self.pool.stats().quarantined_bytes / BLOCK;
        for _ in 0..3 {
            let mut hosts: Vec<PinnedBuf<u32>> = (0..left)
                .map(|_| self.pool.alloc(LEN).unwrap_or_else(|error| panic!("{error}")))
                .collect();
            for (value, host) in hosts.iter_mut().enumerate() {
                host.write().unwrap().fill(value as u32);
                let [stream, other] = &self.streams;
                stream.upload(&*host, &mut self.gpus[0]).unwrap();
                other.download(&self.gpus[0], &mut *host).unwrap();
                assert!(host.read().unwrap().iter().all(|&word| word == value as u32));
            }
        }
        assert_eq!(self.pool.trim().unwrap(), left * BLOCK);
    }
}

/// The output of a future if it is ready within a short time; otherwise the future is dropped.
fn soon<F: Future>(future: F) -> Option<F::Output> {
    let (mut future, start) = (pin!(future), Instant::now());
    while start.elapsed() < SOON {
        if let Some(output) = poll_once(&mut future) {
            return Some(output);
        }
        thread::yield_now();
    }
    None
}

/// Uses all features of a pool while calls fail. After that the pool works as before.
fn survives(run: &Run) -> usize {
    let mut world = World::new(&run.emulator);
    run.begin();
    let results = world.run();
    run.end();
    run.explains_all(results);
    // A host function may still hold a block, and a withdrawn request may have just been served.
    eventually("nothing is alive", || {
        let stats = world.pool.stats();
        let there = world.emulator.usage().host_bytes;
        let adds_up = stats.committed_bytes == there;
        let is_less = there < stats.committed_bytes && run.may_have_released();
        stats.live_bytes == 0 && (adds_up || is_less) || run.is_lost()
    });
    let lost = world.streams[0].synchronize().is_err();
    assert!(!lost || run.is_lost());
    if !lost {
        world.assert_works();
    }
    let World { emulator, pool, streams, gpus, device } = world;
    let stats = match (lost, run.may_have_released()) {
        (true, _) => pool.stats(),
        (false, true) => assert_counts_add_up(&pool),
        (false, false) => assert_adds_up(&pool, &emulator),
    };
    if lost {
        let error = pool.alloc::<u32>(BLOCKS * LEN).unwrap_err();
        assert!(error.kind() == ErrorKind::BudgetExhausted || run.case.unwrap().loses(), "{error}");
    }
    drop((pool, streams, gpus));
    let kept = stats.quarantined_bytes + device.quarantined_bytes();
    drop(device);
    assert!(!lost || emulator.usage().host_bytes <= stats.committed_bytes + kept, "{stats}");
    kept
}

/// The same, but calls fail until everything is dropped. Memory whose uses cannot be waited for, or
/// that cannot be released, is kept.
fn ends(run: &Run) -> usize {
    let mut world = World::new(&run.emulator);
    run.begin();
    run.explains_all([world.grow_and_retire(), world.all_forms(), world.drop_in_a_host_function()]);
    let World { emulator, pool, streams, gpus, device } = world;
    let committed = pool.stats().committed_bytes;
    drop((streams, gpus, pool));
    let kept = device.quarantined_bytes();
    drop(device);
    eventually("it has ended", || run.case.is_some() || emulator.usage().host_bytes == 0);
    let left = emulator.usage().host_bytes;
    assert!(left <= committed + kept, "{left} of {committed} and {kept}");
    kept + left
}

fn machine() -> Builder {
    Emulator::builder()
}

#[test]
fn any_call_may_fail() {
    at_every_call("the pool", &machine(), 200, survives);
}

#[test]
fn any_call_may_fail_until_the_end() {
    at_every_call("the pool's end", &machine(), 100, ends);
}

/// The call that replaces a failed one fails too.
#[test]
fn calls_may_fail_together() {
    let sets: [&[Call]; 5] = [
        &[Call::HostRegister, Call::HostAlloc],
        &[Call::HostUnregister, Call::HostFree],
        &[Call::EventRecord, Call::StreamSynchronize],
        &[Call::EventQuery, Call::StreamQuery, Call::EventSynchronize, Call::StreamSynchronize],
        &[Call::EventCreate, Call::StreamQuery, Call::StreamSynchronize],
    ];
    at_calls("the pool, calls together", &machine(), 60, &sets, |_| true, survives);
}

/// If the handle of a stream is known outside, and no event can be recorded on it, the pool queries
/// the stream itself.
#[test]
fn blocks_come_back_from_a_stream_that_gets_no_event() {
    watched(|| {
        let mut world = World::new(&Emulator::new());
        let hosts: Vec<PinnedBuf<u32>> =
            (0..BLOCKS).map(|_| world.pool.alloc(LEN).unwrap()).collect();
        for call in [Call::EventRecord, Call::StreamSynchronize] {
            world.emulator.inject(Fault::forever(call, CudaCode::INVALID_VALUE));
        }
        for host in &hosts {
            world.streams[1].upload(host, &mut world.gpus[1]).unwrap_err();
        }
        drop(hosts);
        let again: Result<Vec<PinnedBuf<u32>>> =
            (0..BLOCKS).map(|_| world.pool.alloc(LEN)).collect();
        assert_eq!(again.unwrap().len(), BLOCKS);
        assert_eq!(world.pool.stats().quarantined_bytes, 0);
    });
}

/// The device is lost between a copy and its event, on a stream whose handle is known outside: no
/// call can tell whether the copy is done.
#[test]
fn a_copy_without_an_event_on_a_lost_device_holds_nobody_up() {
    watched(|| {
        for execution in [Execution::Eager, Execution::Lazy] {
            let emulator = Emulator::builder().execution(execution).build();
            let mut world = World::new(&emulator);
            let hosts: Vec<PinnedBuf<u32>> =
                (0..BLOCKS).map(|_| world.pool.alloc(LEN).unwrap()).collect();
            let lost = Fault::once(Call::EventRecord, CudaCode::ILLEGAL_ADDRESS);
            world.emulator.inject(lost);
            world.streams[1].upload(&hosts[0], &mut world.gpus[1]).unwrap_err();
            drop(hosts.into_iter().take(1).collect::<Vec<_>>());
            let rest: Vec<_> =
                (1..BLOCKS).map_while(|_| world.pool.try_alloc::<u32>(LEN).ok()).collect();
            assert_eq!(rest.len(), BLOCKS - 1);
            world.pool.alloc::<u32>(LEN).unwrap_err();
            assert_eq!(world.pool.stats().quarantined_bytes, BLOCK);
        }
    });
}
