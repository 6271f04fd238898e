//! Ranges for tools that listen by NVTX, such as Nsight Systems.
//!
//! NVTX has no library: a program looks for the tool itself, and lets it put its functions into a
//! table. This is that search, for the few functions that are used here, so that no header and no
//! compiler of C is needed. The layouts are those that NVIDIA's headers give to version 3; they
//! have not changed since version 2.
//!
//! # Invariants
//!
//! * The tool writes to the slots only while its entry point runs, which is once in a process,
//!   before [`TOOL`] is set. They are read behind that.
//! * Ranges of a thread are nested: a [`Range`] ends where it began, on its thread.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Work;
use super::span::Kind;

/// The name of all ranges' domain.
const DOMAIN: &CStr = c"pinlane";
/// What a tool's library has to export, and where its path stands.
const ENTRY: &CStr = c"InitializeInjectionNvtx2";
const VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// The functions of NVTX come in modules; the sixth has those with domains.
const MODULES: usize = 7;
const DOMAINS: usize = 5;
/// How many functions each has, with one that is none.
const SIZES: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
const MOST: usize = 16;

/// Functions of the module of domains.
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

/// The functions that a tool has given; NULL where it has none.
static SLOTS: [[Slot; MOST]; MODULES] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MOST] }; MODULES];

/// Where the slots are, for tools: behind nothing, for the function that is none, and before
/// nothing.
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

/// # Safety
///
/// * `table` and `size` are each NULL or writable.
unsafe extern "C" fn module_table(
    module: c_int,
    table: *mut *const Option<&'static Slot>,
    size: *mut c_uint,
) -> c_int {
    let number = usize::try_from(module).unwrap_or(MODULES);
    if !(1..MODULES).contains(&number) {
        return 0;
    }
    // SAFETY: the caller's precondition, for both.
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

/// A tool tells its version. Nothing depends on it.
extern "C" fn set_version(_: u32) {}

/// What a range is called.
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
const UNSIGNED: i32 = 1;
const TEXT: i32 = 1;

/// A tool that listens.
struct Tool {
    domain: Domain,
    push: Push,
    pop: Pop,
}

// SAFETY: the domain is the tool's own name for it; its functions may be called by any thread.
unsafe impl Send for Tool {}
// SAFETY: as above.
unsafe impl Sync for Tool {}

static TOOL: OnceLock<Option<Tool>> = OnceLock::new();

impl Tool {
    /// Looks for a tool: one that is in the process, or one whose path the environment has. One
    /// that cannot be loaded, or does not want to listen, is none.
    fn find() -> Option<Tool> {
        // SAFETY: the name is a text.
        let mut entry = unsafe { libc::dlsym(libc::RTLD_DEFAULT, ENTRY.as_ptr()) };
        if entry.is_null() {
            let path = CString::new(std::env::var_os(VARIABLE)?.into_vec()).ok()?;
            // SAFETY: both names are texts. The user has named the library to be loaded.
            entry = unsafe {
                let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
                if library.is_null() { library } else { libc::dlsym(library, ENTRY.as_ptr()) }
            };
        }
        if entry.is_null() {
            return None;
        }
        // SAFETY: what has that name is a function of this type. What it gets answers as NVTX does.
        if unsafe { std::mem::transmute::<*mut c_void, Entry>(entry)(export_table) } == 0 {
            return None;
        }
        let given = |function: usize| {
            let function = SLOTS[DOMAINS][function].load(Ordering::Acquire);
            (!function.is_null()).then_some(function)
        };
        // SAFETY: a tool puts functions of these types into these slots, or none.
        let (push, pop, create, name) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Push>(given(PUSH)?),
                std::mem::transmute::<*mut c_void, Pop>(given(POP)?),
                given(CREATE_DOMAIN).map(|it| std::mem::transmute::<*mut c_void, CreateDomain>(it)),
                given(NAME_CATEGORY).map(|it| std::mem::transmute::<*mut c_void, NameCategory>(it)),
            )
        };
        // Without it, NULL is the domain of those that have none.
        // SAFETY: the name is a text.
        let domain = create.map_or(ptr::null_mut(), |create| unsafe { create(DOMAIN.as_ptr()) });
        for kind in Kind::ALL {
            let Some((name, text)) = name.zip(CString::new(kind.word()).ok()) else { continue };
            // SAFETY: the domain is the tool's, and the name a text.
            unsafe { name(domain, category(kind), text.as_ptr()) };
        }
        Some(Tool { domain, push, pop })
    }
}

/// 0 is no category.
fn category(kind: Kind) -> u32 {
    kind as u32 + 1
}

/// A range of this thread. It ends when this is dropped.
pub(crate) struct Range {
    tool: &'static Tool,
    /// On the thread where it began.
    thread: PhantomData<*const ()>,
}

/// Begins a range, if a tool listens. The first call looks for one.
#[inline]
pub(crate) fn range(kind: Kind, work: impl FnOnce() -> Work) -> Option<Range> {
    let tool = TOOL.get_or_init(Tool::find).as_ref()?;
    Some(tool.begin(kind, work()))
}

impl Tool {
    #[cold]
    fn begin(&'static self, kind: Kind, Work { name, bytes }: Work) -> Range {
        // Names of calls are short; one that is not is cut.
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
            message_type: TEXT,
            message: message.as_ptr().cast(),
        };
        // SAFETY: the domain is the tool's. It copies what it keeps of the attributes, which have
        // their version's size, and whose message is a text.
        unsafe { (self.push)(self.domain, &raw const attributes) };
        Range { tool: self, thread: PhantomData }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the domain is the tool's.
        unsafe { (self.tool.pop)(self.tool.domain) };
    }
}
