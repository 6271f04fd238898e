//! What the soundness tests do over and over.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pinlane::driver::{Call, RawStream};
use pinlane::emulated::{Emulator, Execution, Usage};
use pinlane::{Device, DeviceBuf, PinnedBuf, PinnedPool, Stream};

use super::{devices_of, emulator};

/// How long a test may seem to hang before it fails.
const PATIENCE: Duration = Duration::from_secs(40);

/// Runs `test`, and fails instead of hanging.
pub fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = channel();
    let worker = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(PATIENCE) {
        panic!("the test hangs");
    }
    worker.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// Waits for another thread to make `condition` true.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The stream as the emulator's controls name it.
pub fn raw(stream: &Stream) -> RawStream {
    RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() }
}

/// Streams that are stalled. A test that fails must not hang in its drops, which may wait for them.
pub struct Stalled {
    emulator: Emulator,
    streams: Mutex<Vec<RawStream>>,
}

impl Drop for Stalled {
    fn drop(&mut self) {
        for &stream in self.streams.get_mut().unwrap().iter() {
            let _ = self.emulator.release(stream);
        }
    }
}

/// An emulated machine with a pool and a stream on its device 0.
pub struct Rig {
    /// The first to be dropped.
    pub stalled: Stalled,
    pub emulator: Emulator,
    pub device: Device,
    pub pool: PinnedPool,
    pub stream: Stream,
}

/// The elements of the rig's buffers; one block of 4096 bytes each.
pub const LEN: usize = 1024;
/// A budget of this many blocks.
pub const BLOCK: usize = 4096;

impl Rig {
    /// The pool's budget is `blocks` buffers.
    pub fn new(execution: Execution, seed: u64, blocks: usize) -> Rig {
        let emulator = emulator(execution, seed);
        let device = devices_of(&emulator).swap_remove(0);
        let pool = PinnedPool::builder(&device).max_bytes(blocks * BLOCK).build().unwrap();
        let stream = device.stream().unwrap();
        let stalled = Stalled { emulator: emulator.clone(), streams: Mutex::default() };
        Rig { stalled, emulator, device, pool, stream }
    }

    pub fn host(&self, value: u32) -> PinnedBuf<u32> {
        let mut host = self.pool.alloc(LEN).unwrap();
        host.write().unwrap().fill(value);
        host
    }

    pub fn gpu(&self) -> DeviceBuf<u32> {
        self.device.alloc(LEN).unwrap()
    }

    /// What the device holds. Fresh memory and a stream of their own, so that nothing is disturbed.
    pub fn contents(&self, gpu: &DeviceBuf<u32>) -> Vec<u32> {
        let pool = PinnedPool::builder(&self.device).build().unwrap();
        let mut host = pool.alloc(gpu.len()).unwrap();
        self.device.stream().unwrap().download(gpu, &mut host).unwrap();
        host.read().unwrap().to_vec()
    }

    pub fn stall(&self, stream: &Stream) {
        self.emulator.stall(raw(stream)).unwrap();
        self.stalled.streams.lock().unwrap().push(raw(stream));
    }

    pub fn release(&self, stream: &Stream) {
        self.stalled.streams.lock().unwrap().retain(|&stalled| stalled != raw(stream));
        self.emulator.release(raw(stream)).unwrap();
    }

    pub fn assert_no_misuse(&self) {
        assert_eq!(self.emulator.findings(), []);
    }

    /// Drops everything and looks for what is left.
    pub fn assert_nothing_is_left(self) {
        let Rig { emulator, device, pool, stream, .. } = self;
        drop((pool, stream, device));
        assert_eq!(emulator.findings(), []);
        // A thread that is ending may be the one that ends the pool.
        let all_gone = |usage: Usage| {
            (usage.host_bytes, usage.device_bytes, usage.streams, usage.events) == (0, 0, 0, 0)
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !all_gone(emulator.usage()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let usage = emulator.usage();
        assert_eq!((usage.host_bytes, usage.device_bytes), (0, 0), "{usage:?}");
        assert_eq!((usage.streams, usage.events), (0, 0), "{usage:?}");
    }
}

/// Lazy machines: nothing runs before somebody waits.
pub fn on_lazy_machines(blocks: usize, test: impl Fn(Rig) + Send + 'static) {
    watched(move || (0..12).for_each(|seed| test(Rig::new(Execution::Lazy, seed, blocks))));
}

/// How many calls of any kind the machine has seen.
pub fn all_calls(emulator: &Emulator) -> u64 {
    Call::ALL.iter().map(|&call| emulator.calls(call)).sum()
}
