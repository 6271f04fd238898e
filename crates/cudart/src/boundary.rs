//! What every call does: it finds the machine, catches panics, and reports findings. Calls of the
//! runtime note their errors for `cudaGetLastError`; calls of the driver need `cuInit`, and most of
//! them a context.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pinlane_base::sanitizer::ours;
use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::Emulator;

use crate::driver::{self, contexts};
use crate::machine::Process;
use crate::{data, host_functions, lines, machine, report};

/// Declares functions of C. `$call` runs the body of each.
///
/// `fn name(arguments) |gpu| { ... }` is one function. `fn name / other(arguments)
/// |gpu, per_thread| { ... }` is two: programs that were compiled for per-thread default streams
/// call the second name. A list in brackets gives several names to one body. The block gives a
/// `DriverResult<()>`.
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
        let name = name.trim_start_matches('_');
        let of_driver = name.starts_with("cu") && !name.starts_with("cuda");
        if of_driver { Api::Driver } else { Api::Runtime }
    }
}

/// What the call of that name gives back to C.
pub fn call(name: &'static str, work: impl FnOnce(&Emulator) -> DriverResult<()>) -> c_int {
    if is_in_kernel() {
        return CudaCode::NOT_PERMITTED.0;
    }
    let here = 0;
    let code = ours(|| {
        let Some(process) = machine::process() else { return CudaCode::INITIALIZATION.0 };
        let (gpu, api) = (&process.gpu, Api::of(name));
        let noted = noted_by(&here, &work);
        let outer = gpu.enter_call(name);
        let code = match refusal(process, api, name) {
            Some(code) => code,
            None => run(process, api, name, work),
        };
        let has_findings = gpu.leave_call(outer);
        drop(noted);
        if machine::is_forked() {
            report::forked(name);
        } else if has_findings {
            report::write(gpu);
        }
        if api == Api::Driver {
            return driver::errors::as_driver(code).0;
        }
        gpu.note_error(code);
        code.0
    });
    data::drop_data();
    code
}

fn noted_by<F>(here: &u8, _work: &F) -> lines::Noted {
    lines::Noted::new::<F>(here)
}

/// The error of a call that may not be made now.
fn refusal(process: &Process, api: Api, name: &str) -> Option<CudaCode> {
    if process.gpu.is_in_host_function()
        && let Some(code) = host_functions::refusal(&process.gpu, name)
    {
        return Some(code);
    }
    match api {
        Api::Runtime => process.refusal(),
        Api::Driver => driver::refusal(name),
    }
}

fn run(
    process: &Process,
    api: Api,
    name: &str,
    work: impl FnOnce(&Emulator) -> DriverResult<()>,
) -> CudaCode {
    let gpu = &process.gpu;
    let fault = process.faults.as_ref().and_then(|faults| faults.strike(name));
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

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> c_int {
    machine::process().map_or(CudaCode::INITIALIZATION, |process| process.gpu.take_error()).0
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> c_int {
    machine::process().map_or(CudaCode::INITIALIZATION, |process| process.gpu.peek_error()).0
}
