//! The lines of the program that make calls, for findings. Those of Python are in `python/`.
//!
//! A call notes the first addresses outside of this library that it returns to. Only a finding asks
//! for their lines, which stand in the debug information of the program and its libraries.
//!
//! A walk through the frames takes microseconds. But each function of this library keeps the
//! address that it returns to at the same distance from its variables. So a walk finds that
//! distance once, and an address that was met before needs no other walk, unless it has no line:
//! then its callers count.
//!
//! Frames of Python are walked through whenever a call needs its line, as most need none.

use std::any::type_name;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pinlane_emulator::{Callers, Lines, Note, Site};

use crate::{environment, python};

pub fn are_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| environment::variable("PINLANE_CUDART_SITES", 1) != 0)
}

/// Notes where the program makes a call. A call inside of another is made where that one is.
pub struct Noted(Option<Callers>);

impl Noted {
    /// `F` is a type that only the called function has, and `here` a variable in its frame, or in
    /// that of a function of `F` with one caller.
    #[inline]
    pub fn new<F>(here: &u8) -> Self {
        if !are_wanted() {
            return Noted(None);
        }
        let outer = Callers::default().exchange();
        let callers = match outer == Callers::default() {
            true if python::is_there() => Callers::LATER,
            true => callers_of(type_name::<F>(), std::ptr::from_ref(here)),
            false => outer,
        };
        callers.exchange();
        Noted(Some(outer))
    }
}

/// How many functions, and how many callers of each, a thread remembers.
const FUNCTIONS: usize = 64;
const RETURNS: usize = 16;

/// A function that was called.
struct Function {
    name: &'static str,
    /// The distance from a variable in its frame to the address that it returns to.
    distance: usize,
    /// Addresses that it has returned to.
    returns: Vec<usize>,
}

thread_local! {
    static MET: RefCell<Vec<Function>> = const { RefCell::new(Vec::new()) };
}

/// Addresses without a line: their callers count.
static LINELESS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
/// Whether there are any.
static ARE_LINELESS: AtomicBool = AtomicBool::new(false);

fn is_lineless(at: usize) -> bool {
    let lineless = || LINELESS.lock().unwrap_or_else(PoisonError::into_inner);
    ARE_LINELESS.load(Ordering::Relaxed) && lineless().contains(&at)
}

fn callers_of(name: &'static str, here: *const u8) -> Callers {
    let known = MET.try_with(|met| known_return(&met.try_borrow().ok()?, name, here));
    if let Some(at) = known.ok().flatten().filter(|&at| !is_lineless(at)) {
        return Callers::of(at);
    }
    let (callers, stack) = callers();
    let _ = MET.try_with(|met| {
        let Ok(mut met) = met.try_borrow_mut() else { return };
        remember(&mut met, name, here, callers.0[0], stack);
    });
    callers
}

/// The address that a function returns to, if it was met before.
fn known_return(met: &[Function], name: &'static str, here: *const u8) -> Option<usize> {
    let function = met.iter().find(|function| std::ptr::eq(function.name, name))?;
    // SAFETY: the frame of the function lies above `here`, and the address that it returns to at
    // this distance, as was found when it was called before.
    let at = unsafe { here.byte_add(function.distance).cast::<usize>().read_volatile() };
    function.returns.contains(&at).then_some(at)
}

/// `stack` is where the caller's part of the stack begins; on x86-64 the address that the function
/// returns to lies below that.
fn remember(met: &mut Vec<Function>, name: &'static str, here: *const u8, at: usize, stack: usize) {
    let slot = stack.wrapping_sub(size_of::<usize>());
    let distance = slot.wrapping_sub(here.addr());
    let is_known = cfg!(target_arch = "x86_64") && at != 0 && distance < 1 << 16;
    // SAFETY: the slot lies on the stack of this thread, above its variables, and is aligned.
    if !is_known || unsafe { here.byte_add(distance).cast::<usize>().read_volatile() } != at {
        return;
    }
    let has_room = met.len() < FUNCTIONS;
    match met.iter_mut().find(|function| std::ptr::eq(function.name, name)) {
        Some(function) if function.distance != distance => {
            *function = Function { name, distance, returns: vec![at] };
        }
        Some(function) if function.returns.contains(&at) => {}
        Some(function) if function.returns.len() < RETURNS => function.returns.push(at),
        Some(function) => function.returns[at / 4 % RETURNS] = at,
        None if has_room => met.push(Function { name, distance, returns: vec![at] }),
        None => {}
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(outer) = self.0 {
            outer.exchange();
        }
    }
}

/// The first address outside of this library that the call in hand returns to.
pub fn first_caller() -> usize {
    callers().0.0[0]
}

/// The callers, and the stack pointer of the first of them.
#[inline(never)]
fn callers() -> (Callers, usize) {
    let own = own_code();
    let (mut callers, mut count, mut stack) = (Callers::default(), 0, 0);
    // SAFETY: what must not happen at the same time is the look-up of symbols on some systems; here
    // frames are only walked through.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let at = frame.ip().addr();
            if !own.contains(&at) {
                stack = if count == 0 { frame.sp().addr() } else { stack };
                callers.0[count] = at;
                count += 1;
            }
            count < Callers::MOST
        });
    }
    (callers, stack)
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

/// How a machine finds lines.
pub fn all() -> Lines {
    let (note, noted) = (python::note, |note: &Note| python::noted(note).map(Callers::of));
    Lines { look_up, callers: late_callers, here: python::here, note, noted }
}

/// What stands for the frames of Python, or else the callers.
fn late_callers() -> Callers {
    python::at_call().map_or_else(|| callers().0, Callers::of)
}

/// The first line that one of them has.
fn look_up(callers: &Callers) -> Option<Site> {
    if let Some(site) = python::site(callers.0[0]) {
        return Some(site);
    }
    let first = line_of(callers.0[0]);
    if first.is_none() {
        LINELESS.lock().unwrap_or_else(PoisonError::into_inner).insert(callers.0[0]);
        ARE_LINELESS.store(true, Ordering::Relaxed);
    }
    first.or_else(|| callers.0[1..].iter().find_map(|&at| line_of(at)))
}

fn line_of(at: usize) -> Option<Site> {
    (at != 0).then(|| {
        let mut site = None;
        backtrace::resolve(std::ptr::without_provenance_mut(at), |symbol| {
            let is_reserved = symbol.name().is_some_and(|name| is_reserved(name.as_bytes()));
            if let (None, Some(file), Some(line)) = (&site, symbol.filename(), symbol.lineno())
                && !is_of_cuda(file)
                && !is_reserved
            {
                site = Some(Site::new(file.display().to_string(), line));
            }
        });
        site
    })?
}

/// Whether a function is the C library's, which copies memory for the program, or of the library of
/// C++, whose templates do.
fn is_reserved(name: &[u8]) -> bool {
    const BEGIN: [&[u8]; 5] = [b"__", b"_ZSt", b"_ZNSt", b"_ZNKSt", b"_ZN9__gnu_cxx"];
    BEGIN.iter().any(|begin| name.starts_with(begin))
}

/// Whether a file is one of NVIDIA's headers, whose templates make calls for the program, or what
/// nvcc writes for each kernel, which launches it.
fn is_of_cuda(file: &Path) -> bool {
    const HEADERS: [&str; 3] = ["cuda_runtime.h", "device_functions.h", "host_runtime.h"];
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    HEADERS.contains(&&*name) || name.ends_with(".cudafe1.stub.c")
}
