//! The lines of the program that make calls, for findings.
//!
//! A call notes the first addresses outside of this library that it returns to. Only a finding asks
//! for their lines, which the debug information of the program and its libraries tells.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use pinlane::driver::emulated::{Callers, Site};

use crate::machine;

pub fn are_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| machine::variable("PINLANE_CUDART_SITES", 1) != 0)
}

/// Notes where the program makes a call. A call inside of another is made where that one is.
pub struct Noted(Option<Callers>);

impl Noted {
    pub fn new() -> Self {
        if !are_wanted() {
            return Noted(None);
        }
        let outer = Callers::default().exchange();
        let callers = if outer == Callers::default() { callers() } else { outer };
        callers.exchange();
        Noted(Some(outer))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(outer) = self.0 {
            outer.exchange();
        }
    }
}

#[inline(never)]
fn callers() -> Callers {
    let own = own_code();
    let (mut callers, mut count) = (Callers::default(), 0);
    // SAFETY: what must not happen at the same time is the look-up of symbols on some systems; here
    // frames are only walked through.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let at = frame.ip().addr();
            if !own.contains(&at) {
                callers.0[count] = at;
                count += 1;
            }
            count < Callers::MOST
        });
    }
    callers
}

/// The addresses of this library.
fn own_code() -> &'static Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| {
        let mut own = 0..0;
        // SAFETY: `note_own` gets what it expects, for the time of the call.
        unsafe { libc::dl_iterate_phdr(Some(note_own), (&raw mut own).cast()) };
        own
    })
}

/// Looks whether a library is this one.
unsafe extern "C" fn note_own(
    library: *mut libc::dl_phdr_info,
    _size: usize,
    own: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker gives its description of a library, which is valid for the call;
    // `own` is the range of `own_code`.
    let (library, own) = unsafe { (&*library, &mut *own.cast::<Range<usize>>()) };
    // SAFETY: the library has so many headers.
    let headers =
        unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) };
    let here = callers as *const () as usize;
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = (library.dlpi_addr + header.p_vaddr) as usize;
        let segment = start..start + header.p_memsz as usize;
        if segment.contains(&here) {
            *own = segment;
            return 1;
        }
    }
    0
}

/// The first line that one of them has.
pub fn look_up(callers: &Callers) -> Option<Site> {
    callers.0.iter().filter(|&&at| at != 0).find_map(|&at| {
        let mut site = None;
        backtrace::resolve(std::ptr::without_provenance_mut(at), |symbol| {
            if let (None, Some(file), Some(line)) = (&site, symbol.filename(), symbol.lineno()) {
                site = Some(Site { file: file.display().to_string(), line });
            }
        });
        site
    })
}
