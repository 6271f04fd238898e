//! One device of one driver, and the gate through which every driver call goes.
//!
//! Buffers, streams and pools share a [`Context`] and keep it alive. All calls of programs reach
//! the driver through [`Context::driver`], which refuses forked children and host functions before
//! any CUDA call (soundness rules 8 and 14).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::{Driver, Ordinal, RawStream};
use crate::error::{CudaCode, Error, ErrorKind, Result};
use crate::notice;
use crate::process::{Process, in_host_function};
use crate::sync::Mutex;
use crate::trace;

pub(crate) struct Context {
    driver: Arc<dyn Driver>,
    ordinal: Ordinal,
    name: String,
    process: Process,
    /// Whether the driver checks the host's accesses to memory.
    tells_host_accesses: bool,
    quarantined: AtomicUsize,
    pub(crate) live_streams: AtomicUsize,
    /// The devices that this one has copied to or from.
    peers: Mutex<Vec<Ordinal>>,
    /// The recorder of this device, if it is recorded.
    pub(crate) recording: trace::Switch,
}

impl Context {
    pub(crate) fn new(driver: Arc<dyn Driver>, ordinal: Ordinal) -> Result<Arc<Self>> {
        let process = Process::current();
        let name = driver.device_name(ordinal).map_err(|code| {
            Error::cuda(code, "cudaGetDeviceProperties", format!("device {ordinal}"))
        })?;
        Ok(Arc::new(Context {
            tells_host_accesses: driver.sees_host_accesses(),
            driver,
            ordinal,
            name,
            process,
            quarantined: AtomicUsize::new(0),
            live_streams: AtomicUsize::new(0),
            peers: Mutex::default(),
            recording: trace::Switch::default(),
        }))
    }

    pub(crate) fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The driver, for `operation`; refused in a forked child and inside a host function.
    #[inline]
    pub(crate) fn driver(&self, operation: &'static str) -> Result<&dyn Driver> {
        if self.process.is_current() && !in_host_function() {
            Ok(&*self.driver)
        } else {
            Err(self.refusal(operation))
        }
    }

    /// The machine, if the device is an emulated one.
    #[cfg(pinlane_emulated)]
    pub(crate) fn emulator(&self) -> Option<crate::driver::emulated::Emulator> {
        crate::driver::emulated::Emulator::of(Arc::clone(&self.driver))
    }

    /// The driver, for owners that keep it beyond a call.
    pub(crate) fn shared_driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The driver, to release resources; `None` in a forked child, where everything leaks. Call it
    /// through [`on_ordinary_thread`](crate::process::on_ordinary_thread).
    pub(crate) fn releaser(&self) -> Option<&dyn Driver> {
        self.process.is_current().then_some(&*self.driver)
    }

    /// Announces that the host reads, or also writes, page-locked memory now. The emulated device
    /// checks that no work conflicts.
    #[inline]
    pub(crate) fn host_access(&self, ptr: *const u8, bytes: usize, writes: bool) {
        if self.tells_host_accesses && self.process.is_current() {
            self.driver.host_access(ptr, bytes, writes);
        }
    }

    /// The mark of the process that opened the device.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// Whether this is not a forked child. For releases that need no driver.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.process.is_current()
    }

    /// Fails in a forked child. For calls that need no driver.
    #[inline]
    pub(crate) fn check_process(&self, operation: &'static str) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(self.refusal(operation)) }
    }

    #[cold]
    fn refusal(&self, operation: &'static str) -> Error {
        if self.process.is_current() {
            let what = "called from inside a host function, where CUDA calls are forbidden";
            let remedy = "hand the work to another thread, by a channel for example";
            Error::new(ErrorKind::Unsupported, operation, what, remedy)
        } else {
            let what = format!("this process was forked after device {} was opened", self.ordinal);
            let remedy = "use CUDA in the parent only, or exec a new program in the child";
            Error::new(ErrorKind::ForkedProcess, operation, what, remedy)
        }
    }

    /// Whether both contexts have the same driver, so that their objects can be used together.
    pub(crate) fn same_driver(&self, other: &Context) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.driver), Arc::as_ptr(&other.driver))
    }

    /// Refuses the object called `name` if it belongs to another driver than a stream of this
    /// device. Drivers do not know each other's streams and memory.
    #[inline]
    pub(crate) fn check_driver(
        &self,
        operation: &'static str,
        theirs: &Context,
        name: &str,
    ) -> Result<()> {
        if self.same_driver(theirs) { Ok(()) } else { Err(other_driver(operation, name)) }
    }

    /// An error of the CUDA runtime on this device.
    #[cold]
    pub(crate) fn error(
        &self,
        code: CudaCode,
        operation: &'static str,
        what: impl std::fmt::Display,
    ) -> Error {
        Error::cuda(code, operation, format!("{what} on device {} ({})", self.ordinal, self.name))
    }

    /// Whether the device is a GPU, of the CUDA runtime.
    pub(crate) fn is_cuda(&self) -> bool {
        let cuda = crate::driver::cuda();
        cuda.is_some_and(|cuda| std::ptr::addr_eq(Arc::as_ptr(&self.driver), Arc::as_ptr(&cuda)))
    }

    /// A stream handle of this device.
    pub(crate) fn stream(&self, handle: usize) -> RawStream {
        RawStream { device: self.ordinal, handle }
    }

    /// Notes that this device copies to or from `other`. Returns whether it is the first time.
    pub(crate) fn note_peer(&self, other: Ordinal) -> bool {
        let mut peers = self.peers.lock();
        let first = !peers.contains(&other);
        if first {
            peers.push(other);
        }
        first
    }

    /// Counts and reports memory that cannot be proven unused, and is therefore never freed. `of`
    /// says what it belonged to. The caller holds no lock. A forked child counts nothing, because
    /// everything leaks there.
    pub(crate) fn quarantine(&self, bytes: usize, of: &str) {
        if !self.is_current() {
            return;
        }
        self.quarantined.fetch_add(bytes, Ordering::Relaxed);
        notice::quarantined(bytes, format_args!("{of} of device {}", self.ordinal));
    }

    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.load(Ordering::Relaxed)
    }
}

#[cold]
fn other_driver(operation: &'static str, name: &str) -> Error {
    let what = format!("the {name} belongs to another driver than the stream");
    Error::new(ErrorKind::WrongDevice, operation, what, "use devices of one emulator, or GPUs only")
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {} ({})", self.ordinal, self.name)
    }
}
