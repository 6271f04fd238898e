//! Ranges for tools that listen by NVTX, such as Nsight Systems.
//!
//! NVTX has no library: a program looks for a tool itself, and passes it tables into which the tool
//! stores its functions. This module does that for the few functions that the crate calls, so it
//! needs neither NVIDIA's headers nor a C compiler. The layouts are those of NVTX 3; they have not
//! changed since version 2.
//!
//! # Invariants
//!
//! * The tool writes to the slots only inside its entry point. That runs once in a process, before
//!   [`TOOL`] is set. The slots are read only after it.
//! * Ranges of a thread are nested: a [`Range`] ends on the thread on which it began.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::span::{Kind, Work};
use crate::process::PerProcess;

/// The domain of all ranges.
const DOMAIN: &CStr = c"pinlane";
/// The function that a tool's library exports.
const ENTRY: &CStr = c"InitializeInjectionNvtx2";
/// The environment variable that has the path of the tool's library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// The functions of NVTX come in modules, numbered from 1.
const MODULES: usize = 7;
/// The module of the functions that take a domain (`NVTX_CB_MODULE_CORE2`).
const DOMAINS: usize = 5;
/// How many entries the table of each module has. Entry 0 is unused.
const SIZES: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
const MOST: usize = 16;

/// Functions of the module [`DOMAINS`].
const PUSH: usize = 4;
const POP: usize = 5;
const NAME_CATEGORY: usize = 8;
const CREATE_DOMAIN: usize = 12;

type Slot = AtomicPtr<c_void>;
type Domain = *mut c_void;
type Push = unsafe extern "C" fn(Domain, *const Attributes) -> c_int;
type Pop = unsafe extern "C" fn(Domain) -> c_int;
type NameCategory = unsafe extern "C" fn(Domain, u32, *const c_char);
type CreateDomain = unsafe extern "C" fn(*const c_char) -> Domain;
type ExportTable = extern "C" fn(u32) -> *const c_void;
type Entry = unsafe extern "C" fn(ExportTable) -> c_int;

/// The tool's functions; NULL where it has stored none.
static SLOTS: [[Slot; MOST]; MODULES] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MOST] }; MODULES];

/// The addresses of the slots, in the layout that tools expect: entry 0 is NULL, and so is the
/// entry after the last.
static TABLES: [[Option<&Slot>; MOST + 1]; MODULES] = tables();

const fn tables() -> [[Option<&'static Slot>; MOST + 1]; MODULES] {
    let mut tables = [[None; MOST + 1]; MODULES];
    let mut module = 0;
    while module < MODULES {
        let mut function = 1;
        while function < SIZES[module] {
            tables[module][function] = Some(&SLOTS[module][function]);
            function += 1;
        }
        module += 1;
    }
    tables
}

#[repr(C)]
struct Callbacks {
    size: usize,
    table: unsafe extern "C" fn(c_int, *mut *const Option<&'static Slot>, *mut c_uint) -> c_int,
}

#[repr(C)]
struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), table: module_table };
static VERSION: Version =
    Version { size: size_of::<Version>(), version: NVTX_VERSION, reserved: 0, set: set_version };
const NVTX_VERSION: u32 = 3;

extern "C" fn export_table(number: u32) -> *const c_void {
    match number {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => ptr::null(),
    }
}

/// Gives the tool the slots of a module, and their number. Returns 0 for a module that does not
/// exist.
///
/// # Safety
///
/// * `table` and `size` are each NULL, or aligned and writable.
unsafe extern "C" fn module_table(
    module: c_int,
    table: *mut *const Option<&'static Slot>,
    size: *mut c_uint,
) -> c_int {
    let number = usize::try_from(module).unwrap_or(MODULES);
    if !(1..MODULES).contains(&number) {
        return 0;
    }
    // SAFETY: a pointer that is not NULL is aligned and writable: the caller's precondition.
    unsafe {
        if !table.is_null() {
            *table = TABLES[number].as_ptr();
        }
        if !size.is_null() {
            *size = SIZES[number] as c_uint;
        }
    }
    1
}

/// A tool reports its version here. Nothing depends on it.
extern "C" fn set_version(_: u32) {}

/// The attributes of a range (`nvtxEventAttributes_t`).
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

const _: () = assert!(size_of::<Attributes>() == 48);
/// `NVTX_PAYLOAD_TYPE_UNSIGNED_INT64`
const UNSIGNED: i32 = 1;
/// `NVTX_MESSAGE_TYPE_ASCII`
const ASCII: i32 = 1;

