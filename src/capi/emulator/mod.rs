//! Emulated machines: the functions that build one, and the handle to inspect it.

mod explore;
mod report;
mod trouble;

use std::ffi::c_char;
use std::time::Duration;

use super::{
    Error, ErrorKind, Out, Result, boundary, check_flags, freeing, growing, handle, handle_type,
    invalid, layout, pinlane_device, pinlane_status, pointer, refused, set_unless_0, unknown,
};
use crate::device::Device;
use crate::driver::emulated::{Builder, Emulator, Execution};
use crate::error::CudaCode;

/// An emulated machine, with all of its devices: for tests that make it fail, and that look for
/// misuse and leaks. Any thread may use it.
pub enum pinlane_emulator {}

handle_type!(pinlane_emulator: Emulator, "machine", table 9, shared: true);

/// Emulated operations run as soon as they can.
pub const PINLANE_EXECUTION_EAGER: i32 = 0;
/// Emulated operations run only when the program waits for them: as late as CUDA allows.
pub const PINLANE_EXECUTION_LAZY: i32 = 1;
/// Emulated operations run at any call or wait, as the seed decides.
pub const PINLANE_EXECUTION_RANDOM: i32 = 2;
/// The same, and copies and fills land in pieces, with work of other streams in between.
pub const PINLANE_EXECUTION_CHUNKED: i32 = 3;
/// The stream with the highest priority runs. Priorities are random, and change at random points,
/// of which there are `pct_depth - 1`. A bug that needs `pct_depth` pairs of steps in a certain
/// order is found with a known probability (Burckhardt and others, ASPLOS 2010).
pub const PINLANE_EXECUTION_PCT: i32 = 4;

/// The emulated driver does not support batches of copies, as drivers before CUDA 12.8.
pub const PINLANE_EMULATOR_NO_BATCHES: u32 = 1;
/// Emulated kernels cannot use page-locked memory at the addresses that the host uses.
pub const PINLANE_EMULATOR_NO_HOST_ADDRESSES: u32 = 2;
/// The machine does not look for races: two unordered operations that use the same bytes, at least
/// one of them writing. Without this flag it looks for them, and reports them as findings.
pub const PINLANE_EMULATOR_NO_RACES: u32 = 4;
/// Findings of races name the program's lines that made the calls, as far as its debug information
/// has them. It makes each call a thousand times slower.
pub const PINLANE_EMULATOR_SITES: u32 = 8;
/// In the search for races, a thread knows only the work that it has waited for itself. Without
/// this flag, work that any thread has waited for is known to all threads from then on.
pub const PINLANE_EMULATOR_THREADS_APART: u32 = 16;
/// The machine records its decisions, for `pinlane_emulator_replay`.
pub const PINLANE_EMULATOR_RECORD: u32 = 32;
/// The machine sees the program's own accesses to its page-locked memory: a load or store before an
/// operation is known to be complete is a finding, with its line, as far as debug information has
/// it. The machine uses SIGSEGV and SIGTRAP, and passes signals for other memory on to the previous
/// handlers. If the program replaces these handlers later, the next call ends the watch, and
/// reports that once on standard error. A system call on memory that is in use fails with `EFAULT`.
/// Pools of the machine allocate their memory, even if `page_locking` says otherwise, so that the
/// machine sees it. It does not see registered memory and blocks aligned to more than a page.
pub const PINLANE_EMULATOR_WATCH_HOST: u32 = 64;

