//! Threads that panic while they copy a chunk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::*;
use crate::batch::{Download, Upload};
use crate::device::Device;
use crate::memory::DeviceBuf;
use crate::staging::{CopyTeam, Staging};
use crate::stream::Stream;
use crate::sync::Mutex;

const SLOT: usize = 64 << 10;
const SLOTS: usize = 3;

/// Who panics in a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Caller,
    Helpers,
    /// Each thread, in its first chunk.
    All,
}

/// Threads panic in their first chunk of that memory.
struct Trouble {
    memory: Range<usize>,
    caller: ThreadId,
    who: Who,
    came: AtomicBool,
}

static TROUBLE: Mutex<Option<Arc<Trouble>>> = Mutex::new(None);

/// Called with the address of what a thread is about to copy.
pub(super) fn copying(host: *const u8) {
    let trouble = TROUBLE.lock().clone();
    let Some(trouble) = trouble.filter(|it| it.memory.contains(&host.addr())) else { return };
    let is_caller = thread::current().id() == trouble.caller;
    if trouble.who == Who::All || is_caller == (trouble.who == Who::Caller) {
        trouble.came.store(true, Ordering::Release);
        panic!("expected");
    }
    // The others leave it a chunk. Other tests install teams without threads, so it may not come.
    let until = Instant::now() + Duration::from_millis(50);
    while !trouble.came.load(Ordering::Acquire) && Instant::now() < until {
        thread::yield_now();
    }
}

/// Several slices next to each other, and as many buffers.
struct Copies {
    stream: Stream,
    host: Vec<u8>,
    gpus: Vec<DeviceBuf<u8>>,
}

impl Copies {
    fn new(device: &Device, slices: usize, bytes: usize) -> Self {
        let stream = device.stream().expect("no faults");
        let gpus = (0..slices).map(|_| device.alloc(bytes / slices).expect("no faults")).collect();
        Copies { stream, host: vec![0; bytes / slices * slices], gpus }
    }

    fn copy(&mut self, direction: Direction) -> Result<()> {
        let each = self.host.len() / self.gpus.len();
        match direction {
            Direction::Up => {
                let items = self.host.chunks(each).zip(&mut self.gpus);
                self.stream.upload_batch(items.map(|(host, gpu)| Upload::new(host, gpu))).map(drop)
            }
            Direction::Down => {
                let items = self.host.chunks_mut(each).zip(&self.gpus);
                let items = items.map(|(host, gpu)| Download::new(gpu, host));
                self.stream.download_batch(items).map(drop)
            }
        }
    }

    /// Copies while a thread panics in a chunk, and returns whether that came.
    fn copy_in_trouble(&mut self, direction: Direction, who: Who) -> bool {
        let memory = self.host.as_ptr_range();
        let trouble = Arc::new(Trouble {
            memory: memory.start.addr()..memory.end.addr(),
            caller: thread::current().id(),
            who,
            came: AtomicBool::new(false),
        });
        *TROUBLE.lock() = Some(Arc::clone(&trouble));
        let ran = catch_unwind(AssertUnwindSafe(|| self.copy(direction)));
        *TROUBLE.lock() = None;
        let came = trouble.came.load(Ordering::Acquire);
        match ran {
            Err(panic) => assert_eq!(panic.downcast_ref::<&str>(), Some(&"expected")),
            Ok(done) => assert!(!came && done.is_ok(), "a panic is lost"),
        }
        came
    }
}

/// A panic, of this thread, a helper, or all at once, continues here, no thread hangs, and all
/// slots come back.
#[test]
fn a_panic_in_a_chunk_ends_the_copy_and_goes_on() {
    let device = Device::emulated().expect("it always opens");
    let staging = Staging::new().slot_bytes(SLOT).ring_bytes(SLOTS * SLOT).first_bytes(16 << 10);
    device.set_staging(staging.unit_bytes(8 << 10).direct_bytes(0)).expect("nothing copied yet");
    for direction in [Direction::Up, Direction::Down] {
        for (slices, bytes) in [(1, SLOT / 2), (1, 5 * SLOT + 9), (3, 2 * SLOT)] {
            for who in [Who::Caller, Who::Helpers, Who::All] {
                let mut copies = Copies::new(&device, slices, bytes);
                let mut came = 0;
                // More often than there are slots.
                while came < 2 * SLOTS {
                    CopyTeam::new().threads(3).install().expect("a small team");
                    came += usize::from(copies.copy_in_trouble(direction, who));
                }
                copies.host.fill(7);
                copies.copy(Direction::Up).expect("no trouble");
                copies.host.fill(0);
                copies.copy(Direction::Down).expect("no trouble");
                assert!(
                    copies.host.iter().all(|&byte| byte == 7),
                    "{direction:?} {slices} {who:?}"
                );
            }
        }
    }
}
