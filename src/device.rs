//! Devices: opens a GPU or an emulated device, and has its methods.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;

use crate::context::Context;
use crate::copy::staged::{Engine, Staging};
use crate::driver::{self, DevicePtr, Driver, Ordinal, RawStream, StreamFlags};
use crate::error::{CudaCode, Error, ErrorKind, Refused, Remedy, Result};
use crate::memory::{
    DeviceBuf, Heap, HostMemory, PinnedSliceMut, ReadOnlyMemory, Registered, RegisteredReadOnly,
    Strides, aligned_pitch, counted, with_registered,
};
use crate::pool::{Builder, PinnedPool};
use crate::process::{FirstProcess, background};
use crate::sync::asymmetric::fences;
use crate::timeline::{Origin, Timeline};
use crate::trace::Recording;

#[cfg(pinlane_emulated)]
use crate::driver::emulated::Emulator;

/// A device: a GPU, or the emulated device. Cheap to clone; all clones are the same device.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<DeviceInner>,
}

pub(crate) struct DeviceInner {
    context: Arc<Context>,
    heap: Heap,
    /// For copies of pageable memory and for batches. The first one makes it.
    engine: OnceLock<Engine>,
    /// Why there is no GPU in its place.
    #[cfg(pinlane_emulated)]
    instead_of_gpu: OnceLock<Error>,
}

impl DeviceInner {
    pub(crate) fn engine(&self) -> Result<&Engine> {
        if self.engine.get().is_none() {
            // Another thread may have set it.
            let _ = self.engine.set(Engine::new(&self.context, Staging::new())?);
        }
        Ok(self.engine.get().expect("set above"))
    }
}

/// A device that [`Device::available`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The number to open it by.
    pub ordinal: Ordinal,
    /// The name as the vendor prints it.
    pub name: String,
}

/// How much memory a device has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes that are not allocated.
    pub free: usize,
    /// All bytes of the device.
    pub total: usize,
}

/// Why this build has no CUDA, from build.rs.
const WITHOUT_CUDA: &str = concat!("this build has no CUDA: ", env!("PINLANE_WITHOUT_CUDA"));

#[cfg(target_os = "linux")]
const WITH_CUDA: &str = "build again with the feature `cuda` and without PINLANE_CUDA=off, or use \
                         an emulated device";
#[cfg(not(target_os = "linux"))]
const WITH_CUDA: &str = "use devices on Linux only";

/// The CUDA runtime, unless this process was forked from one that has used it: reopening a device
/// there does not help (soundness rule 14).
fn cuda(operation: &'static str) -> Result<Arc<dyn Driver>> {
    static FIRST_USE: FirstProcess = FirstProcess::new();
    let driver = driver::cuda()
        .ok_or_else(|| Error::new(ErrorKind::NoDevice, operation, WITHOUT_CUDA, WITH_CUDA))?;
    if FIRST_USE.is_current() {
        fences(); // before CUDA has threads
        return Ok(driver);
    }
    let what = "this process was forked after CUDA was first used";
    let remedy = "use CUDA in the parent only, or exec a new program in the child";
    Err(Error::new(ErrorKind::ForkedProcess, operation, what, remedy))
}

/// Refuses the number of a device that the machine does not have. Its remedy differs from that for
/// GPUs: the program itself chooses how many devices an emulated machine has.
#[cfg(pinlane_emulated)]
pub(crate) fn check_ordinal(
    emulator: &Emulator,
    operation: &'static str,
    ordinal: Ordinal,
) -> Result<()> {
    let count = emulator.device_count();
    if usize::try_from(ordinal).is_ok_and(|number| number < count) {
        return Ok(());
    }
    let what = format!("there is no device {ordinal}: the machine has {count}");
    let error = Error::new(ErrorKind::NoDevice, operation, what, Remedy::BuildMoreDevices);
    Err(error.with_code(CudaCode::INVALID_DEVICE))
}

