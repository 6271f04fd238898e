//! The reports of an emulated machine: the misuse that it saw, and what is alive.

use std::ffi::c_char;

use super::{ErrorKind, Result, pinlane_emulator};
use crate::capi::{Out, growing, handle, layout, members, pinlane_status, pointer, refused};
use crate::driver::emulated::{Finding, Usage};

/// What is allocated and pending on an emulated machine. Initialise with
/// `PINLANE_EMULATOR_USAGE_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_emulator_usage {
    /// `sizeof(pinlane_emulator_usage)`.
    pub size: usize,
    /// Bytes of page-locked memory: allocated, or registered.
    pub host_bytes: usize,
    /// The same in blocks; a registered range is one block.
    pub host_blocks: usize,
    /// Blocks that were freed while pending operations named them. Their memory is never released.
    pub quarantined_blocks: usize,
    /// Bytes of device memory that no call has freed, on all devices.
    pub device_bytes: usize,
    /// The same in blocks.
    pub device_blocks: usize,
    /// Streams created and not destroyed.
    pub streams: usize,
    /// Events created and not destroyed.
    pub events: usize,
    /// Operations enqueued that have not run.
    pub pending_operations: usize,
}

layout!(pinlane_emulator_usage: 72; size 0, device_bytes 32, pending_operations 64);
growing!(pinlane_emulator_usage_init: pinlane_emulator_usage, sizes [72], default {});

members! {
    pinlane_emulator_usage of now: Usage,
    same [host_bytes, host_blocks, quarantined_blocks, device_bytes, device_blocks, streams, events,
        pending_operations],
    size: size_of::<Self>(),
}

/// Writes what is allocated and pending on the machine to `usage`, whose `size` member must be set.
/// An open device has internal streams and page-locked memory, so expect 0 of each only when all
/// devices, streams, pools, buffers and tickets are freed. Even then operations may be pending on a
/// lazy machine.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `usage` is NULL or its size is unknown.
///
/// # Safety
///
/// - `usage` is NULL or points to a struct whose `size` member is set and right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_get_usage(
    emulator: *const pinlane_emulator,
    usage: *mut pinlane_emulator_usage,
) -> pinlane_status {
    let count = || Ok(handle::get(emulator)?.usage().into());
    // SAFETY: the caller's precondition on `usage`.
    unsafe { growing::give_sized("pinlane_emulator_get_usage", "usage", usage, count) }
}

/// Writes to `count` how many misuses of CUDA the machine has seen, at most 1000. A correct program
/// has none. On a GPU they cause torn data or a crash.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL.
///
/// # Safety
///
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_finding_count(
    emulator: *const pinlane_emulator,
    count: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `count`.
    unsafe { Out::new("count", count) }
        .give("pinlane_emulator_finding_count", || Ok(handle::get(emulator)?.findings().len()))
}

/// Writes misuse number `index`, counted from 0, to `buffer`, as a text: its kind, such as
/// `FreedInFlight`, the call, the bytes, the stream, and the machine's seed. A `Race` has more
/// lines: both operations, the memory, and what would have ordered them. At most `capacity` bytes
/// are written, with the terminating NUL; a longer text is truncated. `needed`, which may be NULL,
/// gets the number of bytes that the whole text needs. `buffer` may be NULL if `capacity` is 0.
///
/// Statuses: `INVALID_HANDLE`; `OUT_OF_RANGE` if there are fewer; `INVALID_VALUE` if `buffer` is
/// NULL while `capacity` is not 0.
///
/// # Safety
///
/// - `buffer` is NULL or points to `capacity` bytes.
/// - `needed` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_finding(
    emulator: *const pinlane_emulator,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pinlane_status {
    let find = || Ok(finding(emulator, index)?.to_string());
    // SAFETY: the caller's preconditions on `buffer` and `needed`.
    unsafe { pointer::give_text("pinlane_emulator_finding", buffer, capacity, needed, find) }
}

/// Writes misuse number `index` to `buffer` as `pinlane_emulator_finding` does, but as one JSON
/// object, on one line. Its members are `kind`, `message`, `mode`, such as `lazy` or `pct:3`,
/// `seed`, and `race`. That is `null`, or an object: `first` and `second` are the two operations,
/// each with `call`, `operation`, `access`, `agent`, `position`, `site`, `start` and `bytes`;
/// `memory` has `kind`, `start`, `bytes`, `generation` and `site`; `start` and `bytes` are the
/// range that both use; `seen` is an array of texts, which list what the run did to order them, and
/// `missing` says what would have ordered them. A `site` is `null`, or has `file` and `line`.
/// Addresses are strings, such as `"0xdea0000000002000"`. The drop-in library writes the same.
/// Newer versions may add members.
///
/// Statuses: as for `pinlane_emulator_finding`.
///
/// # Safety
///
/// - `buffer` is NULL or points to `capacity` bytes.
/// - `needed` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_finding_json(
    emulator: *const pinlane_emulator,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pinlane_status {
    let find = || Ok(finding(emulator, index)?.to_json());
    // SAFETY: the caller's preconditions on `buffer` and `needed`.
    unsafe { pointer::give_text("pinlane_emulator_finding_json", buffer, capacity, needed, find) }
}

fn finding(emulator: *const pinlane_emulator, index: usize) -> Result<Finding> {
    let mut findings = handle::get(emulator)?.findings();
    if index >= findings.len() {
        let context = format!("finding {index} of {}", findings.len());
        let remedy = "ask pinlane_emulator_finding_count how many there are";
        return Err(refused(ErrorKind::OutOfRange, context, remedy));
    }
    Ok(findings.swap_remove(index))
}

/// Writes the decisions of the machine so far to `buffer`, as a text such as `12:B#3`: the seed,
/// and the decisions that differ from an eager machine. The member `replay` of the options of
/// another machine repeats them. A program with one thread and without host functions then runs
/// exactly as before; with more threads, each decision is the same for the operation with the same
/// number in the same stream. `buffer`, `capacity` and `needed` are as for
/// `pinlane_emulator_finding`.
///
/// Statuses: `INVALID_HANDLE`; `UNSUPPORTED` if the machine was made without
/// `PINLANE_EMULATOR_RECORD`; `INVALID_VALUE` if `buffer` is NULL while `capacity` is not 0.
///
/// # Safety
///
/// - `buffer` is NULL or points to `capacity` bytes.
/// - `needed` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_replay(
    emulator: *const pinlane_emulator,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pinlane_status {
    let find = || {
        let replay = handle::get(emulator)?.replay();
        replay.map(|replay| replay.to_string()).ok_or_else(|| {
            let context = "a machine that writes no decisions down";
            let remedy = "make it with PINLANE_EMULATOR_RECORD";
            refused(ErrorKind::Unsupported, context, remedy)
        })
    };
    // SAFETY: the caller's preconditions on `buffer` and `needed`.
    unsafe { pointer::give_text("pinlane_emulator_replay", buffer, capacity, needed, find) }
}
