//! A folder for files that are measured.

use std::ffi::CString;
use std::path::{Path, PathBuf};

/// The option that names the folder.
pub const OPTION: &str = "files";

/// A folder with room for a file of this size, in memory if possible.
pub fn with_room(named: Option<&str>, bytes: usize) -> Result<PathBuf, String> {
    let places = match named {
        Some(folder) => vec![PathBuf::from(folder)],
        None => vec![PathBuf::from("/dev/shm"), std::env::temp_dir()],
    };
    let roomy = |place: &&PathBuf| free_bytes(place) > bytes as u64 + (bytes as u64) / 8;
    let reason =
        || format!("no room for {bytes} bytes in {places:?}; name a folder with --{OPTION}");
    places.iter().find(roomy).cloned().ok_or_else(reason)
}

/// The free bytes of a folder; 0 if nothing can be written there.
fn free_bytes(folder: &Path) -> u64 {
    let Ok(path) = CString::new(folder.as_os_str().as_encoded_bytes()) else { return 0 };
    // SAFETY: the path is a C string. Zeroes are a valid `statvfs`, and the call may write it.
    unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        let written = libc::access(path.as_ptr(), libc::W_OK) == 0
            && libc::statvfs(path.as_ptr(), &mut system) == 0;
        if written { system.f_bavail * system.f_frsize } else { 0 }
    }
}
