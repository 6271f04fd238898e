//! A safetensors file. The header is read and checked when the file is opened, the tensors later.
//!
//! ```text
//!   | length of the header: u64 | header: JSON | tensor | tensor | ... |
//! ```
//!
//! # Invariants
//!
//! * The tensors follow each other without gaps and end with the file. The `safetensors` crate
//!   checks that the header is consistent. [`TensorFile::open`] checks that it fits the length of
//!   the file.
//! * No size from the file is used before it was checked. A header that claims to be larger than
//!   the format allows, or larger than the file, is not read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::{Map, Value};

use super::error::{Error, Result};

/// The most that the format allows.
const LARGEST_HEADER: u64 = 100_000_000;

/// One tensor of a file.
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: usize,
    /// The first byte in the file.
    pub start: u64,
}

/// An open file whose header has been checked.
pub struct TensorFile {
    path: PathBuf,
    /// Reads the header, and the tensors for the verification.
    file: File,
    /// In the order of their bytes.
    tensors: Vec<Tensor>,
}

impl TensorFile {
    /// Opens the file and reads its header.
    pub fn open(path: &Path) -> Result<TensorFile> {
        let fail = |found: String, remedy: &str| Error::file(path, found, remedy);
        let unreadable = |error| fail(format!("cannot read: {error}"), "check the path");

        // A pipe would block here until there is a writer.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(fail("not a regular file".into(), "name a .safetensors file"));
        }
        let length = metadata.len();
        if length < 8 {
            let found = format!("{length} bytes: too short to be a safetensors file");
            return Err(fail(found, "fetch it again"));
        }
        let mut prefix = [0; 8];
        file.read_exact_at(&mut prefix, 0).map_err(unreadable)?;
        let header_bytes = u64::from_le_bytes(prefix);
        if header_bytes > LARGEST_HEADER {
            let found = format!(
                "claims a header of {header_bytes} bytes, but the format allows {LARGEST_HEADER}"
            );
            return Err(fail(found, "is it a safetensors file? if so, fetch it again"));
        }
        if header_bytes > length - 8 {
            let found =
                format!("truncated: a header of {header_bytes} bytes in a file of {length} bytes");
            return Err(fail(found, "fetch it again"));
        }
        let mut header = Vec::new();
        header.try_reserve_exact(header_bytes as usize).map_err(|error| {
            let found = format!("a header of {header_bytes} bytes: {error}");
            fail(found, "free memory, or raise the limit on it")
        })?;
        header.resize(header_bytes as usize, 0);
        file.read_exact_at(&mut header, 8).map_err(unreadable)?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|error| {
            if let Some((tensor, dtype)) = unknown_dtype(&header) {
                let (tensor, dtype) = (printable(&tensor), printable(&dtype));
                let found = format!("the tensor `{tensor}` has the unknown dtype `{dtype}`");
                return fail(found, "build this loader with a newer crate safetensors");
            }
            let found = format!("the header is corrupt: {}", printable(&error.to_string()));
            fail(found, "is it a safetensors file? if so, fetch it again")
        })?;

        let data_start = 8 + header_bytes;
        let (expected, found) = (header.data_len() as u64, length - data_start);
        if expected != found {
            let found = format!(
                "{} bytes too {}: the header promises {expected} bytes of tensors, \
                 and {found} follow",
                expected.abs_diff(found),
                if found < expected { "short" } else { "long" },
            );
            return Err(fail(found, "fetch it again"));
        }
        Ok(TensorFile { path: path.into(), file, tensors: tensors(&header, data_start) })
    }

    /// The path, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In the order of the file.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The number of the largest tensor; the first of several.
    pub fn largest(&self) -> Option<usize> {
        (0..self.tensors.len()).rev().max_by_key(|&index| self.tensors[index].bytes)
    }

    /// The bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Reads a tensor with system calls alone. `into` must have the same length.
    pub fn read(&self, tensor: &Tensor, into: &mut [u8]) -> Result<()> {
        assert_eq!(tensor.bytes, into.len());
        self.file.read_exact_at(into, tensor.start).map_err(|error| {
            let found = format!("reading tensor {}: {error}", printable(&tensor.name));
            Error::file(&self.path, found, "was the file changed during the load?")
        })
    }
}

fn tensors(header: &Metadata, data_start: u64) -> Vec<Tensor> {
    let tensor = |name: String| {
        let info = header.info(&name).expect("a name that the header gave");
        let (start, end) = info.data_offsets;
        Tensor {
            dtype: info.dtype,
            shape: info.shape.clone(),
            bytes: end - start,
            start: data_start + start as u64,
            name,
        }
    };
    header.offset_keys().into_iter().map(tensor).collect()
}

/// The first tensor of a header whose dtype the format may define but this program does not know.
fn unknown_dtype(header: &[u8]) -> Option<(String, String)> {
    let tensors: Map<String, Value> = serde_json::from_slice(header).ok()?;
    tensors.into_iter().find_map(|(name, tensor)| {
        let dtype = tensor.get("dtype")?.as_str()?.to_owned();
        let is_known = serde_json::from_value::<Dtype>(dtype.as_str().into()).is_ok();
        (name != "__metadata__" && !is_known).then_some((name, dtype))
    })
}

/// How many characters of a text are shown.
const SHOWN: usize = 100;

/// Text from a file, made safe for a terminal: on one line, and truncated if it is too long.
pub fn printable(text: &str) -> String {
    let safe = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut shown: String = text.chars().take(SHOWN).map(safe).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