/// Options of an emulated machine. Initialise with `PINLANE_EMULATOR_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_emulator_options {
    /// `sizeof(pinlane_emulator_options)`.
    pub size: usize,
    /// Decides everything that CUDA leaves open. The same seed gives the same run.
    pub seed: u64,
    /// Memory of each device, in bytes.
    pub memory_bytes: usize,
    /// One of `PINLANE_EXECUTION_*`.
    pub execution: i32,
    /// 0, or some of `PINLANE_EMULATOR_*`.
    pub flags: u32,
    /// The most that one CUDA call page-locks, in bytes; 0: no limit. A larger request gets
    /// `cudaErrorMemoryAllocation`, as on some systems.
    pub page_lock_limit_bytes: usize,
    /// NULL, or a run to repeat: a text of `pinlane_emulator_replay`, such as `12:B#3`. The machine
    /// then takes the seed and the decisions from there, and ignores `seed` and `execution`.
    pub replay: *const c_char,
    /// The approximate number of operations that the program enqueues, for `PINLANE_EXECUTION_PCT`;
    /// 0: not known.
    pub operations: u64,
    /// For `PINLANE_EXECUTION_PCT`; 0 counts as 1.
    pub pct_depth: u32,
    /// 0.
    pub reserved: u32,
    /// How long a call may wait for one host function to return, in microseconds; 0: without limit.
    /// After that time the machine assumes that the two wait for each other. That is a finding,
    /// `Deadlock`, instead of a hang, and the device is lost with `cudaErrorLaunchTimeout`, so that
    /// the program ends.
    pub host_function_limit_us: u64,
}

layout!(pinlane_emulator_options: 72; size 0, execution 24, page_lock_limit_bytes 32,
    replay 40, operations 48, pct_depth 56, host_function_limit_us 64);
growing!(pinlane_emulator_options_init: pinlane_emulator_options, sizes [40, 64, 72], default {
    memory_bytes: 1_073_741_824, execution: PINLANE_EXECUTION_EAGER, pct_depth: 3
});

fn not_emulated() -> Error {
    let what = "this device is a GPU";
    refused(ErrorKind::Unsupported, what, "open an emulated device, with pinlane_emulator_create")
}

impl pinlane_emulator_options {
    /// # Safety
    ///
    /// * `replay` is NULL, or points to a string.
    pub(super) unsafe fn builder(&self) -> Result<Builder> {
        const KNOWN: u32 = PINLANE_EMULATOR_NO_BATCHES
            | PINLANE_EMULATOR_NO_HOST_ADDRESSES
            | PINLANE_EMULATOR_NO_RACES
            | PINLANE_EMULATOR_SITES
            | PINLANE_EMULATOR_THREADS_APART
            | PINLANE_EMULATOR_RECORD
            | PINLANE_EMULATOR_WATCH_HOST;
        check_flags(self.flags, KNOWN)?;
        check_flags(self.reserved, 0)?;
        let has = |flag| self.flags & flag != 0;
        let execution = match self.execution {
            PINLANE_EXECUTION_EAGER => Execution::Eager,
            PINLANE_EXECUTION_LAZY => Execution::Lazy,
            PINLANE_EXECUTION_RANDOM => Execution::Random,
            PINLANE_EXECUTION_CHUNKED => Execution::Chunked,
            PINLANE_EXECUTION_PCT => Execution::Pct { depth: self.pct_depth },
            other => return Err(unknown("execution", other, "use one of PINLANE_EXECUTION_*")),
        };
        let mut builder = Emulator::builder()
            .seed(self.seed)
            .memory_bytes(self.memory_bytes)
            .execution(execution)
            .batches(!has(PINLANE_EMULATOR_NO_BATCHES))
            .host_addresses(!has(PINLANE_EMULATOR_NO_HOST_ADDRESSES))
            .races(!has(PINLANE_EMULATOR_NO_RACES))
            .sites(has(PINLANE_EMULATOR_SITES))
            .threads_apart(has(PINLANE_EMULATOR_THREADS_APART))
            .record(has(PINLANE_EMULATOR_RECORD))
            .watch_host(has(PINLANE_EMULATOR_WATCH_HOST));
        builder = set_unless_0(builder, self.operations, Builder::operations);
        let limit = Duration::from_micros(self.host_function_limit_us);
        builder = set_unless_0(builder, limit, Builder::host_function_limit);
        if !self.replay.is_null() {
            // SAFETY: the precondition on `replay`.
            builder = builder.replay(unsafe { pointer::string("replay", self.replay) }?.parse()?);
        }
        Ok(set_unless_0(builder, self.page_lock_limit_bytes, |builder, bytes| {
            builder.page_lock_limit(bytes, CudaCode::MEMORY_ALLOCATION)
        }))
    }
}

