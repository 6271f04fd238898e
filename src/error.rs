//! Errors: what failed, in which call, and what to do about it.
//!
//! Every fallible function of the crate returns [`Error`]. It is one pointer wide, so a `Result`
//! costs the hot path nothing. It carries a [`kind`](Error::kind) to match on, the
//! [CUDA code](Error::cuda_code) if the runtime reported one, the [operation](Error::operation)
//! that failed, and a message that names sizes, devices and the remedy.

mod remedy;

use std::fmt;
use std::sync::Arc;

pub(crate) use self::remedy::Remedy;
#[doc(inline)]
pub use pinlane_driver::CudaCode;

/// The result of a pinlane call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an [`Error`], to match on. Its number is the status of such a call in C.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is outside what the function accepts.
    InvalidValue = 1,
    /// Two sides of a copy, or a slice and its buffer, do not have the same number of elements.
    LengthMismatch = 2,
    /// A range does not lie inside its buffer.
    OutOfRange = 3,
    /// The device still uses the buffer. Only the `try_*` functions return this; others wait.
    NotReady = 4,
    /// The pool's budget is spent, and there is no block in flight to wait for.
    BudgetExhausted = 5,
    /// The wait did not end in time.
    TimedOut = 19,
    /// The system cannot page-lock more memory.
    OutOfHostMemory = 6,
    /// The device is out of memory.
    OutOfDeviceMemory = 7,
    /// No usable device: no toolkit at build time, no driver, no GPU, or no GPU with that number.
    NoDevice = 8,
    /// The operation is not supported by this build, device or stream.
    Unsupported = 9,
    /// Objects of different drivers (two emulators, or an emulator and a GPU) were mixed.
    WrongDevice = 10,
    /// The per-thread default stream was used from a thread other than the one that opened it.
    WrongThread = 11,
    /// The stream is being captured into a graph, where pooled copies are not allowed.
    StreamCapturing = 12,
    /// The process is a forked child of the one that opened the device.
    ForkedProcess = 13,
    /// The device is lost: a sticky CUDA error; every later call on it fails until the process
    /// ends.
    DeviceLost = 14,
    /// Two threads used one buffer in conflicting ways through the C interface.
    Busy = 15,
    /// A handle given to the C interface is NULL, stale, freed or of another type.
    InvalidHandle = 16,
    /// A panic was caught at the C boundary.
    Panic = 17,
    /// A file could not be opened or read, or ended early.
    Io = 20,
    /// The program's own code that produces batches for prefetching failed. Its error is the
    /// source.
    Producer = 22,
    /// There are no more batches. Only the C interface returns this.
    End = 21,
    /// The call was withdrawn. Only the C interface returns this.
    Cancelled = 23,
    /// Any other failure that the CUDA runtime reported; see [`Error::cuda_code`].
    Cuda = 18,
}

/// A failed pinlane call.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    cuda: Option<CudaCode>,
    operation: &'static str,
    context: Found,
    remedy: Remedy,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What failed, in words. Some errors are frequent and seldom read, such as
/// [`ErrorKind::NotReady`]: their text is formatted on demand.
#[derive(Clone)]
pub(crate) enum Found {
    Known(&'static str),
    Made(String),
    Numbers(fn([usize; 2]) -> String, [usize; 2]),
    Later(Arc<dyn fmt::Display + Send + Sync>),
}

impl From<&'static str> for Found {
    fn from(text: &'static str) -> Self {
        Found::Known(text)
    }
}

impl From<String> for Found {
    fn from(text: String) -> Self {
        Found::Made(text)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Known(text) => f.write_str(text),
            Found::Made(text) => f.write_str(text),
            Found::Numbers(text, numbers) => f.write_str(&text(*numbers)),
            Found::Later(text) => fmt::Display::fmt(text, f),
        }
    }
}

impl Error {
    /// An error that this crate detects. `context` says what it found, `remedy` what to do.
    #[cold]
    pub(crate) fn new(
        kind: ErrorKind,
        operation: &'static str,
        context: impl Into<Found>,
        remedy: impl Into<Remedy>,
    ) -> Self {
        let (context, remedy) = (context.into(), remedy.into());
        Error(Box::new(Inner { kind, cuda: None, operation, context, remedy, source: None }))
    }

    /// An error that the CUDA runtime (or the emulated device) reported for `operation`.
    /// The caller passed what the call does not accept.
    #[cold]
    pub(crate) fn invalid(
        operation: &'static str,
        context: impl Into<Found>,
        remedy: impl Into<Remedy>,
    ) -> Self {
        Error::new(ErrorKind::InvalidValue, operation, context, remedy)
    }

