//! The methods of a driver, as data.

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Names the methods of [`Driver`](super::Driver), for messages, counters and fault
        /// injection.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Call {
            $($(#[$doc])* $name,)*
        }

        impl Call {
            /// Every call, in the order of their declaration; `Call::ALL[call as usize] == call`.
            pub const ALL: [Call; [$(Call::$name),*].len()] = [$(Call::$name),*];

            /// The call of that name, such as `"HostAlloc"`.
            #[must_use]
            pub fn named(name: &str) -> Option<Call> {
                match name { $(stringify!($name) => Some(Call::$name),)* _ => None }
            }
        }
    };
}

calls! {
    /// `cudaHostAlloc`
    HostAlloc,
    /// `cudaFreeHost`
    HostFree,
    /// `cudaHostRegister`
    HostRegister,
    /// `cudaHostUnregister`
    HostUnregister,
    /// `cudaMallocAsync`, `cudaMalloc`
    DeviceAlloc,
    /// `cudaFreeAsync`
    DeviceFree,
    /// `cudaMemcpyAsync` from host to device
    CopyH2D,
    /// `cudaMemcpyAsync` from device to host
    CopyD2H,
    /// `cuMemcpyBatchAsync`
    CopyBatch,
    /// `cudaMemcpyAsync` within a device
    CopyD2D,
    /// `cudaMemcpyPeerAsync`
    CopyPeer,
    /// `cudaStreamCreateWithPriority`
    StreamCreate,
    /// `cudaStreamDestroy`
    StreamDestroy,
    /// `cudaStreamQuery`
    StreamQuery,
    /// `cudaStreamSynchronize`
    StreamSynchronize,
    /// `cudaStreamWaitEvent`
    StreamWaitEvent,
    /// `cudaStreamIsCapturing`
    StreamCapture,
    /// `cudaEventCreateWithFlags`
    EventCreate,
    /// `cudaEventDestroy`
    EventDestroy,
    /// `cudaEventRecord`
    EventRecord,
    /// `cudaEventQuery`
    EventQuery,
    /// `cudaEventSynchronize`
    EventSynchronize,
    /// `cudaEventElapsedTime`
    EventElapsed,
    /// `cudaLaunchHostFunc`
    LaunchHost,
    /// `cudaDeviceCanAccessPeer`
    PeerQuery,
    /// `cudaDeviceEnablePeerAccess`
    PeerEnable,
    /// `cudaMemPoolSetAccess`
    PoolAccess,
    /// `cudaDeviceGetAttribute`, `cudaGetDeviceProperties`, and whether there are batches
    Attributes,
    /// `cudaMemGetInfo`
    MemoryInfo,
    /// A launch of the fill kernel
    Fill,
    /// A launch of the checksum kernel
    Checksum,
    /// A launch of the kernel that moves items
    MoveItems,
    /// A launch of the busy kernel
    Busy,
}
