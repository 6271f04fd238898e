//! Which device a command works on.

use std::str::FromStr;

use pinlane::emulated::Emulator;
use pinlane::{Device, ErrorKind};

use crate::error::Result;

/// What every output of the emulated device says.
pub const EMULATED: &str = "emulated device: says nothing about speed";

/// The device that the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// GPU 0 if there is one, else the emulated device.
    Any,
    Gpu(i32),
    Emulated,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match (text, text.parse()) {
            ("any", _) => Ok(Choice::Any),
            ("emulated", _) => Ok(Choice::Emulated),
            (_, Ok(ordinal)) if ordinal >= 0 => Ok(Choice::Gpu(ordinal)),
            _ => Err("give a GPU's number, or emulated".into()),
        }
    }
}

/// Opens the device. A GPU that is there but cannot be opened is an error.
pub fn open(choice: Choice) -> Result<Device> {
    match choice {
        Choice::Gpu(ordinal) => Ok(Device::open(ordinal)?),
        Choice::Emulated => emulated(),
        Choice::Any => match Device::open(0) {
            Err(error) if error.kind() == ErrorKind::NoDevice => emulated(),
            opened => Ok(opened?),
        },
    }
}

/// An emulated device that does not look for races, which would take most of the time.
fn emulated() -> Result<Device> {
    let machine = Emulator::builder().memory_bytes(16 << 30).races(false).build();
    Ok(Device::of_emulator(&machine, 0)?)
}
