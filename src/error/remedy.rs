//! What to do about an error.

/// What to do about an error. A message must not name functions of another language, so a remedy
/// that names functions is a key: its Rust text is here, its C text in `capi/remedy.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The same text in every language, without names of functions.
    Words(&'static str),
    ListDevices,
    ChooseDevice,
    #[cfg_attr(not(pinlane_emulated), allow(dead_code))]
    BuildMoreDevices,
    OpenOnItsThread,
    ViewsOfEqualLength,
    WaitWithoutWatcher,
    AllocThatWaits,
    MakeRoom,
    MakeNewPool,
    MakeRoomSooner,
    ReadThroughPageCache,
    LookAtProducer,
    PageLockable,
    NoReadOnly,
    LaunchForeign,
}

impl From<&'static str> for Remedy {
    fn from(words: &'static str) -> Self {
        Remedy::Words(words)
    }
}

impl Remedy {
    pub(super) fn in_rust(self) -> &'static str {
        use Remedy::*;
        match self {
            Words(words) => words,
            ListDevices => "list the devices with Device::available(), or use Device::emulated()",
            ChooseDevice => {
                "choose one that Device::available() lists, and look at CUDA_VISIBLE_DEVICES"
            }
            BuildMoreDevices => {
                "name one from 0 on, or build the machine with more: emulated::Builder::devices"
            }
            OpenOnItsThread => "call Device::per_thread_stream() on the thread that uses it",
            ViewsOfEqualLength => {
                "copy between views of equal length: buffer.slice(range), buffer.slice_mut(range)"
            }
            WaitWithoutWatcher => "raise the limit on threads and poll again, or use Ticket::wait",
            AllocThatWaits => {
                "try again when buffers have been dropped, or call alloc, which grows and waits"
            }
            MakeRoom => {
                "drop buffers, wait for that with alloc_timeout, or build the pool with a larger \
                 max_bytes"
            }
            MakeNewPool => {
                "quarantined memory never comes back: build a new pool, or one with a larger \
                 max_bytes"
            }
            MakeRoomSooner => {
                "drop buffers sooner, wait longer, or build the pool with a larger max_bytes"
            }
            ReadThroughPageCache => "read the file by way of the page cache: FileReader::open",
            PageLockable => {
                "register what is mapped for reading only with Device::register_read_only; map \
                 files for writing with MAP_PRIVATE, or copy the data to a buffer of a pool"
            }
            NoReadOnly => {
                "this device cannot page-lock what is mapped for reading only \
                 (cudaDevAttrHostRegisterReadOnlySupported): upload it as a plain slice, or map \
                 files for writing with MAP_PRIVATE"
            }
            LookAtProducer => "look at the error's source, which is the producer's own",
            LaunchForeign => "launch it by Graph::launch_foreign; to change buffers, capture again",
        }
    }
}
