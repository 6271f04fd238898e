//! Costs as measured on this machine, kept in a file.
//!
//! Plans are made by costs ([`machine`](super::machine)). The defaults are those of one kind of
//! machine; [`Device::calibrate`] measures those of this one, in less than a second, and writes
//! them to a [`file`], where every process that opens such a device finds them. Nothing is measured
//! without being asked for.
//!
//! `docs/calibration.md` documents the file, where it lies, and `PINLANE_CALIBRATION`, which names
//! another or switches it off.

mod file;
mod measure;

use std::fmt;
use std::path::PathBuf;

use self::file::Place;
use super::machine::Costs;
use super::staging::Engine;
use crate::context::Context;
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "Device::calibrate";

/// The costs by which plans are made on a device; from [`Device::calibrate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    costs: Costs,
    /// Where it was written to.
    path: Option<PathBuf>,
}

impl Calibration {
    /// The costs by name: times in microseconds, rates in bytes a microsecond (1000 are 1 GB/s),
    /// `threads` a number. `docs/calibration.md` says what each is.
    #[must_use]
    pub fn costs(&self) -> Vec<(&'static str, f64)> {
        self.costs.values()
    }

    /// The file that they were written to; `None` if `PINLANE_CALIBRATION` is `off`, or no folder
    /// for it is known.
    #[must_use]
    pub fn path(&self) -> Option<&std::path::Path> {
        self.path.as_deref()
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&file::section(&self.costs))
    }
}

impl Device {
    /// Measures what copies cost on this machine and device, plans by it from now on, and writes it
    /// to a file that later processes read. Blocks for less than a second on an idle machine; takes
    /// 64 MiB of device memory and of page-locked memory meanwhile, and 256 MiB of ordinary memory.
    /// Best on an idle machine, once.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::upload_batch`](crate::Stream::upload_batch);
    /// [`OutOfHostMemory`](ErrorKind::OutOfHostMemory): nothing was measured. [`Io`](ErrorKind::Io)
    /// if the file cannot be written, or is no regular file: the costs are in use all the same.
    pub fn calibrate(&self) -> Result<Calibration> {
        let stream = self.stream()?;
        let engine = Engine::of(&stream)?;
        engine.machine(&stream, OPERATION)?;
        let costs = measure::measure(self, &stream, engine)?;
        engine.set_costs(costs);
        let context = self.context();
        let driver = context.driver(OPERATION)?;
        let Place::At(path) = Place::of_process() else {
            return Ok(Calibration { costs, path: None });
        };
        file::write(&path, &identity(context, driver), &costs).map_err(|error| {
            Error::new(
                ErrorKind::Io,
                OPERATION,
                format!("{}: {error}", path.display()),
                "set PINLANE_CALIBRATION to a regular file that can be written, or to off",
            )
        })?;
        Ok(Calibration { costs, path: Some(path) })
    }
}

/// The costs for a device: those of the file, or the defaults.
pub(super) fn load(context: &Context, driver: &dyn Driver) -> Costs {
    let Place::At(path) = Place::of_process() else { return Costs::DEFAULT };
    file::read(&path, &identity(context, driver)).unwrap_or(Costs::DEFAULT)
}

/// What the costs depend on. A file has a section for each.
fn identity(context: &Context, driver: &dyn Driver) -> String {
    let (version, _) = driver.versions().unwrap_or((0, 0));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    format!("{} | driver {version} | {cores} cores", context.name())
}