    #[cold]
    pub(crate) fn cuda(code: CudaCode, operation: &'static str, context: impl Into<Found>) -> Self {
        let (kind, remedy) = classify(code);
        Error::new(kind, operation, context, remedy).with_code(code)
    }

    /// The same error, with its source.
    #[cold]
    pub(crate) fn with_source(mut self, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error, with `operation` as the failed call.
    #[cfg(feature = "capi")]
    pub(crate) fn of_operation(mut self, operation: &'static str) -> Self {
        self.0.operation = operation;
        self
    }

    /// The same error, with the code of the CUDA runtime that caused it. For errors whose kind and
    /// remedy are more precise than those that [`cuda`](Self::cuda) finds for the code.
    #[cold]
    pub(crate) fn with_code(mut self, code: CudaCode) -> Self {
        self.0.cuda = Some(code);
        self
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The code that the CUDA runtime returned, if the runtime failed.
    #[must_use]
    pub fn cuda_code(&self) -> Option<CudaCode> {
        self.0.cuda
    }

    /// The call that failed: a pinlane function or a CUDA runtime function.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// What to do about it, in one sentence.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        self.0.remedy.in_rust()
    }

    /// Whether its text was formatted when the error was made, and not on demand.
    #[cfg(all(test, feature = "capi", feature = "emulated"))]
    pub(crate) fn has_text(&self) -> bool {
        matches!(self.0.context, Found::Made(_))
    }

    /// What was found, and what to do about it, for messages in another programming language.
    #[cfg(feature = "capi")]
    pub(crate) fn context_and_remedy(&self) -> (&Found, Remedy) {
        (&self.0.context, self.0.remedy)
    }
}

fn classify(code: CudaCode) -> (ErrorKind, Remedy) {
    let (kind, remedy) = match code {
        CudaCode::NO_DEVICE | CudaCode::INVALID_DEVICE => {
            return (ErrorKind::NoDevice, Remedy::ListDevices);
        }
        CudaCode::MEMORY_ALLOCATION => {
            (ErrorKind::OutOfDeviceMemory, "free buffers on that device, or allocate fewer bytes")
        }
        CudaCode::INSUFFICIENT_DRIVER => (
            ErrorKind::NoDevice,
            "install an NVIDIA driver, as new as the CUDA that this binary was built for (a \
             container needs the host's: --gpus all), or use an emulated device",
        ),
        CudaCode::STUB_LIBRARY => (
            ErrorKind::NoDevice,
            "the libcuda.so.1 that was found is the toolkit's stub, for linking only: take its \
             folder out of LD_LIBRARY_PATH",
        ),
        CudaCode::STREAM_CAPTURE_UNSUPPORTED
        | CudaCode::STREAM_CAPTURE_INVALIDATED
        | CudaCode::STREAM_CAPTURE_IMPLICIT
        | CudaCode::CAPTURED_EVENT => (
            ErrorKind::StreamCapturing,
            "end the graph capture first, or use a stream that is not part of it",
        ),
        CudaCode::NOT_PERMITTED => (
            ErrorKind::Unsupported,
            "CUDA calls are forbidden inside a host function: hand the work to another thread",
        ),
        CudaCode::NOT_SUPPORTED => {
            (ErrorKind::Unsupported, "use a device and a driver that support this call")
        }
        code if code.is_sticky() => (
            ErrorKind::DeviceLost,
            "the CUDA context is corrupted: end the process; run it under compute-sanitizer to \
             find the faulty kernel",
        ),
        _ => (
            ErrorKind::Cuda,
            "look the code up in the CUDA Runtime API documentation, section cudaError",
        ),
    };
    (kind, remedy.into())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { cuda, operation, context, remedy, .. } = &*self.0;
        write!(f, "{operation}: {context}")?;
        if let Some(code) = cuda {
            write!(f, ": {code}")?;
        }
        write!(f, "; {}", remedy.in_rust())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &format_args!("{self}"))
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The error of a call that took a value, with the value. `?` turns it into an [`Error`].
pub struct Refused<V> {
    /// The value that the call was given.
    pub value: V,
    /// Why the call failed.
    pub error: Error,
}

impl<V> From<Refused<V>> for Error {
    fn from(refused: Refused<V>) -> Self {
        refused.error
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<V> std::error::Error for Refused<V> {}
