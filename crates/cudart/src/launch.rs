//! Functions of this library's own: a program launches kernels that are functions of the host, and
//! declares what they use. `include/pinlane_dropin.h` documents them for programs.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

use pinlane_base::sanitizer::ours;
use pinlane_driver::CudaCode;
use pinlane_emulator::{DeclaredUse, Emulator};

use crate::abi::Handle;
use crate::boundary;
use crate::data::{Data, Function, locked};
use crate::driver::contexts::stream;
use crate::machine;
use crate::stand_ins::kept;

/// `PINLANE_LATER`
const LATER: c_int = 2;

/// `pinlane_use`
#[repr(C)]
#[derive(Clone, Copy)]
struct Use {
    start: *const c_void,
    bytes: usize,
    rows: usize,
    stride: usize,
    writes: c_int,
}

impl Use {
    fn declared(self) -> DeclaredUse {
        let Use { start, bytes, rows, stride, writes } = self;
        DeclaredUse {
            start: start.addr() as u64,
            bytes: bytes as u64,
            rows: rows as u64,
            stride: stride as u64,
            writes: writes & 1 != 0,
            later: writes & LATER != 0,
        }
    }
}

/// What the work that runs has used besides; `None` while none runs.
static FOUND: Mutex<Option<Vec<DeclaredUse>>> = Mutex::new(None);

/// Runs work, unless the process ends. Gives what it used besides what was declared.
fn run(work: Function, data: &Data) -> Vec<DeclaredUse> {
    data.lend(|data| {
        *locked(&FOUND) = Some(Vec::new());
        // SAFETY: the program says that it may be called with the data, until that is dropped.
        boundary::as_kernel(|| unsafe { work(data) });
        locked(&FOUND).take()
    })
    .flatten()
    .unwrap_or_default()
}

/// The uses in a list of C; `None` if it is NULL and is not empty.
///
/// # Safety
///
/// * `uses` is NULL, or has `count` entries.
unsafe fn listed(uses: *const Use, count: usize) -> Option<Vec<DeclaredUse>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if uses.is_null() {
        return None;
    }
    // SAFETY: there are so many entries: promised by the caller.
    let entry = |index| unsafe { uses.add(index).read_unaligned() };
    Some((0..count).map(entry).map(Use::declared).collect())
}

/// See `pinlane_dropin.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pinlane_launch(
    name: *const c_char,
    handle: Handle,
    uses: *const Use,
    count: usize,
    work: Option<Function>,
    data: *mut c_void,
    drop: Option<Function>,
) -> c_int {
    let data = Data::new(data, drop);
    boundary::call("pinlane_launch", move |gpu| {
        // SAFETY: the caller says that there are so many.
        let uses = unsafe { listed(uses, count) };
        let (Some(uses), Some(work)) = (uses, work) else { return Err(CudaCode::INVALID_VALUE) };
        // SAFETY: the caller says that it is NULL or a text of C.
        let name = unsafe { text(name) }.ok_or(CudaCode::INVALID_VALUE)?;
        let stream = stream(gpu, handle, false)?;
        // SAFETY: `pinlane_launch` demands of the program's function what is demanded here.
        unsafe {
            gpu.launch_declared(stream, kept(&name), &uses, Box::new(move || run(work, &data)))
        }
    })
}

/// The text at a pointer of C; `None` if it is NULL.
///
/// # Safety
///
/// * `text` is NULL, or a text that ends with NUL, and stays as it is while the result is used.
unsafe fn text<'a>(text: *const c_char) -> Option<Cow<'a, str>> {
    // SAFETY: not NULL, so it is a text of C: promised by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// See `pinlane_dropin.h`.
#[unsafe(no_mangle)]
extern "C" fn pinlane_storage(address: *const c_void) -> *mut c_void {
    if boundary::is_in_kernel() {
        return std::ptr::null_mut();
    }
    let process = machine::process().filter(|_| !machine::is_forked());
    let found = ours(|| process.and_then(|process| process.gpu.storage_of(address.addr() as u64)));
    found.map_or(address.cast_mut(), |storage| storage.as_ptr().cast())
}

/// See `pinlane_dropin.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pinlane_label(label: *const c_char) {
    // SAFETY: the caller says that it is NULL or a text of C.
    Emulator::label_calls(unsafe { text(label) }.map(|label| kept(&label)));
}

/// See `pinlane_dropin.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pinlane_unsupported(what: *const c_char) {
    boundary::call("pinlane_unsupported", |gpu| {
        // SAFETY: the caller says that it is NULL or a text of C.
        gpu.unsupported(&unsafe { text(what) }.ok_or(CudaCode::INVALID_VALUE)?);
        Ok(())
    });
}

/// See `pinlane_dropin.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pinlane_used(uses: *const Use, count: usize) {
    // SAFETY: the caller says that there are so many.
    let uses = unsafe { listed(uses, count) };
    if let (Some(found), Some(uses)) = (&mut *locked(&FOUND), uses) {
        found.extend(uses);
    }
}
