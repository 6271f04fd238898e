//! The ceiling: bare calls of the runtime.

use std::ptr::NonNull;
use std::sync::Arc;

use pinlane::driver::{DevicePtr, Driver, HostFlags, RawStream, cuda};
use pinlane::emulated::Emulator;
use pinlane::{Device, DeviceBuf, Result, Stream};

use super::cuda::{self, Way};

/// Calls that go to one stream.
pub struct Bare {
    /// A separate stream, because an exposed stream makes more checks in each tracked call.
    stream: Stream,
    runtime: Runtime,
}

#[derive(Clone)]
enum Runtime {
    Cuda,
    Emulated { machine: Emulator, driver: Arc<dyn Driver> },
}

/// GPU 0, or the first of two emulated devices, and the runtime's own calls to it.
pub fn open() -> Result<(Device, Bare)> {
    let (device, runtime) = if Device::available().is_empty() {
        // The search for races would take longer than the measured work.
        let machine = Emulator::builder().devices(2).memory_bytes(16 << 30).races(false).build();
        let driver = machine.driver();
        (Device::of_emulator(&machine, 0)?, Runtime::Emulated { machine, driver })
    } else {
        (Device::open(0)?, Runtime::Cuda)
    };
    let stream = device.stream()?;
    Ok((device, Bare { stream, runtime }))
}

impl Bare {
    /// The name of a reference that is one of these calls: `cuda` on a GPU.
    pub fn name(&self, cuda: &'static str) -> &'static str {
        match self.runtime {
            Runtime::Cuda => cuda,
            Runtime::Emulated { .. } => "the emulated driver's own call",
        }
    }

    pub fn is_emulated(&self) -> bool {
        matches!(self.runtime, Runtime::Emulated { .. })
    }

    /// The same calls on another stream. `device` belongs to this runtime.
    pub fn another(&self, device: &Device) -> Result<Bare> {
        Ok(Bare { stream: device.stream()?, runtime: self.runtime.clone() })
    }

    /// The machine's second device, if it has one.
    pub fn second_device(&self) -> Option<Result<Device>> {
        match &self.runtime {
            Runtime::Cuda => (Device::available().len() > 1).then(|| Device::open(1)),
            Runtime::Emulated { machine, .. } => Some(Device::of_emulator(machine, 1)),
        }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The driver below the seam, for work that is not measured.
    pub fn driver(&self) -> Arc<dyn Driver> {
        match &self.runtime {
            Runtime::Cuda => cuda().expect("a GPU was opened with it"),
            Runtime::Emulated { driver, .. } => Arc::clone(driver),
        }
    }

    /// Device memory whose allocation is complete, so that every stream may use it at once. Zeroes.
    pub fn device_memory(&self, device: &Device, bytes: usize) -> Result<DeviceBuf<u8>> {
        let mut memory = device.alloc::<u8>(bytes)?;
        self.stream.fill(&mut memory, 0)?.wait()?;
        Ok(memory)
    }

    /// The emulated machine, if that is what runs.
    pub fn emulator(&self) -> Option<Emulator> {
        match &self.runtime {
            Runtime::Cuda => None,
            Runtime::Emulated { machine, .. } => Some(machine.clone()),
        }
    }

    /// The stream, for calls at the driver's seam.
    pub fn raw(&self) -> RawStream {
        RawStream { device: self.stream.device_ordinal(), handle: self.stream.as_raw().addr() }
    }

    /// # Safety
    ///
    /// * Both ranges are allocated and idle, and stay so until [`synchronize`](Self::synchronize).
    /// * The host's range is page-locked.
    #[inline]
    pub unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize) {
        match &self.runtime {
            // SAFETY: the caller's preconditions; the stream is live.
            Runtime::Cuda => unsafe {
                cuda::copy(to as *mut u8, from, bytes, Way::H2D, &self.stream);
            },
            Runtime::Emulated { driver, .. } => {
                // SAFETY: as above.
                let copied = unsafe { driver.copy_h2d(self.raw(), to, from, bytes) };
                copied.expect("the emulated device copies");
            }
        }
    }

    /// # Safety
    ///
    /// * As for [`upload`](Self::upload).
    #[inline]
    pub unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize) {
        match &self.runtime {
            // SAFETY: the caller's preconditions; the stream is live.
            Runtime::Cuda => unsafe {
                cuda::copy(to, from as *const u8, bytes, Way::D2H, &self.stream);
            },
            Runtime::Emulated { driver, .. } => {
                // SAFETY: as above.
                let copied = unsafe { driver.copy_d2h(self.raw(), to, from, bytes) };
                copied.expect("the emulated device copies");
            }
        }
    }

    /// Copies between devices; each address is followed by its device.
    ///
    /// # Safety
    ///
    /// * As for [`upload`](Self::upload), except that no range is on the host.
    /// * Each range is on the device that follows its address.
    pub unsafe fn copy_peer(&self, to: (DevicePtr, i32), from: (DevicePtr, i32), bytes: usize) {
        match &self.runtime {
            Runtime::Cuda => {
                let (to, from) = ((to.0 as *mut u8, to.1), (from.0 as *const u8, from.1));
                // SAFETY: the caller's preconditions; the stream is live.
                unsafe { cuda::copy_peer(to, from, bytes, &self.stream) };
            }
            Runtime::Emulated { driver, .. } => {
                // SAFETY: as above.
                let copied =
                    unsafe { driver.copy_peer(self.raw(), to.0, to.1, from.0, from.1, bytes) };
                copied.expect("the emulated device copies");
            }
        }
    }

    /// Page-locked memory for every device.
    pub fn host_alloc(&self, bytes: usize) -> NonNull<u8> {
        match &self.runtime {
            Runtime::Cuda => cuda::host_alloc(bytes),
            Runtime::Emulated { driver, .. } => {
                let flags = HostFlags { portable: true, ..HostFlags::default() };
                driver.host_alloc(0, bytes, flags).expect("the emulated machine has memory")
            }
        }
    }

    /// # Safety
    ///
    /// * `ptr` came from [`host_alloc`](Self::host_alloc), is idle and is not used afterwards.
    pub unsafe fn host_free(&self, ptr: NonNull<u8>) {
        match &self.runtime {
            // SAFETY: the caller's precondition.
            Runtime::Cuda => unsafe { cuda::host_free(ptr) },
            Runtime::Emulated { driver, .. } => {
                // SAFETY: the caller's precondition; a benchmark runs no host functions.
                unsafe { driver.host_free(ptr) }.expect("the emulated device frees");
            }
        }
    }

    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }
}
