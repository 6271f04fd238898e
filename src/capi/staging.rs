//! How ordinary memory is copied: the page-locked slots of a device, and the threads of the
//! process.

use std::time::Duration;

use super::device::{check_flags, pinlane_device, sized_input};
use super::handle;
use super::pointer;
use super::status::{boundary, pinlane_status};
use crate::error::Result;
use crate::transfer::{CopyTeam, Staging};

/// Every copy goes through the slots, however small.
pub const PINLANE_STAGING_NO_DIRECT: u32 = 1;
/// No upload is written past the cache.
pub const PINLANE_STAGING_NO_STREAMING: u32 = 2;

/// The page-locked memory through which copies of ordinary memory go. Initialise with
/// `PINLANE_STAGING_OPTIONS_INIT`; a member that is 0 stands for its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_staging_options {
    /// `sizeof(pinlane_staging_options)`.
    pub size: usize,
    /// The most page-locked memory for large copies, in bytes; small ones take up to half as much
    /// beside. By default 32 MiB, page-locked as it is needed.
    pub ring_bytes: usize,
    /// The largest portion that is given to the copy engine at once, in bytes: what a slot holds.
    /// By default 4 MiB.
    pub slot_bytes: usize,
    /// The first portion of a short upload, in bytes; a longer upload begins with a thirty-second
    /// part. Portions grow to an eighth of the copy, but a slot at most. By default 256 KiB.
    pub first_bytes: usize,
    /// The bytes that a thread copies at a time. By default 256 KiB.
    pub unit_bytes: usize,
    /// Copies of at most this many bytes go through one block of page-locked memory, without other
    /// threads. By default 64 KiB.
    pub direct_bytes: usize,
    /// Uploads of at most this many bytes are written to their slots past the cache. By default 64
    /// MiB.
    pub streaming_bytes: usize,
    /// 0, or some of `PINLANE_STAGING_*`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// No threads: every caller copies alone.
pub const PINLANE_COPY_TEAM_ALONE: u32 = 1;
/// Threads sleep as soon as they have nothing to do.
pub const PINLANE_COPY_TEAM_NO_SPIN: u32 = 2;

/// The threads that help callers to copy ordinary memory. Initialise with
/// `PINLANE_COPY_TEAM_OPTIONS_INIT`; a member that is 0 stands for its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_copy_team_options {
    /// `sizeof(pinlane_copy_team_options)`.
    pub size: usize,
    /// The cores that the threads are pinned to, in turns, or NULL: the system chooses.
    pub cores: *const u32,
    /// How many `cores` there are.
    pub core_count: usize,
    /// How long a thread without work spins before it sleeps, in microseconds. By default 200, at
    /// most 1000000.
    pub spin_us: u64,
    /// How many threads there are to help callers, at most 256. By default one less than there are
    /// cores, 15 at most.
    pub threads: u32,
    /// How many of them copy memory; the others only read files. By default 7.
    pub copying: u32,
    /// 0, or some of `PINLANE_COPY_TEAM_*`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<pinlane_staging_options>() == 64);
    assert!(std::mem::offset_of!(pinlane_staging_options, streaming_bytes) == 48);
    assert!(std::mem::offset_of!(pinlane_staging_options, flags) == 56);
    assert!(size_of::<pinlane_copy_team_options>() == 48);
    assert!(std::mem::offset_of!(pinlane_copy_team_options, spin_us) == 24);
    assert!(std::mem::offset_of!(pinlane_copy_team_options, flags) == 40);
};

/// A member of which 0 stands for the default, unless a flag makes it 0.
fn given(value: usize, none: bool) -> Option<usize> {
    if none { Some(0) } else { (value != 0).then_some(value) }
}

impl pinlane_staging_options {
    fn staging(&self, operation: &'static str) -> Result<Staging> {
        type Set = fn(Staging, usize) -> Staging;
        const FLAGS: u32 = PINLANE_STAGING_NO_DIRECT | PINLANE_STAGING_NO_STREAMING;
        check_flags(operation, self.flags, FLAGS)?;
        check_flags(operation, self.reserved, 0)?;
        let no = |flag| self.flags & flag != 0;
        let members: [(Option<usize>, Set); 6] = [
            (given(self.ring_bytes, false), Staging::ring_bytes),
            (given(self.slot_bytes, false), Staging::slot_bytes),
            (given(self.first_bytes, false), Staging::first_bytes),
            (given(self.unit_bytes, false), Staging::unit_bytes),
            (given(self.direct_bytes, no(PINLANE_STAGING_NO_DIRECT)), Staging::direct_bytes),
            (
                given(self.streaming_bytes, no(PINLANE_STAGING_NO_STREAMING)),
                Staging::streaming_bytes,
            ),
        ];
        let set = |staging, (value, set): (Option<usize>, Set)| match value {
            Some(value) => set(staging, value),
            None => staging,
        };
        Ok(members.into_iter().fold(Staging::new(), set))
    }
}

/// Says how copies of ordinary memory are staged on `device`, for all handles of it. Call it right
/// after the device was opened: after the first such copy it is too late. Allocates nothing.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `options` is NULL, of an
/// unknown size or flag, or if the sizes make no ring (a slot has at least 4096 bytes, the ring 2
/// to 4096 slots, the first portion and a unit at least 1024 bytes, the first portion at most those
/// of a slot), and after the first copy.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_set_staging(
    device: *const pinlane_device,
    options: *const pinlane_staging_options,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_device_set_staging";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { sized_input(OPERATION, options) }?;
        device.set_staging(options.staging(OPERATION)?)
    })
}

/// Makes this the copy team of the process, which is shared by all devices. Copies that are under
/// way end with the former one. `options` may be NULL: the defaults. Threads start when the first
/// large copy wants help.
///
/// Statuses: `FORKED_PROCESS`; `INVALID_VALUE` for more than 256 threads, for cores that do not
/// exist, for spinning longer than a second, or for options of an unknown size or flag.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
///   `cores` is NULL or points to an array of `core_count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_copy_team_install(
    options: *const pinlane_copy_team_options,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_copy_team_install";
        handle::check_process(OPERATION)?;
        let mut team = CopyTeam::new();
        if !options.is_null() {
            // SAFETY: the caller's precondition on `options`.
            let options = unsafe { sized_input(OPERATION, options) }?;
            check_flags(
                OPERATION,
                options.flags,
                PINLANE_COPY_TEAM_ALONE | PINLANE_COPY_TEAM_NO_SPIN,
            )?;
            check_flags(OPERATION, options.reserved, 0)?;
            // SAFETY: the caller's precondition on `cores`.
            let cores =
                unsafe { pointer::inputs(OPERATION, "cores", options.cores, options.core_count) }?;
            team = team.cores(cores.iter().map(|&core| core as usize).collect::<Vec<_>>());
            let no = |flag| options.flags & flag != 0;
            if let Some(threads) = given(options.threads as usize, no(PINLANE_COPY_TEAM_ALONE)) {
                team = team.threads(threads);
            }
            if let Some(copying) = given(options.copying as usize, false) {
                team = team.copying(copying);
            }
            if no(PINLANE_COPY_TEAM_NO_SPIN) {
                team = team.spin(Duration::ZERO);
            } else if options.spin_us != 0 {
                team = team.spin(Duration::from_micros(options.spin_us));
            }
        }
        team.install()
    })
}