/// Makes an emulated machine with `count` devices, 1 to 64, and writes them to `devices[0 ..
/// count]`. The caller frees each with `pinlane_device_free`. `options` may be NULL.
/// `pinlane_device_emulator` returns the machine.
///
/// Statuses: `INVALID_VALUE` if `devices` is NULL or misaligned, for a `count` out of range, for
/// options of an unknown size, execution or flag, or for an invalid `replay`; `FORKED_PROCESS`.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
///   `replay` is NULL or points to a string.
/// - `devices` is NULL or points to an array of `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_create(
    options: *const pinlane_emulator_options,
    devices: *mut *mut pinlane_device,
    count: i32,
) -> pinlane_status {
    boundary("pinlane_emulator_create", || {
        handle::check_process()?;
        // SAFETY: the caller's precondition on `devices`, an array of at least one element.
        unsafe { Out::new("devices", devices) }.check()?;
        if !(1..=64).contains(&count) {
            let context = format!("a machine with {count} devices");
            return Err(invalid(context, "ask for 1 to 64"));
        }
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::options(options) }?;
        // SAFETY: the caller's precondition on `options` and their strings.
        let emulator = unsafe { options.builder() }?.devices(count as usize).build();
        let made = (0..count).map(|ordinal| Device::of_emulator(&emulator, ordinal));
        for (index, device) in made.collect::<Result<Vec<_>>>()?.into_iter().enumerate() {
            // SAFETY: the array has `count` elements, and there are `count` devices.
            unsafe { devices.add(index).write(handle::create(device)) };
        }
        Ok(())
    })
}

/// Writes the machine that the emulated device belongs to, to `emulator`. The caller frees it with
/// `pinlane_emulator_free`. It may outlive the devices: it then shows what is still alive.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `UNSUPPORTED` for a GPU; `INVALID_VALUE` if
/// `emulator` is NULL.
///
/// # Safety
///
/// - `emulator` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_emulator(
    device: *const pinlane_device,
    emulator: *mut *mut pinlane_emulator,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `emulator`.
    unsafe { Out::new("emulator", emulator) }.create("pinlane_device_emulator", || {
        handle::get(device)?.emulator().ok_or_else(not_emulated)
    })
}

/// Opens device number `ordinal` of the machine, again or after it was freed, and writes it to
/// `device`. The caller frees it with `pinlane_device_free`. Objects made from different handles of
/// one device can be used together.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `NO_DEVICE` if the machine has no such device;
/// `DEVICE_LOST`, `CUDA`, the status of an injected fault; `INVALID_VALUE` if `device` is NULL.
///
/// # Safety
///
/// - `device` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_open(
    emulator: *const pinlane_emulator,
    ordinal: i32,
    device: *mut *mut pinlane_device,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `device`.
    unsafe { Out::new("device", device) }
        .create("pinlane_emulator_open", || Device::of_emulator(&*handle::get(emulator)?, ordinal))
}

/// Frees the handle; NULL is a no-op. The machine lives as long as the objects made on it.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was an emulator.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_free(emulator: *mut pinlane_emulator) -> pinlane_status {
    freeing("pinlane_emulator_free", || handle::free(emulator))
}

#[cfg(test)]
mod tests {
    use crate::driver::Call;

    #[test]
    fn the_header_names_every_call_that_can_fail() {
        let header = include_str!("../../../include/pinlane/pinlane.h");
        let start =
            header.find("Calls of the driver:").expect("the list in pinlane_emulator_inject");
        let end = start + header[start..].find(".\n").expect("the end of the list");
        let names: Vec<&str> = header[start..end]
            .split(|mark: char| !mark.is_alphanumeric())
            .filter_map(|word| Call::named(word).map(|_| word))
            .collect();
        let calls: Vec<String> = Call::ALL.iter().map(|call| format!("{call:?}")).collect();
        assert_eq!(names, calls);
    }
}
