//! Findings: each is written when it is found, so that a crash does not hide it; at the end of the
//! process, the exit status may say that there were some.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{env, fmt};

use pinlane_emulator::Emulator;

use crate::machine::{self, Process};
use crate::{data, record, run};

static WRITER: Mutex<Writer> = Mutex::new(Writer::New);

enum Writer {
    New,
    Stderr,
    File(File),
}

impl Writer {
    fn open(&mut self) {
        if !matches!(self, Writer::New) {
            return;
        }
        *self = Writer::Stderr;
        let Some(path) = env::var_os("PINLANE_CUDART_REPORT") else { return };
        match OpenOptions::new().create(true).append(true).open(&path) {
            Ok(file) => *self = Writer::File(file),
            Err(error) => unwritten(&path, &error),
        }
    }
}

fn unwritten(path: &OsString, error: &dyn fmt::Display) {
    eprintln!("pinlane-cudart: cannot write {path:?} ({error}); findings are printed here");
}

/// Writes what was found since the last time.
#[cold]
pub fn write(gpu: &Emulator) {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    writer.open();
    for finding in gpu.take_findings() {
        match &mut *writer {
            Writer::File(file) => {
                let _ = file.write_all(line(&finding.to_json()).as_bytes());
            }
            _ => print(finding),
        }
    }
}

/// Says once that a forked child calls CUDA, and which call that is. Some thread of its parent may
/// have held any lock when it forked: none is taken here.
#[cold]
pub fn forked(call: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let what = format_args!("a child that was forked calls {call} before it has called exec");
    let opened = env::var_os("PINLANE_CUDART_REPORT")
        .and_then(|path| OpenOptions::new().create(true).append(true).open(path).ok());
    match opened {
        Some(mut file) => {
            let (mode, seed) = (run::this().mode(), run::this().seed());
            let object = format!(
                "{{\"kind\":\"CallAfterFork\",\"message\":\"{what}\",\
                 \"mode\":\"{mode}\",\"seed\":{seed},\"race\":null,\"site\":null}}"
            );
            let _ = file.write_all(line(&object).as_bytes());
        }
        None => print(format_args!("CallAfterFork: {what}")),
    }
}

/// A finding for people, and how to see it again.
fn print(finding: impl fmt::Display) {
    eprintln!("pinlane-cudart: {finding}\n  replay: {}", run::this().command());
}

/// The JSON object of a finding with one more member, which says how to see it again.
fn line(object: &str) -> String {
    let open = object.strip_suffix('}').unwrap_or(object);
    format!("{open},\"replay\":\"{}\"}}\n", run::this())
}

/// Run when the process ends, after the program's own destructors.
extern "C" fn at_exit() {
    let Some(Process { gpu, faults, .. }) = machine::built().filter(|_| !machine::is_forked())
    else {
        return;
    };
    data::drop_all();
    write(gpu);
    if let Some(faults) = faults {
        faults.report();
    }
    record::write(gpu);
    let status = env::var("PINLANE_CUDART_EXIT").ok().and_then(|status| status.parse().ok());
    if let Some(status) = status
        && gpu.finding_count() > 0
    {
        // SAFETY: NULL means all streams of C; the end of the process skips nothing else that
        // matters.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(status);
        }
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