/// A tool that listens.
struct Tool {
    domain: Domain,
    push: Push,
    pop: Pop,
}

// SAFETY: the domain is an opaque handle, and NVTX functions may be called on any thread.
unsafe impl Send for Tool {}
// SAFETY: as above.
unsafe impl Sync for Tool {}

static TOOL: PerProcess<OnceLock<Option<Tool>>> = PerProcess::new();

impl Tool {
    /// Looks for a tool: one that is loaded already, or the one that [`VARIABLE`] names. `None` if
    /// there is none, or if it cannot be loaded or declines.
    fn find() -> Option<Tool> {
        // SAFETY: the name is a C string.
        let mut entry = unsafe { libc::dlsym(libc::RTLD_DEFAULT, ENTRY.as_ptr()) };
        if entry.is_null() {
            let path = CString::new(std::env::var_os(VARIABLE)?.into_vec()).ok()?;
            // SAFETY: both names are C strings. The user has asked to load this library, and is
            // responsible for its initializers.
            entry = unsafe {
                let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
                if library.is_null() { library } else { libc::dlsym(library, ENTRY.as_ptr()) }
            };
        }
        if entry.is_null() {
            return None;
        }
        // SAFETY: a function of that name has this type, as NVTX defines it. It may be called once,
        // with a function that behaves as NVTX's own (`export_table`).
        if unsafe { std::mem::transmute::<*mut c_void, Entry>(entry)(export_table) } == 0 {
            return None;
        }
        let given = |function: usize| {
            let function = SLOTS[DOMAINS][function].load(Ordering::Acquire);
            (!function.is_null()).then_some(function)
        };
        // SAFETY: a tool stores functions of these types in these slots, as NVTX defines them.
        let (push, pop, create, name) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Push>(given(PUSH)?),
                std::mem::transmute::<*mut c_void, Pop>(given(POP)?),
                given(CREATE_DOMAIN).map(|it| std::mem::transmute::<*mut c_void, CreateDomain>(it)),
                given(NAME_CATEGORY).map(|it| std::mem::transmute::<*mut c_void, NameCategory>(it)),
            )
        };
        // Without that function, NULL: the default domain.
        // SAFETY: the name is a C string.
        let domain = create.map_or(ptr::null_mut(), |create| unsafe { create(DOMAIN.as_ptr()) });
        for kind in Kind::ALL {
            let Some((name, text)) = name.zip(CString::new(kind.word()).ok()) else { continue };
            // SAFETY: the tool made the domain, and the name is a C string.
            unsafe { name(domain, category(kind), text.as_ptr()) };
        }
        Some(Tool { domain, push, pop })
    }
}

/// The number of a category. 0 means none.
fn category(kind: Kind) -> u32 {
    kind as u32 + 1
}

/// A range of this thread. It ends when this is dropped.
pub(crate) struct Range {
    tool: &'static Tool,
    /// Not `Send`: a range ends on the thread on which it began.
    thread: PhantomData<*const ()>,
}

/// Begins a range, if a tool listens. The first call looks for one.
#[inline]
pub(crate) fn range<'a>(kind: Kind, work: impl FnOnce() -> Work<'a>) -> Option<Range> {
    let tool = TOOL.get().get_or_init(Tool::find).as_ref()?;
    Some(tool.begin(kind, work()))
}

impl Tool {
    #[cold]
    fn begin(&'static self, kind: Kind, Work { name, bytes, .. }: Work<'_>) -> Range {
        // Truncates names of 64 bytes and more; the names of calls are shorter.
        let mut message = [0u8; 64];
        let length = name.len().min(message.len() - 1);
        message[..length].copy_from_slice(&name.as_bytes()[..length]);
        let attributes = Attributes {
            version: NVTX_VERSION as u16,
            size: size_of::<Attributes>() as u16,
            category: category(kind),
            color_type: 0,
            color: 0,
            payload_type: UNSIGNED,
            reserved: 0,
            payload: bytes as u64,
            message_type: ASCII,
            message: message.as_ptr().cast(),
        };
        // SAFETY: the tool made the domain. The attributes have the size of their version, and the
        // message is a C string; the tool copies what it keeps.
        unsafe { (self.push)(self.domain, &raw const attributes) };
        Range { tool: self, thread: PhantomData }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the tool made the domain. This thread began the range there.
        unsafe { (self.tool.pop)(self.tool.domain) };
    }
}