impl Device {
    /// Opens GPU number `ordinal`, counted from 0. Initialises CUDA, which can take a second.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoDevice`], which says what is missing: CUDA in this build, the driver, or the
    /// device. [`ErrorKind::ForkedProcess`] in a child of a process that has used CUDA.
    pub fn open(ordinal: Ordinal) -> Result<Device> {
        const OPERATION: &str = "Device::open";
        let driver = cuda(OPERATION)?;
        let count = count(&*driver, OPERATION)?;
        if !(0..count).contains(&ordinal) {
            let what = format!("there is no device {ordinal}: the driver sees {count}");
            return Err(Error::new(ErrorKind::NoDevice, OPERATION, what, Remedy::ChooseDevice));
        }
        Device::on(driver, ordinal)
    }

    /// The GPUs of this machine. Empty if there is no GPU, no driver, or no CUDA in this build, and
    /// in a forked child of a process that has used CUDA.
    #[must_use]
    pub fn available() -> Vec<DeviceInfo> {
        let Ok(driver) = cuda("Device::available") else { return Vec::new() };
        let count = driver.device_count().unwrap_or(0);
        let info = |ordinal| {
            let name = driver.device_name(ordinal).ok()?;
            Some(DeviceInfo { ordinal, name })
        };
        (0..count).filter_map(info).collect()
    }

    /// An emulated device, on a new machine of its own: real copies in real stream order, without a
    /// GPU. Build an [`Emulator`] for several devices, lazy execution or injected faults.
    ///
    /// # Errors
    ///
    /// None today; the signature is that of [`open`](Self::open).
    #[cfg(pinlane_emulated)]
    pub fn emulated() -> Result<Device> {
        Device::of_emulator(&Emulator::new(), 0)
    }

    /// Device number `ordinal` of an emulated machine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoDevice`] if the machine has fewer devices; injected faults.
    #[cfg(pinlane_emulated)]
    pub fn of_emulator(emulator: &Emulator, ordinal: Ordinal) -> Result<Device> {
        check_ordinal(emulator, "Device::of_emulator", ordinal)?;
        Device::on(emulator.driver(), ordinal)
    }

    /// The machine that an emulated device belongs to; `None` for a GPU.
    ///
    /// ```
    /// # use pinlane::Device;
    /// let device = Device::emulated()?;
    /// let machine = device.emulator().expect("an emulated device");
    /// assert_eq!((machine.findings().len(), machine.usage().device_bytes), (0, 0));
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    #[cfg(pinlane_emulated)]
    #[must_use]
    pub fn emulator(&self) -> Option<Emulator> {
        self.inner.context.emulator()
    }

