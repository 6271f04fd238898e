//! cuBLAS, loaded at run time. The benchmark does not link it, and runs without it.

use std::ffi::{CStr, CString, c_void};
use std::mem::transmute;
use std::path::{Path, PathBuf};
use std::ptr;

use pinlane::driver::DevicePtr;

const LIBRARIES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];

type Create = unsafe extern "C" fn(*mut *mut c_void) -> i32;
type Destroy = unsafe extern "C" fn(*mut c_void) -> i32;
type SetStream = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
type GemmEx = unsafe extern "C" fn(
    handle: *mut c_void,
    transpose_a: i32,
    transpose_b: i32,
    m: i32,
    n: i32,
    k: i32,
    alpha: *const c_void,
    a: *const c_void,
    a_type: i32,
    lda: i32,
    b: *const c_void,
    b_type: i32,
    ldb: i32,
    beta: *const c_void,
    c: *mut c_void,
    c_type: i32,
    ldc: i32,
    compute_type: i32,
    algorithm: i32,
) -> i32;

const NO_TRANSPOSE: i32 = 0; // CUBLAS_OP_N
const COMPUTE_FLOAT: i32 = 68; // CUBLAS_COMPUTE_32F
const DEFAULT_ALGORITHM: i32 = -1; // CUBLAS_GEMM_DEFAULT

/// The type of a matrix's elements.
#[derive(Clone, Copy)]
pub enum Elements {
    Bfloat16,
    Float,
}

impl Elements {
    /// The size of one in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Elements::Bfloat16 => 2,
            Elements::Float => 4,
        }
    }

    /// Its `cudaDataType`.
    fn number(self) -> i32 {
        match self {
            Elements::Bfloat16 => 14, // CUDA_R_16BF
            Elements::Float => 0,     // CUDA_R_32F
        }
    }
}

/// A handle of the library for the calling thread's current device. The library stays loaded.
pub struct Cublas {
    handle: *mut c_void,
    destroy: Destroy,
    set_stream: SetStream,
    gemm_ex: GemmEx,
}

impl Cublas {
    /// Loads the library. `place` is its file or its folder. Without it, the places of the loader
    /// and of the toolkit are tried.
    pub fn open(place: Option<&str>) -> Result<Self, String> {
        let library = load(place)?;
        let create = symbol(library, c"cublasCreate_v2")?;
        let destroy = symbol(library, c"cublasDestroy_v2")?;
        let set_stream = symbol(library, c"cublasSetStream_v2")?;
        let gemm_ex = symbol(library, c"cublasGemmEx")?;
        // SAFETY: these are the types of the functions in cublas_v2.h. The types above match its
        // handles, enums and ints.
        let mut cublas = unsafe {
            Cublas {
                handle: ptr::null_mut(),
                destroy: transmute::<*mut c_void, Destroy>(destroy),
                set_stream: transmute::<*mut c_void, SetStream>(set_stream),
                gemm_ex: transmute::<*mut c_void, GemmEx>(gemm_ex),
            }
        };
        // SAFETY: as above. The handle can be written.
        let status = unsafe { transmute::<*mut c_void, Create>(create)(&mut cublas.handle) };
        if status == 0 { Ok(cublas) } else { Err(format!("cublasCreate: status {status}")) }
    }

    /// Enqueues c = a b on a stream: square matrices, summed as floats.
    ///
    /// # Safety
    ///
    /// * `stream` is a live `cudaStream_t` of the device for which the library was opened.
    /// * The matrices are memory of that device, `order * order` elements each, and valid
    ///   until the work is complete.
    /// * `c` has no other user.
    pub unsafe fn multiply(
        &self,
        stream: *mut c_void,
        elements: Elements,
        order: i32,
        [a, b]: [DevicePtr; 2],
        c: DevicePtr,
    ) {
        let (alpha, beta) = (1f32, 0f32);
        // SAFETY: the handle is live; the caller's preconditions. The library reads the two scalars
        // before it returns, because its pointer mode is "host".
        let statuses = unsafe {
            [
                (self.set_stream)(self.handle, stream),
                (self.gemm_ex)(
                    self.handle,
                    NO_TRANSPOSE,
                    NO_TRANSPOSE,
                    order,
                    order,
                    order,
                    (&raw const alpha).cast(),
                    a as *const c_void,
                    elements.number(),
                    order,
                    b as *const c_void,
                    elements.number(),
                    order,
                    (&raw const beta).cast(),
                    c as *mut c_void,
                    elements.number(),
                    order,
                    COMPUTE_FLOAT,
                    DEFAULT_ALGORITHM,
                ),
            ]
        };
        assert_eq!(statuses, [0, 0], "cublasSetStream and cublasGemmEx");
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is live and not used afterwards.
            unsafe { (self.destroy)(self.handle) };
        }
    }
}

/// Opens the first library that exists. If none does, the error names all that were tried.
fn load(place: Option<&str>) -> Result<*mut c_void, String> {
    let mut reasons = Vec::new();
    for path in candidates(place) {
        // The library needs libcublasLt. A loader that does not search the folder would not find
        // it.
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
            let other = name.to_string_lossy().replace("libcublas.", "libcublasLt.");
            let _ = open(&folder.join(other));
        }
        match open(&path) {
            Ok(library) => return Ok(library),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(format!("no cuBLAS: {}", reasons.join("; ")))
}

fn candidates(place: Option<&str>) -> Vec<PathBuf> {
    let inside = |folder: &Path| LIBRARIES.map(|name| folder.join(name)).to_vec();
    match place.map(Path::new) {
        Some(folder) if folder.is_dir() => inside(folder),
        Some(file) => vec![file.to_owned()],
        None => {
            let toolkit = std::env::var_os("CUDA_HOME").unwrap_or("/usr/local/cuda".into());
            let mut all = inside(Path::new(""));
            all.extend(["lib64", "lib"].map(|lib| inside(&Path::new(&toolkit).join(lib))).concat());
            all
        }
    }
}

fn open(path: &Path) -> Result<*mut c_void, String> {
    let name =
        CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the name is a C string. We trust the vendor's library initialisers.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() { Err(said()) } else { Ok(library) }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the library is open and the name is a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() { Err(said()) } else { Ok(address) }
}

/// The loader's message about the last call that failed.
fn said() -> String {
    // SAFETY: until this thread calls the loader again, the message is a C string or null.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader says nothing".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
