//! CPython in this process, and the states of its threads.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::layout::{self, Layout, Objects};
use super::memory::{Changing, Memory};
use crate::abi::find;

type Answer = unsafe extern "C" fn() -> c_int;
type State = unsafe extern "C" fn() -> *mut c_void;
type OfObject = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type NumberOf = unsafe extern "C" fn(*mut c_void) -> c_int;
type Release = unsafe extern "C" fn(*mut c_void);

/// CPython's own functions, none of which needs the GIL or takes a lock.
struct Functions {
    is_initialized: Answer,
    is_finalizing: Answer,
    this_thread: State,
    holder: State,
    main: State,
    newest_thread: OfObject,
}

/// What says, while the thread holds the GIL, what a layout should give.
pub struct Api {
    pub frame: OfObject,
    pub code: OfObject,
    pub line: NumberOf,
    pub release: Release,
}

pub struct Interpreter {
    pub objects: Objects,
    pub api: Api,
    functions: Functions,
    /// Whether frames were found by this layout.
    fits: AtomicBool,
    /// Whether the API was asked.
    pub is_checked: AtomicBool,
    is_refused: AtomicBool,
}

impl Interpreter {
    /// That of the process. It is looked for once.
    #[inline]
    pub fn of_process() -> Option<&'static Interpreter> {
        static FOUND: OnceLock<Option<Interpreter>> = OnceLock::new();
        let found = FOUND.get_or_init(Interpreter::find).as_ref()?;
        (!found.is_refused.load(Ordering::Relaxed)).then_some(found)
    }

    fn find() -> Option<Interpreter> {
        let version = find(c"Py_GetVersion")?;
        // SAFETY: `const char *Py_GetVersion(void)` gives a constant text.
        let version = unsafe {
            let get = transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(version);
            CStr::from_ptr(get()).to_str().ok()?
        };
        let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
        let version = (parts.next()??, parts.next()??);
        let debug = find(c"_PyRuntime").and_then(|at| {
            Changing.words(at.addr(), std::array::from_fn(|word| size_of::<usize>() * word))
        });
        let debug = debug.unwrap_or([0; layout::WORDS]);
        let layout = layout::of(version, &debug);
        let found = layout.and_then(Interpreter::with);
        if found.is_none() {
            let (major, minor) = version;
            let build = if layout::is_free_threaded(&debug) { "free-threaded " } else { "" };
            complain(&format!("frames of this {build}CPython {major}.{minor} are not known"));
        }
        found
    }

    fn with(layout: Layout) -> Option<Interpreter> {
        let either = |new, old| find(new).or_else(|| find(old));
        // SAFETY: these are the types of CPython's functions of these names, in all versions of
        // which there is a layout.
        let (functions, api) = unsafe {
            let functions = Functions {
                is_initialized: transmute::<*mut c_void, Answer>(find(c"Py_IsInitialized")?),
                is_finalizing: transmute::<*mut c_void, Answer>(either(
                    c"Py_IsFinalizing",
                    c"_Py_IsFinalizing",
                )?),
                this_thread: transmute::<*mut c_void, State>(find(
                    c"PyGILState_GetThisThreadState",
                )?),
                holder: transmute::<*mut c_void, State>(either(
                    c"PyThreadState_GetUnchecked",
                    c"_PyThreadState_UncheckedGet",
                )?),
                main: transmute::<*mut c_void, State>(find(c"PyInterpreterState_Main")?),
                newest_thread: transmute::<*mut c_void, OfObject>(find(
                    c"PyInterpreterState_ThreadHead",
                )?),
            };
            let api = Api {
                frame: transmute::<*mut c_void, OfObject>(find(c"PyThreadState_GetFrame")?),
                code: transmute::<*mut c_void, OfObject>(find(c"PyFrame_GetCode")?),
                line: transmute::<*mut c_void, NumberOf>(find(c"PyFrame_GetLineNumber")?),
                release: transmute::<*mut c_void, Release>(find(c"Py_DecRef")?),
            };
            (functions, api)
        };
        Some(Interpreter {
            objects: Objects {
                layout,
                code: find(c"PyCode_Type")?.addr(),
                string: find(c"PyUnicode_Type")?.addr(),
                bytes: find(c"PyBytes_Type")?.addr(),
            },
            api,
            functions,
            fits: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        })
    }

    /// The state of the calling thread; `None` if it has none, or Python does not run. The end of
    /// Python frees the states of threads that still run.
    #[inline]
    pub fn this_thread(&self) -> Option<usize> {
        // SAFETY: the functions read flags and a thread-local value.
        let state = unsafe {
            if (self.functions.is_initialized)() == 0 || (self.functions.is_finalizing)() != 0 {
                return None;
            }
            (self.functions.this_thread)()
        };
        (!state.is_null()).then(|| state.expose_provenance())
    }

    /// The state of the thread that holds the GIL, if that is the calling thread.
    pub fn holder(&self) -> Option<*mut c_void> {
        let state = self.this_thread()?;
        // SAFETY: the function reads a value of the process, or of the thread.
        let holder = unsafe { (self.functions.holder)() };
        (holder.addr() == state).then_some(holder)
    }

    /// The state of the newest thread of the main interpreter.
    pub fn newest_thread(&self) -> Option<usize> {
        // SAFETY: the functions read a member of the runtime, and a member of the main interpreter,
        // which is there as long as Python is initialized.
        let state = unsafe {
            if (self.functions.is_initialized)() == 0 || (self.functions.is_finalizing)() != 0 {
                return None;
            }
            let main = (self.functions.main)();
            if main.is_null() { 0 } else { (self.functions.newest_thread)(main).addr() }
        };
        (state != 0).then_some(state)
    }

    /// The state of the main thread: the oldest one, to which each leads to its next.
    pub fn main_thread(&self, memory: &impl Memory, newest: usize) -> Option<usize> {
        let mut state = newest;
        // As many threads as a process has, perhaps; a list that changes may lead in circles.
        for _ in 0..1 << 12 {
            let [next] = memory.words(state, [self.objects.layout.next])?;
            if next == 0 {
                return Some(state);
            }
            state = next;
        }
        None
    }

    #[inline]
    pub fn fits(&self) -> bool {
        self.fits.load(Ordering::Relaxed)
    }

    pub fn has_fitted(&self) {
        self.fits.store(true, Ordering::Relaxed);
    }

    /// Nothing is read any more.
    #[cold]
    pub fn refuse(&self, why: &str) {
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            complain(why);
        }
    }
}

/// Also to those who want no remarks on their calls: findings need this one to be understood.
#[cold]
fn complain(why: &str) {
    eprintln!("pinlane-cudart: findings do not name lines of Python: {why}");
}
