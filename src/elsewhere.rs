//! On other systems than Linux there is no device, and no module `emulated`. Programs for several
//! systems compile, and get an error.

use crate::device::Device;
use crate::error::{Error, Result};

impl Device {
    /// An emulated device.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](crate::ErrorKind::NoDevice): there are devices on Linux only.
    pub fn emulated() -> Result<Device> {
        Device::open(0)
    }

    /// GPU 0 if there is one, otherwise an emulated device.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](crate::ErrorKind::NoDevice): there are devices on Linux only.
    pub fn open_or_emulated() -> Result<Device> {
        Device::open(0)
    }

    /// Why [`open_or_emulated`](Self::open_or_emulated) took an emulated device.
    #[must_use]
    pub fn instead_of_gpu(&self) -> Option<&Error> {
        None
    }
}
