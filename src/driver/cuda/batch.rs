//! Batches of copies: `cuMemcpyBatchAsync`, found at run time.
//!
//! The runtime's `cudaMemcpyBatchAsync` came with CUDA 12.8 and changed its signature with 13.0. A
//! program linked to it works with one of the two, and does not start with an older runtime. The
//! driver's function keeps all its versions: this file declares the version of 12.8 and requests it
//! by number, so the toolkit of the build does not matter.
//!
//! The function belongs to the driver API. Unlike a runtime call, it does not make a device current
//! on a thread that has made no call yet.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use super::convert::stream_of;
use super::entry::{self, Code};
use super::thread::call_with_device;
use crate::driver::{DriverResult, Item, RawStream};
use crate::error::CudaCode;
use crate::sys;

/// The version of CUDA whose signature [`CopyBatch`] is.
const VERSION: c_int = 12_080;

/// What the call returns if no device is current on the thread: `CUDA_ERROR_INVALID_VALUE` or
/// `CUDA_ERROR_INVALID_CONTEXT`. Nothing was then enqueued.
const PERHAPS_NO_CONTEXT: [Code; 2] = [1, 201];

/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`
const IN_STREAM_ORDER: c_int = 1;

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: c_int,
    id: c_int,
}

/// `CUmemcpyAttributes`
#[repr(C)]
struct Attributes {
    source_access_order: c_int,
    /// Hints, for managed memory only.
    source: Location,
    destination: Location,
    flags: c_uint,
}

// As `CUmemcpyAttributes` of all versions so far.
const _: () = assert!(size_of::<Attributes>() == 24);

/// `PFN_cuMemcpyBatchAsync_v12080`: destinations, sources, sizes, their number; attributes, the
/// index of the first copy of each, their number; place for the index of a copy that failed;
/// stream.
type CopyBatch = unsafe extern "C" fn(
    *mut u64,
    *mut u64,
    *mut usize,
    usize,
    *mut Attributes,
    *mut usize,
    usize,
    *mut usize,
    sys::cudaStream_t,
) -> Code;

/// Whether the driver has the function.
pub(super) fn exist() -> DriverResult<bool> {
    entry_point().map(|found| found.is_some())
}

/// The driver's function, or `None` if the driver is too old.
fn entry_point() -> DriverResult<Option<CopyBatch>> {
    static FOUND: OnceLock<Option<CopyBatch>> = OnceLock::new();
    if let Some(&found) = FOUND.get() {
        return Ok(found);
    }
    // A failure is not cached: the driver may come up later.
    let found = find()?;
    Ok(*FOUND.get_or_init(|| found))
}

fn find() -> DriverResult<Option<CopyBatch>> {
    let found = entry::find(c"cuMemcpyBatchAsync", VERSION)?;
    // SAFETY: the driver's function of this name and version has this signature.
    Ok(found.map(|at| unsafe { transmute::<*mut c_void, CopyBatch>(at.get()) }))
}

/// `cuMemcpyBatchAsync` of all copies that are not empty.
///
/// # Safety
///
/// * `stream` is live.
/// * All ranges are valid until retired; destinations overlap no other range.
pub(super) unsafe fn copy(stream: RawStream, copies: &[Item]) -> DriverResult<()> {
    let copies = || copies.iter().filter(|copy| copy.bytes != 0);
    let mut destinations: Vec<u64> = copies().map(|copy| copy.dst).collect();
    let mut sources: Vec<u64> = copies().map(|copy| copy.src).collect();
    let mut sizes: Vec<usize> = copies().map(|copy| copy.bytes as usize).collect();
    if sizes.is_empty() {
        return Ok(());
    }
    let function = entry_point()?.ok_or(CudaCode::NOT_SUPPORTED)?;
    let nowhere = Location { kind: 0, id: 0 };
    let mut attributes = Attributes {
        source_access_order: IN_STREAM_ORDER,
        source: nowhere,
        destination: nowhere,
        flags: 0,
    };
    call_with_device(stream, move || {
        let mut enqueue = || {
            let (mut first, mut failed) = (0, 0);
            // SAFETY: three live arrays of `sizes.len()` elements, one live set of attributes that
            // begins with copy 0, a live place for an index; ranges and stream as promised by the
            // caller.
            unsafe {
                function(
                    destinations.as_mut_ptr(),
                    sources.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    sizes.len(),
                    &mut attributes,
                    &mut first,
                    1,
                    &mut failed,
                    stream_of(stream),
                )
            }
        };
        match enqueue() {
            code if PERHAPS_NO_CONTEXT.contains(&code) => {
                // No device was current, so there is nothing to restore. Any runtime call would
                // have made one current too. SAFETY: takes a number and checks it.
                match unsafe { sys::cudaSetDevice(stream.device) } {
                    sys::cudaError::cudaSuccess => sys::cudaError(enqueue()),
                    code => code,
                }
            }
            code => sys::cudaError(code),
        }
    })
}
