//! Helpers of the tests.

use std::fmt::Debug;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::process::abort;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pinlane::driver::{Call, RawStream};
use pinlane::emulated::{Emulator, Execution, Usage};
use pinlane::{Device, DeviceBuf, PinnedBuf, PinnedPool, Stream};

use super::{devices_of, emulator, pool};

/// How long a test may make no progress before it fails: a minute, or the seconds that
/// `PINLANE_TEST_PATIENCE` sets.
pub fn patience() -> Duration {
    let seconds = std::env::var("PINLANE_TEST_PATIENCE");
    Duration::from_secs(seconds.map_or(60, |seconds| seconds.parse().expect("seconds")))
}

/// The interval at which [`check_each`] looks for a case that hangs.
const GLANCE: Duration = Duration::from_millis(100);

/// Runs `test`, and fails instead of hanging.
pub fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = channel();
    let worker = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(patience()) {
        panic!("the test hangs");
    }
    worker.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// Checks one case after another. If one hangs, prints it and ends the process: a thread that hangs
/// cannot be ended.
pub fn check_each<C: Debug + Sync>(cases: &[C], check: impl Fn(&C)) {
    let current = Mutex::new((Instant::now(), None));
    let (at_it, ended) = channel::<()>();
    thread::scope(|scope| {
        let current = &current;
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(GLANCE) {
                let (since, case) = *current.lock().unwrap();
                if since.elapsed() > patience() {
                    eprintln!("this hangs: {case:?}");
                    abort();
                }
            }
        });
        // Dropped after the last case, and when one fails.
        let _at_it = at_it;
        for case in cases {
            *current.lock().unwrap() = (Instant::now(), Some(case));
            check(case);
        }
    });
}

/// Whether another thread makes `condition` true.
fn becomes_true(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > patience() {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Waits for another thread to make `condition` true.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    assert!(becomes_true(condition), "never: {what}");
}

/// Asserts that nothing is left of the devices, pools and streams that have been dropped.
pub fn assert_nothing_is_left(emulator: &Emulator) {
    let is_gone = |usage: Usage| {
        let memory = usage.host_bytes + usage.device_bytes;
        (memory, usage.streams, usage.events, usage.graphs) == (0, 0, 0, 0)
    };
    assert_eq!(emulator.findings(), []);
    // The pool may be ended by a thread that is itself still ending.
    let all_gone = becomes_true(|| is_gone(emulator.usage()));
    assert!(all_gone, "{:?}", emulator.usage());
    assert_eq!(emulator.findings(), []);
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

/// The stream's handle for the emulator's controls.
pub fn raw(stream: &Stream) -> RawStream {
    RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() }
}

/// A stream that is stalled until this is dropped. A test that fails would otherwise hang in other
/// drops, which may wait for the stream.
pub struct Stalled(Emulator, RawStream);

impl Stalled {
    pub fn new(emulator: &Emulator, stream: &Stream) -> Stalled {
        emulator.stall(raw(stream)).unwrap();
        Stalled(emulator.clone(), raw(stream))
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        let _ = self.0.release(self.1);
    }
}

/// An emulated machine with a pool and a stream on its device 0.
pub struct Rig {
    /// The first to be dropped.
    pub stalled: Mutex<Vec<Stalled>>,
    pub emulator: Emulator,
    pub device: Device,
    pub pool: PinnedPool,
    pub stream: Stream,
}

/// The elements of each of the rig's buffers: one block of 4096 bytes.
pub const LEN: usize = 1024;
/// The bytes of such a block.
pub const BLOCK: usize = 4096;

impl Rig {
    /// The pool's budget is `blocks` buffers.
    pub fn new(execution: Execution, seed: u64, blocks: usize) -> Rig {
        Rig::on(emulator(execution, seed), blocks)
    }

    /// On a machine with two devices.
    pub fn on(emulator: Emulator, blocks: usize) -> Rig {
        let device = devices_of(&emulator).swap_remove(0);
        let pool = pool(&device).max_bytes(blocks * BLOCK).build().unwrap();
        let stream = device.stream().unwrap();
        Rig { stalled: Mutex::default(), emulator, device, pool, stream }
    }

    pub fn host(&self, value: u32) -> PinnedBuf<u32> {
        let mut host = self.pool.alloc(LEN).unwrap();
        host.write().unwrap().fill(value);
        host
    }

    pub fn gpu(&self) -> DeviceBuf<u32> {
        self.device.alloc(LEN).unwrap()
    }

    /// The contents of a device buffer. The copy uses a stream and host memory of its own, so that
    /// it changes nothing for the test.
    pub fn contents(&self, gpu: &DeviceBuf<u32>) -> Vec<u32> {
        let pool = pool(&self.device).build().unwrap();
        let mut host = pool.alloc(gpu.len()).unwrap();
        self.device.stream().unwrap().download(gpu, &mut host).unwrap();
        host.read().unwrap().to_vec()
    }

    pub fn stall(&self, stream: &Stream) {
        self.stalled.lock().unwrap().push(Stalled::new(&self.emulator, stream));
    }

    pub fn release(&self, stream: &Stream) {
        self.stalled.lock().unwrap().retain(|stalled| stalled.1 != raw(stream));
    }

    pub fn assert_no_misuse(&self) {
        assert_eq!(self.emulator.findings(), []);
    }

    /// Drops everything and asserts that nothing is left.
    pub fn assert_nothing_is_left(self) {
        let emulator = self.emulator.clone();
        drop(self);
        assert_nothing_is_left(&emulator);
    }
}

/// On lazy machines, where nothing runs before the program waits for it.
pub fn on_lazy_machines(blocks: usize, test: impl Fn(Rig) + Send + 'static) {
    watched(move || (0..12).for_each(|seed| test(Rig::new(Execution::Lazy, seed, blocks))));
}

/// How many calls of any kind the machine has seen.
pub fn all_calls(emulator: &Emulator) -> u64 {
    Call::ALL.iter().map(|&call| emulator.calls(call)).sum()
}
