//! What the runtime keeps for each thread: its current device (rule 18) with its default streams,
//! its last error (rules 26 to 29), and the call that it makes; calls inside host functions (rules
//! 24 and 25).

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use super::{no_such, refuse_in_host_function};
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::liberties::Quirk;
use crate::machine::{CaptureMode, Machine};
use crate::watch::are_new;
use crate::words::thread::{in_host_function, though_in_host_function};
use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Ordinal, RawStream};

/// A stream as a call names it: by its handle, which may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The `cudaStream_t`, as a number.
    pub handle: usize,
    /// Whether 0 means the per-thread default stream, as in programs that were compiled for it.
    pub per_thread: bool,
}

impl From<RawStream> for Target {
    /// A default stream becomes that of the current device.
    fn from(stream: RawStream) -> Self {
        Target { handle: stream.handle, per_thread: false }
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    machine: u64,
    device: Ordinal,
    error: CudaCode,
    call: &'static str,
    capture_mode: CaptureMode,
}

impl State {
    fn new(machine: u64) -> Self {
        let (error, capture_mode) = (CudaCode::SUCCESS, CaptureMode::default());
        State { machine, device: 0, error, call: "a call", capture_mode }
    }
}

thread_local! {
    /// One for each machine that the thread has called: nearly always one.
    static STATES: RefCell<Vec<State>> = const { RefCell::new(Vec::new()) };
}

impl Emulator {
    /// The calling thread's current device: 0 until it sets another.
    #[must_use]
    pub fn current_device(&self) -> Ordinal {
        self.state(|state| state.device).unwrap_or(0)
    }

    /// Makes a device current on the calling thread. `cudaSetDevice`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn set_device(&self, device: Ordinal) -> DriverResult<()> {
        self.with(|machine| machine.device(device).map(drop))?;
        self.state(|state| state.device = device);
        Ok(())
    }

    /// Puts an error into the calling thread's slot. NotReady stays out of it, as seen on hardware,
    /// but with some seeds (rule 29).
    pub fn note_error(&self, code: CudaCode) {
        let has_quirk = || self.with(|m| m.has_quirk(Quirk::NotReadyIsAnError));
        if code != CudaCode::SUCCESS && (code != CudaCode::NOT_READY || has_quirk()) {
            self.state(|state| state.error = code);
        }
    }

    /// Whether the driver unloads before the destructors of what is older than the first call (rule
    /// 30).
    #[must_use]
    pub fn unloads_early(&self) -> bool {
        self.with(|machine| machine.has_quirk(Quirk::UnloadsEarly))
    }

    /// The calling thread's last error. `cudaPeekAtLastError`
    #[must_use]
    pub fn peek_error(&self) -> CudaCode {
        self.state(|state| state.error).unwrap_or(CudaCode::SUCCESS)
    }

    /// Returns the calling thread's last error and clears it. A sticky error, which every later
    /// call returns, stays (rule 28). `cudaGetLastError`
    #[must_use]
    pub fn take_error(&self) -> CudaCode {
        let take = |state: &mut State| match state.error {
            code if code.is_sticky() => code,
            _ => std::mem::replace(&mut state.error, CudaCode::SUCCESS),
        };
        self.state(take).unwrap_or(CudaCode::SUCCESS)
    }

    /// Names the call that the calling thread makes from now on, for findings. Returns the name of
    /// the call so far, because a call may be made inside another.
    pub fn enter_call(&self, name: &'static str) -> &'static str {
        self.state(|state| std::mem::replace(&mut state.call, name)).unwrap_or(name)
    }

    /// The call returns to the one in which it was made. From now on the program may load too early
    /// what its copies are still to write. Returns whether there are findings to
    /// [take](Self::take_findings).
    pub fn leave_call(&self, outer: &'static str) -> bool {
        self.enter_call(outer);
        if are_new() {
            self.shared.with(Machine::call_returns);
        }
        self.shared.has_findings.load(Ordering::Acquire)
    }

    /// The name of the call that the calling thread makes.
    pub(crate) fn call_name(&self) -> &'static str {
        self.state(|state| state.call).unwrap_or("a call")
    }

    /// Which captures of other threads restrict the calling thread.
    /// `cudaThreadExchangeStreamCaptureMode`
    pub(crate) fn capture_mode(&self) -> CaptureMode {
        self.state(|state| state.capture_mode).unwrap_or_default()
    }

    /// Sets that, and gives what it was before.
    pub fn exchange_capture_mode(&self, mode: CaptureMode) -> CaptureMode {
        let exchange = |state: &mut State| std::mem::replace(&mut state.capture_mode, mode);
        self.state(exchange).unwrap_or_default()
    }

    /// The default stream that a call without a stream uses (rule 3).
    #[must_use]
    pub fn default_stream(&self, per_thread: bool) -> RawStream {
        let handle = if per_thread { RawStream::PER_THREAD } else { RawStream::LEGACY };
        RawStream { device: self.current_device(), handle }
    }

    /// The stream that a call names.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`], and a finding, if there is none.
    pub fn stream(&self, target: Target) -> DriverResult<RawStream> {
        let found = |handle| self.shared.with(|machine| self.created(machine, handle));
        self.default_of(target).map_or_else(|| found(target.handle), Ok)
    }

    /// The same, for a call that has the machine.
    pub(super) fn find_stream(
        &self,
        machine: &mut Machine,
        target: Target,
    ) -> DriverResult<RawStream> {
        self.default_of(target).map_or_else(|| self.created(machine, target.handle), Ok)
    }

    fn default_of(&self, target: Target) -> Option<RawStream> {
        match target.handle {
            0 => Some(self.default_stream(target.per_thread)),
            RawStream::LEGACY => Some(self.default_stream(false)),
            RawStream::PER_THREAD => Some(self.default_stream(true)),
            _ => None,
        }
    }

    /// The stream of that handle, which a call has created.
    fn created(&self, machine: &mut Machine, handle: usize) -> DriverResult<RawStream> {
        match machine.streams.find(handle) {
            Some((_, it)) if !it.destroyed => Ok(RawStream { device: it.device, handle }),
            _ => Err(no_such(machine, self.call_name(), "stream", handle)),
        }
    }

    /// Whether the calling thread is inside a host function.
    #[must_use]
    pub fn is_in_host_function(&self) -> bool {
        in_host_function()
    }

    /// For calls that a host function may not make.
    ///
    /// # Errors
    ///
    /// [`CudaCode::NOT_PERMITTED`], and a finding, inside a host function.
    pub fn refuse_in_host_function(&self) -> DriverResult<()> {
        let call = self.call_name();
        self.with(|machine| refuse_in_host_function(machine, format_args!("{call}")))
    }

    /// Makes a call that GPUs were seen to answer inside a host function, where CUDA's documents
    /// allow none: there it is a finding.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub fn answered<R>(&self, call: impl FnOnce() -> DriverResult<R>) -> DriverResult<R> {
        if !in_host_function() {
            return call();
        }
        let message = format!("{} was called from inside a host function", self.call_name());
        self.with(|machine| machine.report(FindingKind::CallInHostFunction, message));
        though_in_host_function(call)
    }

    /// `None` on a thread that is ending.
    fn state<R>(&self, work: impl FnOnce(&mut State) -> R) -> Option<R> {
        STATES
            .try_with(|states| {
                let mut states = states.borrow_mut();
                let at = states.iter().position(|state| state.machine == self.shared.id);
                let at = at.unwrap_or_else(|| {
                    states.push(State::new(self.shared.id));
                    states.len() - 1
                });
                work(&mut states[at])
            })
            .ok()
    }
}
