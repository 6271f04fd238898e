//! Options for copies of pageable memory: the page-locked slots of a device, and the threads of the
//! process.

use std::time::Duration;

use super::{
    Result, boundary, check_flags, growing, handle, layout, pinlane_device, pinlane_status,
    pointer, set_or_0, set_unless_0,
};
use crate::staging::{CopyTeam, Staging};

/// Every copy goes through the slots, even the smallest.
pub const PINLANE_STAGING_NO_DIRECT: u32 = 1;
/// No upload is written to its slots past the cache.
pub const PINLANE_STAGING_NO_STREAMING: u32 = 2;

/// The page-locked memory through which copies of pageable memory go. Initialise with
/// `PINLANE_STAGING_OPTIONS_INIT`. 0 in a member means its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_staging_options {
    /// `sizeof(pinlane_staging_options)`.
    pub size: usize,
    /// The most page-locked memory for large copies, in bytes. Small copies take up to half as much
    /// in addition. By default 32 MiB, page-locked on demand.
    pub ring_bytes: usize,
    /// The size of a slot, in bytes: the largest portion that the copy engine gets at once. By
    /// default 4 MiB.
    pub slot_bytes: usize,
    /// The first portion of a short upload, in bytes. A longer upload begins with 1/32 of its
    /// length. Portions grow to 1/8 of the copy, and to at most a slot. By default 256 KiB.
    pub first_bytes: usize,
    /// How many bytes a thread copies at a time. By default 256 KiB.
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
/// Threads sleep as soon as they have no work.
pub const PINLANE_COPY_TEAM_NO_SPIN: u32 = 2;

/// The threads that help callers to copy pageable memory. Initialise with
/// `PINLANE_COPY_TEAM_OPTIONS_INIT`. 0 in a member means its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_copy_team_options {
    /// `sizeof(pinlane_copy_team_options)`.
    pub size: usize,
    /// The cores that the threads are pinned to, in turns; NULL: the system chooses.
    pub cores: *const u32,
    /// The number of `cores`.
    pub core_count: usize,
    /// How long a thread without work spins before it sleeps, in microseconds; at most 1000000. By
    /// default 200.
    pub spin_us: u64,
    /// The number of threads, at most 256. By default one less than the cores, at most 63. They
    /// start when they are first needed.
    pub threads: u32,
    /// How many of them help with one copy of memory. The others help copies of other devices, and
    /// read files. By default 7.
    pub copying: u32,
    /// 0, or some of `PINLANE_COPY_TEAM_*`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

layout!(pinlane_staging_options: 64; streaming_bytes 48, flags 56);
layout!(pinlane_copy_team_options: 48; spin_us 24, flags 40);
growing!(pinlane_staging_options_init: pinlane_staging_options, sizes [64], default {});
growing!(pinlane_copy_team_options_init: pinlane_copy_team_options, sizes [48], default {});

impl pinlane_staging_options {
    fn staging(&self) -> Result<Staging> {
        check_flags(self.flags, PINLANE_STAGING_NO_DIRECT | PINLANE_STAGING_NO_STREAMING)?;
        check_flags(self.reserved, 0)?;
        let no_direct = self.flags & PINLANE_STAGING_NO_DIRECT != 0;
        let no_streaming = self.flags & PINLANE_STAGING_NO_STREAMING != 0;
        let staging = set_unless_0(Staging::new(), self.ring_bytes, Staging::ring_bytes);
        let staging = set_unless_0(staging, self.slot_bytes, Staging::slot_bytes);
        let staging = set_unless_0(staging, self.first_bytes, Staging::first_bytes);
        let staging = set_unless_0(staging, self.unit_bytes, Staging::unit_bytes);
        let staging = set_or_0(staging, self.direct_bytes, no_direct, Staging::direct_bytes);
        Ok(set_or_0(staging, self.streaming_bytes, no_streaming, Staging::streaming_bytes))
    }
}

impl pinlane_copy_team_options {
    /// # Safety
    ///
    /// * `cores` is NULL, misaligned (both are errors), or valid for reading `core_count` elements.
    unsafe fn team(&self) -> Result<CopyTeam> {
        check_flags(self.flags, PINLANE_COPY_TEAM_ALONE | PINLANE_COPY_TEAM_NO_SPIN)?;
        check_flags(self.reserved, 0)?;
        // SAFETY: the same precondition.
        let cores = unsafe { pointer::inputs("cores", self.cores, self.core_count) }?;
        let has = |flag| self.flags & flag != 0;
        let (alone, no_spin) = (has(PINLANE_COPY_TEAM_ALONE), has(PINLANE_COPY_TEAM_NO_SPIN));
        let cores: Vec<usize> = cores.iter().map(|&core| core as usize).collect();
        let team = CopyTeam::new().cores(cores);
        let team = set_or_0(team, self.threads as usize, alone, CopyTeam::threads);
        let team = set_unless_0(team, self.copying as usize, CopyTeam::copying);
        Ok(set_or_0(team, Duration::from_micros(self.spin_us), no_spin, CopyTeam::spin))
    }
}

/// Sets how copies of pageable memory are staged on `device`, for all its handles. Call it right
/// after the device is opened: after the first such copy it fails. Allocates nothing.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` after the first copy, if `options`
/// is NULL or has an unknown size or flag, or if the sizes are out of range: a slot has at least
/// 4096 bytes, the ring has 2 to 4096 slots, the first portion and a unit have at least 1024 bytes,
/// and the first portion fits in a slot.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_set_staging(
    device: *const pinlane_device,
    options: *const pinlane_staging_options,
) -> pinlane_status {
    boundary("pinlane_device_set_staging", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::sized("options", options) }?;
        device.set_staging(options.staging()?)
    })
}

/// Prepares large copies of pageable memory and of files in advance, on an extra thread: page-locks
/// the memory of the staging options (32 MiB by default), and starts copy threads. Otherwise the
/// first such copy waits for that. Returns at once, so the program can read a header or allocate
/// device memory at the same time. Call it after `pinlane_device_set_staging`. If it fails on that
/// thread, the first copy tries again and reports the error. Calling it again is harmless.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_warm_up(device: *const pinlane_device) -> pinlane_status {
    boundary("pinlane_device_warm_up", || {
        handle::get(device)?.warm_up();
        Ok(())
    })
}

/// Makes this the copy team of the process, which all devices share. Running copies finish with the
/// former team. `options` may be NULL: the defaults. Threads start when the first large copy needs
/// them.
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
    boundary("pinlane_copy_team_install", || {
        handle::check_process()?;
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::options(options) }?;
        // SAFETY: the caller's precondition on `cores`.
        unsafe { options.team() }?.install()
    })
}
