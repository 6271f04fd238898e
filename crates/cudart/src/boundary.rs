//! What every call does: it finds the machine, keeps panics on this side, and reports what was
//! found. Calls of the runtime note their errors for `cudaGetLastError`; calls of the driver need
//! `cuInit` and, most of them, a context.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::Emulator;

use crate::driver::{self, contexts};
use crate::{faults, host_functions, lines, machine, report};

/// Declares functions of C, each by way of the function that is named first.
///
/// `fn name(arguments) |gpu| { ... }` is one function. `fn name / other(arguments)
/// |gpu, per_thread| { ... }` is two: what programs call that were compiled for per-thread default
/// streams has the second name. A list in brackets gives several names to one body. The block gives
/// a `DriverResult<()>`.
macro_rules! calls {
    ($call:path;) => {};
    (
        $call:path;
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$gpu:ident| $body:block
        $($rest:tt)*
    ) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> std::ffi::c_int {
            $call(stringify!($name), |$gpu| $body)
        }
        calls! { $call; $($rest)* }
    };
    (
        $call:path;
        $(#[$doc:meta])*
        fn $name:ident / $other:ident($($arg:ident: $ty:ty),* $(,)?) |$gpu:ident, $per:ident|
        $body:block
        $($rest:tt)*
    ) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> std::ffi::c_int {
            $call(stringify!($name), |$gpu| {
                let $per = false;
                $body
            })
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $other($($arg: $ty),*) -> std::ffi::c_int {
            $call(stringify!($name), |$gpu| {
                let $per = true;
                $body
            })
        }
        calls! { $call; $($rest)* }
    };
    (
        $call:path;
        fn [$($name:ident),+] $args:tt |$gpu:ident| $body:block
        $($rest:tt)*
    ) => {
        $(calls! { $call; fn $name $args |$gpu| $body })+
        calls! { $call; $($rest)* }
    };
    (
        $call:path;
        fn [$($name:ident / $other:ident),+] $args:tt |$gpu:ident, $per:ident| $body:block
        $($rest:tt)*
    ) => {
        $(calls! { $call; fn $name / $other $args |$gpu, $per| $body })+
        calls! { $call; $($rest)* }
    };
}

/// Declares functions of CUDA: of the runtime (`cuda...`) and of the driver (`cu...`), as their
/// names say.
macro_rules! cuda {
    ($($functions:tt)*) => { calls! { $crate::boundary::call; $($functions)* } };
}

thread_local! {
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a stand-in for a kernel; every call from inside it is refused.
pub fn as_kernel(work: impl FnOnce()) {
    IN_KERNEL.set(true);
    work();
    IN_KERNEL.set(false);
}

/// Whether the thread is inside a stand-in for a kernel.
pub fn is_in_kernel() -> bool {
    IN_KERNEL.try_with(Cell::get).unwrap_or(false)
}

/// Which of the two libraries of CUDA a function belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Runtime,
    Driver,
}

impl Api {
    pub fn of(name: &str) -> Self {
        let of_runtime = name.trim_start_matches('_').starts_with("cuda");
        if of_runtime { Api::Runtime } else { Api::Driver }
    }

    /// What every call fails with, as things are.
    fn refusal(self, name: &str) -> Option<CudaCode> {
        match self {
            Api::Runtime => machine::refusal(),
            Api::Driver => driver::refusal(name),
        }
    }
}

/// What the call of that name gives back to C.
pub fn call(name: &'static str, work: impl FnOnce(&Emulator) -> DriverResult<()>) -> c_int {
    if is_in_kernel() {
        return CudaCode::NOT_PERMITTED.0;
    }
    let Some(gpu) = Emulator::unseen(machine::gpu) else { return CudaCode::INITIALIZATION.0 };
    let api = Api::of(name);
    let here = 0;
    let noted = noted_by(&here, &work);
    let outer = gpu.exchange_call(name);
    let refusal = || host_functions::refusal(gpu, name).or_else(|| api.refusal(name));
    let code = Emulator::unseen(|| match refusal() {
        Some(code) => code,
        None => run(gpu, api, name, work),
    });
    gpu.exchange_call(outer);
    Emulator::unseen(|| gpu.call_returns());
    drop(noted);
    Emulator::unseen(|| match machine::is_forked() {
        true => report::forked(),
        false => report::flush(gpu),
    });
    match api {
        Api::Runtime => gpu.note_error(code),
        Api::Driver => return driver::errors::as_driver(code).0,
    }
    code.0
}

fn noted_by<F>(here: &u8, _work: &F) -> lines::Noted {
    lines::Noted::new::<F>(here)
}

fn run(
    gpu: &Emulator,
    api: Api,
    name: &str,
    work: impl FnOnce(&Emulator) -> DriverResult<()>,
) -> CudaCode {
    let fault = faults::strike(name);
    if let Some(fault) = fault.filter(|fault| !fault.is_late) {
        return fault.fail(gpu);
    }
    if api == Api::Runtime {
        contexts::used_by_runtime(gpu, name);
    }
    let code = match catch_unwind(AssertUnwindSafe(|| work(gpu))) {
        Ok(Ok(())) => CudaCode::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CudaCode::UNKNOWN,
    };
    fault.map_or(code, |fault| fault.fail(gpu))
}
