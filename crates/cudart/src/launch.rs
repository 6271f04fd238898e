//! Functions of this library's own: a program launches kernels that are functions of the host, and
//! declares what they use. `include/pinlane_dropin.h` documents them for programs.
//!
//! A launch owns the program's data. When nothing needs a launch any more, its data is dropped at
//! the end of the next call, with nothing locked: the program may then make calls.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use pinlane_driver::CudaCode;
use pinlane_emulator::{DeclaredUse, Emulator};

use crate::abi::Handle;
use crate::driver::contexts::stream;
use crate::stand_ins::kept;
use crate::{boundary, machine};

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
            writes: writes != 0,
        }
    }
}

/// A function of the program.
type Function = unsafe extern "C" fn(*mut c_void);

/// What a program gives a launch.
struct Work {
    number: u64,
    function: Option<Function>,
    data: *mut c_void,
    drop: Option<Function>,
    /// Held while it runs; true once its data is dropped.
    is_over: Mutex<bool>,
}

// SAFETY: the program says that its functions may be called with the data on any thread
// (`pinlane_launch`), one at a time: `is_over` is locked while one runs.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

/// Data that nothing needs any more.
struct Dropped {
    drop: Function,
    data: *mut c_void,
}

// SAFETY: as for `Work`.
unsafe impl Send for Dropped {}

impl Dropped {
    fn drop_now(self) {
        // SAFETY: the program says that this may be called, once; there is one `Dropped` for each
        // piece of data, and this consumes it.
        unsafe { (self.drop)(self.data) };
    }
}

/// All launches whose data is not dropped.
static ALIVE: Mutex<BTreeMap<u64, Weak<Work>>> = Mutex::new(BTreeMap::new());
static DROPPED: Mutex<Vec<Dropped>> = Mutex::new(Vec::new());
static ARE_DROPPED: AtomicBool = AtomicBool::new(false);
/// What the work that runs has used besides; `None` while none runs.
static FOUND: Mutex<Option<Vec<DeclaredUse>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    fn new(function: Option<Function>, data: *mut c_void, drop: Option<Function>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        static AT_EXIT: Once = Once::new();
        // It runs before the destructors of what is older than the first launch. If it cannot be
        // registered, `report.rs` calls it later.
        AT_EXIT.call_once(|| {
            // SAFETY: a function of this library, which is never unloaded.
            unsafe { libc::atexit(drop_all) };
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let work = Arc::new(Work { number, function, data, drop, is_over: Mutex::new(false) });
        locked(&ALIVE).insert(number, Arc::downgrade(&work));
        work
    }

    /// Runs it, unless the process ends. Gives what it used besides what was declared.
    fn run(&self) -> Vec<DeclaredUse> {
        let is_over = locked(&self.is_over);
        let Some(function) = self.function.filter(|_| !*is_over) else { return Vec::new() };
        *locked(&FOUND) = Some(Vec::new());
        // SAFETY: the program says that it may be called with the data, until that is dropped.
        boundary::as_kernel(|| unsafe { function(self.data) });
        locked(&FOUND).take().unwrap_or_default()
    }

    /// The data, the first time.
    fn end(&self, is_over: &mut bool) -> Option<Dropped> {
        let (is_first, data) = (!std::mem::replace(is_over, true), self.data);
        self.drop.filter(|_| is_first).map(|drop| Dropped { drop, data })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        locked(&ALIVE).remove(&self.number);
        // Perhaps under the machine's lock.
        let dropped = self.end(&mut locked(&self.is_over));
        if let Some(dropped) = dropped {
            locked(&DROPPED).push(dropped);
            ARE_DROPPED.store(true, Ordering::Release);
        }
    }
}

/// Drops the data that nothing needs any more. No lock is held when it is called.
#[inline]
pub fn drop_data() {
    if ARE_DROPPED.load(Ordering::Acquire) && !machine::is_forked() {
        drop_waiting();
    }
}

#[cold]
fn drop_waiting() {
    ARE_DROPPED.store(false, Ordering::Relaxed);
    let dropped = std::mem::take(&mut *locked(&DROPPED));
    dropped.into_iter().for_each(Dropped::drop_now);
}

/// The process ends. What runs on another thread keeps its data.
pub extern "C" fn drop_all() {
    if machine::is_forked() {
        return;
    }
    let alive: Vec<Arc<Work>> = locked(&ALIVE).values().filter_map(Weak::upgrade).collect();
    for work in &alive {
        let dropped = work.is_over.try_lock().ok().and_then(|mut over| work.end(&mut over));
        dropped.into_iter().for_each(Dropped::drop_now);
    }
    drop(alive);
    drop_waiting();
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
    let has_function = work.is_some();
    let work = Work::new(work, data, drop);
    boundary::call("pinlane_launch", move |gpu| {
        // SAFETY: the caller says that there are so many.
        let uses = unsafe { listed(uses, count) };
        let uses = uses.filter(|_| has_function).ok_or(CudaCode::INVALID_VALUE)?;
        // SAFETY: the caller says that it is NULL or a text of C.
        let name = unsafe { text(name) }.ok_or(CudaCode::INVALID_VALUE)?;
        let stream = stream(gpu, handle, false)?;
        // SAFETY: `pinlane_launch` demands of the program's function what is demanded here.
        unsafe { gpu.launch_declared(stream, kept(&name), &uses, Box::new(move || work.run())) }
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
