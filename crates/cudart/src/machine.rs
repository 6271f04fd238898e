//! The one machine of the process, as the environment says. The first call builds it.

use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinlane_base::sources::Sources;
use pinlane_driver::CudaCode;
use pinlane_emulator::{Emulator, leave_out};

use crate::environment::{self, devices, is_quiet, misunderstood, variable, version};
use crate::faults::Faults;
use crate::{lines, python, record, run};

/// Findings name the program's lines, and never this library's.
static OWN: Sources = pinlane_base::own_sources!("machine.rs");

/// The machine, and what the environment says about all calls.
pub struct Process {
    pub gpu: Emulator,
    /// The calls that fail, if some do.
    pub faults: Option<Faults>,
    /// What every call of the runtime fails with, if there is no device to use.
    missing: Option<CudaCode>,
}

static PROCESS: OnceLock<Option<Process>> = OnceLock::new();

/// Whether this is a child of the process that made the machine (rule 31).
static IS_FORKED: AtomicBool = AtomicBool::new(false);
/// Whether the driver has unloaded (rule 30).
static IS_UNLOADED: AtomicBool = AtomicBool::new(false);

pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// The error of every call in a forked child and once the driver has unloaded (rules 30 and 31).
pub fn ended() -> Option<CudaCode> {
    if is_forked() {
        return Some(CudaCode::INITIALIZATION);
    }
    IS_UNLOADED.load(Ordering::Relaxed).then_some(CudaCode::CUDART_UNLOADING)
}

extern "C" fn fork_child() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

extern "C" fn unload() {
    IS_UNLOADED.store(true, Ordering::Relaxed);
    if let Some(process) = built().filter(|_| !is_forked()) {
        let _ = process.gpu.lose_device(0, CudaCode::CUDART_UNLOADING);
    }
}

/// The machine; `None` if it could not be built.
#[inline]
pub fn process() -> Option<&'static Process> {
    PROCESS.get_or_init(|| catch_unwind(begin).unwrap_or_default()).as_ref()
}

/// The same, if some call has built it.
pub fn built() -> Option<&'static Process> {
    PROCESS.get()?.as_ref()
}

impl Process {
    /// The error of a call of the runtime that may not be made now.
    pub fn refusal(&self) -> Option<CudaCode> {
        ended().or(self.missing)
    }
}

fn begin() -> Option<Process> {
    let faults = environment::value("PINLANE_CUDART_FAULT");
    let missing = match () {
        () if environment::driver_version() < version() / 1000 * 1000 => {
            Some(CudaCode::INSUFFICIENT_DRIVER)
        }
        () if devices() == 0 => Some(CudaCode::NO_DEVICE),
        () => None,
    };
    Some(Process { gpu: build()?, faults, missing })
}

fn build() -> Option<Emulator> {
    // A hang says nothing. No host function should take so long.
    const SECONDS: &str = "PINLANE_CUDART_HOST_FUNCTION_SECONDS";
    const GIBIBYTES: &str = "PINLANE_CUDART_MEMORY_GIB";
    let seconds: f64 = variable(SECONDS, 60.0);
    let memory = variable(GIBIBYTES, 4_usize).checked_mul(1 << 30);
    let memory = memory.unwrap_or_else(|| misunderstood(GIBIBYTES));
    let mut builder = Emulator::builder();
    if seconds > 0.0 {
        let limit = Duration::try_from_secs_f64(seconds);
        builder = builder.host_function_limit(limit.unwrap_or_else(|_| misunderstood(SECONDS)));
    }
    if record::is_wanted() {
        builder = builder.record(true);
        record::at_errors();
    }
    let gpu = run::this()
        .build(builder)
        .devices(devices())
        .memory_bytes(memory)
        .watch_host(variable("PINLANE_CUDART_WATCH", 1) != 0)
        .memory_pools(environment::has_memory_pools())
        .stage_pageable(environment::chooses("PINLANE_CUDART_PAGEABLE", "cuda", "staged"))
        .build_for_program();
    leave_out(&OWN);
    if let Some(gpu) = gpu.as_ref().filter(|_| lines::are_wanted()) {
        python::look();
        gpu.look_up_lines(lines::all());
    }
    tell_of_room(gpu.as_ref(), memory);
    // SAFETY: both functions touch nothing but flags and, where it is safe, the machine.
    unsafe {
        libc::pthread_atfork(None, None, Some(fork_child));
        if gpu.as_ref().is_some_and(|gpu| gpu.unloads_early()) {
            // Run before the destructors of what was made before this call, and after the others.
            libc::atexit(unload);
        }
    }
    gpu
}

/// Says that the devices have less memory than they should have, or none, and what to do.
fn tell_of_room(gpu: Option<&Emulator>, wanted: usize) {
    let limits = format!(
        "address space ({}) and files ({}): raise them, as by `ulimit -v unlimited; ulimit -f \
         unlimited`",
        limit(libc::RLIMIT_AS),
        limit(libc::RLIMIT_FSIZE)
    );
    let Some(gpu) = gpu else {
        eprintln!(
            "pinlane-cudart: the devices need 768 MiB of addresses, and the process has not so \
             many: every call fails. It is limited in {limits}"
        );
        return;
    };
    let info = gpu.memory_info(0);
    let bytes = info.map_or(wanted, |(_, total)| total);
    if bytes < wanted && !is_quiet() {
        eprintln!(
            "pinlane-cudart: a device has {} MiB of memory, not {}, because the process has room \
             for few addresses. It is limited in {limits}, or ask for less by \
             PINLANE_CUDART_MEMORY_GIB",
            bytes >> 20,
            wanted >> 20
        );
    }
}

/// A limit of the process in words.
fn limit(resource: libc::__rlimit_resource_t) -> String {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it fills the struct, or leaves it as it is.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    match limit.rlim_cur {
        libc::RLIM_INFINITY => "not by ulimit".to_owned(),
        bytes => format!("ulimit: {} KiB", bytes >> 10),
    }
}
