//! Files and devices for the tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, ErrorKind, file::FileReader, staging::Staging};

/// Small slots, so that the tests meet every boundary.
pub const SLOT: usize = 4096;

/// Slots that hold several blocks of a file, so that they are read in place.
pub const LARGE_SLOT: usize = 32 << 10;

pub fn emulator(execution: Execution) -> Emulator {
    Emulator::builder().execution(execution).seed(7).build()
}

pub fn device(emulator: &Emulator, slot: usize) -> Device {
    let device = Device::of_emulator(emulator, 0).expect("an emulated device");
    let staging = Staging::new().slot_bytes(slot).ring_bytes(3 * slot).first_bytes(slot / 4);
    device.set_staging(staging.unit_bytes(slot / 4).direct_bytes(100)).expect("nothing copied yet");
    device
}

/// Bytes without a short period.
pub fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i * i % 65_521 % 251) as u8).collect()
}

/// A file in the temporary folder, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(bytes: &[u8]) -> Scratch {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pinlane-files-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("the temporary folder takes files");
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Readers through the page cache, and direct ones if the file system of the temporary folder
    /// supports them.
    pub fn readers(&self) -> Vec<FileReader> {
        let mut readers = vec![FileReader::open(&self.0).expect("just written")];
        match FileReader::open_direct(&self.0) {
            Ok(direct) => readers.push(direct),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
        readers
    }

    /// The same, and one that has the file mapped.
    pub fn all_readers(&self, device: &Device) -> Vec<FileReader> {
        let mapped = FileReader::open_mapped(device, &self.0).expect("room");
        assert!(mapped.is_mapped());
        self.readers().into_iter().chain([mapped]).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
