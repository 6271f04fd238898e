//! The drivers and the helpers of the conformance tests.

use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::common::{Target, driver, target};
use pinlane::driver::{
    DevicePtr, Driver, DriverResult, HostFlags, Ordinal, Poll, RawEvent, RawStream, StreamFlags,
};
use pinlane::emulated::{Emulator, Execution, Kind, Plane};

/// A driver, with the helpers of the tests.
#[derive(Clone)]
pub struct Rig {
    pub driver: Arc<dyn Driver>,
    pub device: Ordinal,
}

/// Runs a test on emulators of all modes with several seeds, which must have no findings; or on the
/// GPU, if the suite runs for it.
pub fn on_each_driver(test: impl Fn(&Rig)) {
    if target() == Target::Cuda {
        // One test at a time: a gate of one test holds up the legacy stream, and the thread that
        // runs host functions, for all tests.
        static GPU: Mutex<()> = Mutex::new(());
        let _alone = GPU.lock().unwrap_or_else(PoisonError::into_inner);
        let (driver, device) = driver();
        return test(&Rig { driver, device });
    }
    on_each_emulator(|rig, _| test(rig));
}

/// A copy between the device and host memory that may be pageable. `cudaMemcpyAsync`
///
/// # Safety
///
/// * As for [`Emulator::copy`].
pub unsafe fn copy_plain(
    emulator: &Emulator,
    stream: RawStream,
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
) -> DriverResult<()> {
    let line = Plane::line(dst.cast(), src.cast(), bytes);
    // SAFETY: promised by the caller.
    unsafe { emulator.copy(stream, line, Kind::Default, false) }
}

/// The same for tests of emulators only.
pub fn on_each_emulator(test: impl Fn(&Rig, &Emulator)) {
    let builder = Emulator::builder().devices(2).memory_bytes(1 << 24);
    for (execution, seeds) in MODES {
        // Also a fresh seed. Its machine also watches the host.
        let unknown = RandomState::new().hash_one(seeds);
        for (seed, watches) in (0..seeds).map(|seed| (seed, false)).chain([(unknown, true)]) {
            let builder = builder.clone().watch_host(watches);
            let emulator = builder.execution(execution).seed(seed).build();
            let _says = Says(&emulator);
            test(&Rig { driver: emulator.driver(), device: 0 }, &emulator);
            assert_eq!(emulator.findings(), [], "on {emulator:?}");
        }
    }
}

/// The number of seeds for each mode.
const MODES: [(Execution, u64); 7] = [
    (Execution::Eager, 1),
    (Execution::Lazy, 12),
    (Execution::Random, 8),
    (Execution::Chunked, 8),
    (Execution::Pct { depth: 1 }, 2),
    (Execution::Pct { depth: 2 }, 4),
    (Execution::Pct { depth: 3 }, 4),
];

/// Prints the machine on which a test has failed.
struct Says<'a>(&'a Emulator);

impl Drop for Says<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed on {:?}", self.0);
        }
    }
}
/// The size of every block and allocation.
pub const BYTES: usize = 4096;