    /// Whether the device is an emulated one of this process.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        #[cfg(pinlane_emulated)]
        return self.emulator().is_some();
        #[cfg(not(pinlane_emulated))]
        false
    }

    /// GPU 0 if there is one, otherwise an emulated device; its [`name`](Self::name) shows which,
    /// and [`instead_of_gpu`](Self::instead_of_gpu) says why.
    ///
    /// # Errors
    ///
    /// A GPU that exists but cannot be opened is an error, not a reason to emulate.
    #[cfg(pinlane_emulated)]
    pub fn open_or_emulated() -> Result<Device> {
        match Device::open(0) {
            Err(error) if error.kind() == ErrorKind::NoDevice => {
                let device = Device::emulated()?;
                let _ = device.inner.instead_of_gpu.set(error);
                Ok(device)
            }
            opened => opened,
        }
    }

    /// Why [`open_or_emulated`](Self::open_or_emulated) took an emulated device: the error of
    /// [`open`](Self::open), which says what is missing. `None` for any other device.
    #[cfg(pinlane_emulated)]
    #[must_use]
    pub fn instead_of_gpu(&self) -> Option<&Error> {
        self.inner.instead_of_gpu.get()
    }

    fn on(driver: Arc<dyn Driver>, ordinal: Ordinal) -> Result<Device> {
        #[cfg(pinlane_emulated)]
        driver::emulated::leave_out_lines();
        let context = Context::new(driver, ordinal)?;
        let allocations = create_stream(&context, StreamFlags::default())?;
        let frees = create_stream(&context, StreamFlags::default())?;
        let (heap, engine) = (Heap { allocations, frees }, OnceLock::new());
        let inner = DeviceInner {
            context,
            heap,
            engine,
            #[cfg(pinlane_emulated)]
            instead_of_gpu: OnceLock::new(),
        };
        Ok(Device { inner: Arc::new(inner) })
    }

    /// Prepares large copies of pageable memory and of files in advance, on an extra thread:
    /// page-locks the memory of [`Staging`] (32 MiB by default), and starts copy threads. Otherwise
    /// the first such copy waits for that. Returns at once, so the program can read a header or
    /// allocate device memory at the same time.
    ///
    /// Call [`set_staging`](Self::set_staging) before. If this fails, the first copy tries again
    /// and reports the error. If the process ends meanwhile, it waits for this first, for at most 2
    /// seconds. In a forked child this does nothing.
    pub fn warm_up(&self) {
        if !self.inner.context.is_current() {
            return;
        }
        let work = |inner: Arc<DeviceInner>| {
            if let Ok(engine) = inner.engine() {
                engine.warm_up(inner.context.ordinal());
            }
        };
        let _ = background::start("pinlane-warm-up", Arc::clone(&self.inner), work);
    }

    /// Records the work of this device in `recording` from now on: on all its streams, in its
    /// pools, and on helper threads. Several devices may share a recording. Blocks for a moment, to
    /// relate the device's clock to the host's.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) while another recording records it, and
    /// [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn record(&self, recording: &Recording) -> Result<()> {
        const OPERATION: &str = "Device::record";
        self.inner.context.check_process(OPERATION)?;
        recording.recorder.check_process(OPERATION)?;
        let context = &self.inner.context;
        // Before there is work to record. In a host function the first work makes it.
        if context.driver(OPERATION).is_ok() {
            let stream = context.stream(RawStream::LEGACY);
            recording.recorder.make_clock(context.shared_driver(), stream);
        }
        if context.recording.set(&recording.recorder) {
            return Ok(());
        }
        let what = format!("device {} is being recorded", self.ordinal());
        Err(Error::invalid(OPERATION, what, "stop the other recording first, or use that one"))
    }

    /// The device's number.
    #[must_use]
    pub fn ordinal(&self) -> Ordinal {
        self.inner.context.ordinal()
    }

    /// The device's name as the vendor prints it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.context.name()
    }

    /// Free and total memory (`cudaMemGetInfo`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceLost`], [`ErrorKind::ForkedProcess`].
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let context = &self.inner.context;
        let info = context.driver("Device::memory_info")?.memory_info(context.ordinal());
        let failed = |code| context.error(code, "cudaMemGetInfo", "asking for memory");
        let (free, total) = info.map_err(failed)?;
        Ok(MemoryInfo { free, total })
    }

    /// Bytes that are never freed because the device failed: when their buffer was dropped, its
    /// last use could not be proven complete. Counts device memory, memory given to
    /// [`register`](Self::register), and the memory of deleted tensors ([`dlpack`](crate::dlpack)).
    #[must_use]
    pub fn quarantined_bytes(&self) -> usize {
        self.inner.context.quarantined()
    }

    /// How many streams this crate has created on the device and not destroyed yet: streams that
    /// the program holds, streams that a live buffer may still have to wait for, and a few internal
    /// streams.
    #[must_use]
    pub fn live_streams(&self) -> usize {
        self.inner.context.live_streams.load(Ordering::Relaxed)
    }

    /// Allocates `len` elements of device memory. The contents are unspecified. Does not wait for
    /// the device: the allocation is made in stream order (`cudaMallocAsync`), or, before anything
    /// is freed on the device, by `cudaMalloc`, which is faster there. (The first buffer that is
    /// dropped makes CUDA's pool, which takes some milliseconds.) Only if memory is short does it
    /// wait, for dropped memory that is still in use.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfDeviceMemory`]; [`ErrorKind::InvalidValue`] if the size overflows.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuf<T>> {
        DeviceBuf::alloc(&self.inner.heap, len)
    }

    /// Allocates `rows` rows of `row` elements, each of which begins at a multiple of 256 bytes, as
    /// many kernels want it. Also gives where they lie, for
    /// [`Strided::new`](crate::Strided::new). Otherwise as [`alloc`](Self::alloc).
    ///
    /// ```
    /// use pinlane::{Device, Strided};
    ///
    /// let device = Device::open_or_emulated()?;
    /// let (mut gpu, lines) = device.alloc_pitched::<f32>(100, 30)?; // 30 rows of 100 numbers
    /// assert_eq!(lines.pitch, 128); // 512 bytes
    /// let host = vec![1.0f32; 100 * 30];
    /// device.stream()?.upload_strided(&host, Strided::new(gpu.as_slice_mut(), lines)?)?;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_pitched<T: Pod>(
        &self,
        row: usize,
        rows: usize,
    ) -> Result<(DeviceBuf<T>, Strides)> {
        let pitch = aligned_pitch::<T>(row);
        let Some((pitch, len)) = pitch.and_then(|pitch| Some((pitch, pitch.checked_mul(rows)?)))
        else {
            let what = format!("{rows} rows of {} are too many", counted::<T>(row));
            return Err(Error::invalid("Device::alloc_pitched", what, "ask for less"));
        };
        Ok((self.alloc(len)?, Strides::new(row, rows, pitch)))
    }

    /// Borrows `len` elements of device memory that other code allocated. Copies to and from it are
    /// tracked. Dropping the buffer does not free the memory.
    ///
    /// # Safety
    ///
    /// * `ptr .. ptr + len * size_of::<T>()` lies in one allocation on this device, aligned for
    ///   `T`.
    /// * It stays allocated until every operation enqueued through the buffer is complete.
    /// * Work on it that was enqueued elsewhere before this call is complete, or is ordered before
    ///   the streams that the buffer is used on.
    /// * The caller orders work on it that is enqueued elsewhere after this call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidValue`] if the size overflows.
    pub unsafe fn borrow_memory<T: Pod>(&self, ptr: DevicePtr, len: usize) -> Result<DeviceBuf<T>> {
        DeviceBuf::borrowed(self.context(), ptr, len)
    }

    /// Page-locks memory that exists already, for all devices of the process (`cudaHostRegister`).
    /// Blocks for about as long as an allocation of page-locked memory of that size. For memory of
    /// zero bytes it returns at once.
    ///
    /// # Errors
    ///
    /// Every error gives the owner back:
    ///
    /// * [`InvalidValue`](crate::ErrorKind::InvalidValue) if some of the memory is page-locked
    ///   already, or cannot be page-locked: mappings for reading only, which
    ///   [`register_read_only`](Self::register_read_only) takes;
    /// * [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory);
    /// * [`ForkedProcess`](crate::ErrorKind::ForkedProcess);
    /// * [`Unsupported`](crate::ErrorKind::Unsupported) inside a host function.
    pub fn register<O: HostMemory>(&self, owner: O) -> Result<Registered<O>, Refused<O>> {
        Registered::new(self.context(), owner)
    }

    /// Page-locks memory that nothing changes, for all devices of the process, as a source of
    /// uploads (`cudaHostRegister` with `cudaHostRegisterReadOnly`). The memory may be mapped for
    /// reading only, such as a file or a static. Blocks for about as long as
    /// [`register`](Self::register); for memory of zero bytes it returns at once.
    ///
    /// Each upload then takes the bytes from where they lie, and no thread of the host copies them.
    /// Registering pays if the same memory is uploaded about three times or more
    /// (docs/guide/pinned-memory.md).
    ///
    /// ```
    /// # use pinlane::Device;
    /// use std::sync::Arc;
    ///
    /// let device = Device::open_or_emulated()?;
    /// let stream = device.stream()?;
    /// let weights: Arc<[f32]> = vec![1.0; 10_000].into();
    /// let registered = device.register_read_only(weights.clone())?;
    /// let mut gpu = device.alloc::<f32>(10_000)?;
    /// stream.upload(&registered, &mut gpu)?; // returns at once
    /// assert_eq!((registered[7], weights[7]), (1.0, 1.0)); // does not wait for the upload
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// A device without `cudaDevAttrHostRegisterReadOnlySupported` registers memory that is mapped
    /// writable, and refuses other memory: upload that as a plain slice.
    ///
    /// # Errors
    ///
    /// Every error gives the owner back:
    ///
    /// * [`Unsupported`](crate::ErrorKind::Unsupported) if the memory is mapped for reading only
    ///   and this device cannot register such memory; or inside a host function;
    /// * [`InvalidValue`](crate::ErrorKind::InvalidValue) if some of the memory is page-locked
    ///   already, or cannot be page-locked: memory of a device, for example;
    /// * [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory);
    /// * [`ForkedProcess`](crate::ErrorKind::ForkedProcess).
    pub fn register_read_only<O: ReadOnlyMemory>(
        &self,
        owner: O,
    ) -> Result<RegisteredReadOnly<O>, Refused<O>> {
        RegisteredReadOnly::new("Device::register_read_only", self.context(), owner)
    }

    /// Page-locks a slice while `work` runs. `work` gets the slice as a view for copies. The call
    /// blocks to page-lock the slice, as [`register`](Self::register) does. At the end, even if
    /// `work` panics, it blocks until the device is done with the slice.
    ///
    /// ```
    /// # use pinlane::Device;
    /// let device = Device::open_or_emulated()?;
    /// let stream = device.stream()?;
    /// let mut gpu = device.alloc::<u32>(1000)?;
    /// let mut values = vec![7; 1000];
    /// device.with_registered(&mut values, |view| stream.upload(view.as_slice(), &mut gpu))??;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Aborts
    ///
    /// Aborts the process if a copy may still be running and every way to wait for it fails, for
    /// example because the device is lost. The device may then still write to the slice, and on
    /// return the slice would belong to the caller again. If memory must survive the loss of a
    /// device, give it to [`register`](Self::register), which keeps it.
    ///
    /// # Errors
    ///
    /// The errors of [`register`](Self::register); `work` was then not called. If the runtime fails
    /// to unregister the slice, `work` was called and its result is dropped. The slice can then be
    /// used, but not be registered again.
    pub fn with_registered<T: Pod, R>(
        &self,
        slice: &mut [T],
        work: impl FnOnce(PinnedSliceMut<'_, T>) -> R,
    ) -> Result<R> {
        with_registered(self.context(), slice, work)
    }

    /// Sets how copies of pageable memory are staged on this device, for all clones of the handle.
    /// Allocates nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) for sizes that do not make a ring, and after the
    /// first such copy; [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn set_staging(&self, options: Staging) -> Result<()> {
        options.check()?;
        let engine = Engine::new(self.context(), options)?;
        self.inner.engine.set(engine).map_err(|_| {
            let remedy = "set the options right after the device is opened";
            Error::invalid("Device::set_staging", "pageable memory has been copied already", remedy)
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }
}

impl PinnedPool {
    /// Options for a pool of `device`.
    pub fn builder(device: &Device) -> Builder {
        Builder::new(device.context())
    }
}

fn count(driver: &dyn Driver, operation: &'static str) -> Result<Ordinal> {
    driver.device_count().map_err(|code| {
        let version = |number: i32| format!("{}.{}", number / 1000, number % 1000 / 10);
        let what = match (code, driver.versions()) {
            (CudaCode::STUB_LIBRARY, _) => "no NVIDIA driver was found".to_owned(),
            (CudaCode::NO_DEVICE, _) => "the driver sees no device".to_owned(),
            (_, Ok((0, _))) => "no NVIDIA driver is installed".to_owned(),
            (CudaCode::INSUFFICIENT_DRIVER, Ok((installed, needed))) => format!(
                "the NVIDIA driver is for CUDA {}, and this build needs {}",
                version(installed),
                version(needed)
            ),
            _ => "the driver does not start".to_owned(),
        };
        Error::cuda(code, operation, what)
    })
}

pub(crate) fn create_stream(context: &Arc<Context>, flags: StreamFlags) -> Result<Arc<Timeline>> {
    let raw = context
        .driver("Device::stream")?
        .stream_create(context.ordinal(), flags)
        .map_err(|code| context.error(code, "cudaStreamCreateWithPriority", "creating a stream"))?;
    Ok(Timeline::new(context.clone(), raw, Origin::Owned { blocking: flags.blocking }, None))
}

/// A default or foreign stream: its handle is known outside the crate from the start.
/// `owner` keeps a foreign one alive.
pub(crate) fn adopt_stream(
    context: &Arc<Context>,
    handle: usize,
    owner: Option<Box<dyn Send + Sync>>,
) -> Arc<Timeline> {
    let origin = match handle {
        RawStream::PER_THREAD => Origin::PerThread(std::thread::current().id()),
        _ => Origin::Foreign,
    };
    Timeline::new(context.clone(), context.stream(handle), origin, owner)
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("ordinal", &self.ordinal())
            .field("name", &self.name())
            .finish()
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.ordinal() == other.ordinal() && self.context().same_driver(other.context())
    }
}

impl Eq for Device {}
