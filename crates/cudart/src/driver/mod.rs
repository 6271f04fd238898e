//! Calls that only the driver (`libcuda.so.1`) has. Calls that the runtime has too are entries of
//! the runtime's files, with both names.
//!
//! | file | what |
//! |---|---|
//! | `contexts.rs` | contexts: which one is current on each thread |
//! | `devices.rs` | cuInit, versions, devices |
//! | `errors.rs` | the driver's names and codes of errors |
//! | `memory.rs` | memory, and what a pointer is |
//! | `entry_points.rs` | functions by their names |
//! | `modules.rs` | modules, and the functions in them |
//! | `launches.rs` | launches, and what functions need |
//! | `copies.rs` | copies and fills whose names say the direction or the width |
//! | `planes.rs` | copies and fills of planes and volumes |
//! | `mapped.rs` | addresses that a program reserves, and memory that it maps there |
//! | `export_tables.rs` | what NVIDIA's own runtime asks of the driver |

pub mod contexts;
mod copies;
mod devices;
pub mod entry_points;
pub mod errors;
mod export_tables;
mod launches;
mod mapped;
mod memory;
pub mod modules;
mod planes;

use pinlane_driver::CudaCode;

use crate::machine;

/// The error of a call of the driver that may not be made now.
pub fn refusal(name: &str) -> Option<CudaCode> {
    if let Some(code) = machine::ended() {
        return Some(code);
    }
    match name {
        "cuInit" | "cuGetProcAddress" | "cuGetProcAddress_v2" | "cuGetExportTable" => None,
        _ if !contexts::is_ready() => Some(CudaCode::INITIALIZATION),
        _ if names_its_context(name) => {
            contexts::refusal().filter(|_| contexts::current().is_some())
        }
        _ if needs_context(name) => contexts::refusal(),
        _ => None,
    }
}

/// Whether a call takes its context from the memory, the event or the stream that it names; default
/// streams have none of their own (`contexts::target`).
fn names_its_context(name: &str) -> bool {
    const SUCH: [&str; 8] = [
        "cuMemFree",
        "cuMemcpyHtoDAsync",
        "cuMemcpyDtoHAsync",
        "cuMemcpyDtoDAsync",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuEventElapsedTime",
        "cuStreamQuery",
    ];
    SUCH.iter().any(|one| name.starts_with(one))
}

/// Whether a call is about the context that is current on its thread.
fn needs_context(name: &str) -> bool {
    // Virtual memory belongs to the process.
    const OF_PROCESS: [&str; 11] = [
        "cuMemAddressReserve",
        "cuMemAddressFree",
        "cuMemCreate",
        "cuMemRelease",
        "cuMemMap",
        "cuMemUnmap",
        "cuMemSetAccess",
        "cuMemGetAccess",
        "cuMemGetAllocationGranularity",
        "cuMemGetAllocationPropertiesFromHandle",
        "cuMemRetainAllocationHandle",
    ];
    const NAME_ONE: [&str; 8] = [
        "cuCtxCreate",
        "cuCtxDestroy",
        "cuCtxSetCurrent",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuPointerGetAttribute",
        "cuThreadExchangeStreamCaptureMode",
    ];
    let of_device = name.starts_with("cuDevice") || name.starts_with("cuMemPool");
    !of_device && !OF_PROCESS.contains(&name) && !NAME_ONE.iter().any(|one| name.starts_with(one))
}