// SAFETY (of all calls of the driver in this file, unless they say otherwise): streams and events
// come from the rig, and are never destroyed, or after their last use; each range lies in a block
// or an allocation of at least its length; the host reads, writes and frees memory only after it
// has synchronized with the work on it; host functions do not call the driver.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Rig {
    pub fn stream(&self, blocking: bool) -> RawStream {
        self.driver.stream_create(self.device, StreamFlags { blocking, priority: 0 }).unwrap()
    }

    pub fn legacy(&self) -> RawStream {
        RawStream { device: self.device, handle: RawStream::LEGACY }
    }

    pub fn per_thread(&self) -> RawStream {
        RawStream { device: self.device, handle: RawStream::PER_THREAD }
    }

    pub fn event(&self) -> RawEvent {
        self.driver.event_create(self.device, false).unwrap()
    }

    pub fn host(&self) -> NonNull<u8> {
        self.driver.host_alloc(self.device, BYTES, HostFlags::default()).unwrap()
    }

    /// Device memory that every stream may use.
    pub fn memory(&self) -> DevicePtr {
        self.memory_of(self.device)
    }

    pub fn memory_of(&self, device: Ordinal) -> DevicePtr {
        let stream = Rig { device, ..self.clone() }.stream(false);
        let ptr = unsafe { self.driver.device_alloc(stream, BYTES) }.unwrap();
        self.synchronize(stream);
        unsafe { self.driver.stream_destroy(stream) }.unwrap();
        ptr
    }

    pub fn fill(&self, stream: RawStream, dst: DevicePtr, value: u8) {
        unsafe { self.driver.fill(stream, dst, BYTES, &[value]) }.unwrap();
    }

    pub fn copy(&self, stream: RawStream, dst: DevicePtr, src: DevicePtr) {
        unsafe { self.driver.copy_d2d(stream, dst, src, BYTES) }.unwrap();
    }

    pub fn record(&self, event: RawEvent, stream: RawStream) {
        unsafe { self.driver.event_record(event, stream) }.unwrap();
    }

    /// Records a fresh event.
    pub fn mark(&self, stream: RawStream) -> RawEvent {
        let event = self.event();
        self.record(event, stream);
        event
    }

    pub fn wait(&self, stream: RawStream, event: RawEvent) {
        unsafe { self.driver.stream_wait_event(stream, event) }.unwrap();
    }

    pub fn synchronize(&self, stream: RawStream) {
        unsafe { self.driver.stream_synchronize(stream) }.unwrap();
    }

    /// Whether the event is done. It asks more often than a lazy driver answers "not ready" for
    /// work that it could do.
    pub fn is_done(&self, event: RawEvent) -> bool {
        (0..20).any(|_| unsafe { self.driver.event_query(event) } == Ok(Poll::Done))
    }

    /// Whether the event is done in the end.
    pub fn gets_done(&self, event: RawEvent) -> bool {
        patiently(|| unsafe { self.driver.event_query(event) }.unwrap())
    }

    pub fn launch(&self, stream: RawStream, function: impl FnOnce() + Send + 'static) {
        unsafe extern "C" fn call(data: *mut c_void) {
            let function = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
            function();
        }
        let data: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(function));
        let data = Box::into_raw(data).cast();
        unsafe { self.driver.launch_host(stream, call, data) }.unwrap();
    }

    /// Holds the stream back until the gate is opened or dropped.
    pub fn gate(&self, stream: RawStream) -> Gate {
        let door = Arc::new(Door::default());
        let gate = Gate(Arc::clone(&door));
        self.launch(stream, move || door.pass());
        gate
    }

    /// The contents of device memory. All work on it is complete.
    pub fn contents(&self, src: DevicePtr) -> Vec<u8> {
        let (host, stream) = (self.host(), self.stream(false));
        unsafe {
            self.driver.copy_d2h(stream, host.as_ptr(), src, BYTES).unwrap();
            self.synchronize(stream);
            let bytes = std::slice::from_raw_parts(host.as_ptr(), BYTES).to_vec();
            self.driver.host_free(host).unwrap();
            self.driver.stream_destroy(stream).unwrap();
            bytes
        }
    }

    pub fn upload(&self, dst: DevicePtr, contents: &[u8]) {
        let (host, stream) = (self.host(), self.stream(false));
        unsafe {
            host.as_ptr().copy_from(contents.as_ptr(), contents.len());
            self.driver.copy_h2d(stream, dst, host.as_ptr(), contents.len()).unwrap();
            self.synchronize(stream);
            self.driver.host_free(host).unwrap();
            self.driver.stream_destroy(stream).unwrap();
        }
    }
}

/// Asks until the answer is Done, for several seconds: much longer than a device needs for the work
/// of these tests.
pub fn patiently(mut query: impl FnMut() -> Poll) -> bool {
    (0..5000).any(|round| {
        if round > 50 {
            std::thread::sleep(Duration::from_millis(1));
        }
        query() == Poll::Done
    })
}

/// Holds a stream back until it is opened: by the test, by the unwinding of a failed test, or by a
/// timeout if a call blocks that must not.
pub struct Gate(Arc<Door>);

#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.0.open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl Door {
    fn pass(&self) {
        const AT_THE_LATEST: Duration = Duration::from_secs(20);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_timeout_while(open, AT_THE_LATEST, |open| !*open).unwrap());
    }
}
