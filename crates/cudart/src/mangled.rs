//! What a mangled name says of a kernel: its plain name, and the sizes of its parameters.
//!
//! Only what the sizes of are known is read: plain functions, built-in types, pointers. Everything
//! else (templates, structs by value) gives no sizes.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::abi::find;

/// The name as the source has it, if the program brings what reads such names (libstdc++ and
/// libc++ do).
pub fn demangled(name: &str) -> String {
    type Demangle =
        unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;
    let read = || {
        let function = find(c"__cxa_demangle")?;
        let name = CString::new(name).ok()?;
        let null = std::ptr::null_mut();
        // SAFETY: the function of that name is of that type (Itanium C++ ABI); the name ends with a
        // NUL. The result is NULL, or a text that ends with NUL, and the caller's to free.
        unsafe {
            let demangle = std::mem::transmute::<*mut c_void, Demangle>(function);
            let text = demangle(name.as_ptr(), null, null.cast(), null.cast());
            let copy = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into());
            libc::free(text.cast());
            copy
        }
    };
    read().unwrap_or_else(|| name.to_owned())
}

/// The plain name of a function: `_Z6vecAddPKfPfi` is `vecAdd`, `_ZN2ns3addEPf` is `add`.
pub fn plain_name(mangled: &str) -> Option<&str> {
    let rest = mangled.strip_prefix("_Z")?;
    let (mut rest, nested) = match rest.strip_prefix('N') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let mut last = None;
    while let Some((name, after)) = identifier(rest) {
        last = Some(name);
        rest = after;
        if !nested {
            break;
        }
    }
    last
}

/// The sizes of the parameters of a function that is in no namespace.
pub fn sizes(mangled: &str) -> Option<Vec<usize>> {
    let (_, mut rest) = identifier(mangled.strip_prefix("_Z")?)?;
    if rest == "v" {
        return Some(Vec::new());
    }
    let (mut sizes, mut seen) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (size, after) = parameter(rest, &mut seen)?;
        sizes.push(size);
        rest = after;
    }
    Some(sizes)
}

/// A name with its length in front of it.
fn identifier(text: &str) -> Option<(&str, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let length: usize = text[..digits].parse().ok()?;
    let rest = &text[digits..];
    (length <= rest.len() && rest.is_char_boundary(length)).then(|| rest.split_at(length))
}

/// The size of the first type. `seen` has the sizes of those that `S_`, `S0_`, ... stand for.
fn parameter<'a>(text: &'a str, seen: &mut Vec<usize>) -> Option<(usize, &'a str)> {
    let (first, rest) = (text.chars().next()?, text.get(1..)?);
    let size = match first {
        'P' | 'R' | 'K' | 'V' | 'r' => {
            let (inner, rest) = parameter(rest, seen)?;
            let size = if matches!(first, 'P' | 'R') { 8 } else { inner };
            seen.push(size);
            return Some((size, rest));
        }
        'S' => {
            let (index, rest) = rest.split_once('_')?;
            let index = if index.is_empty() { 0 } else { index.parse::<usize>().ok()? + 1 };
            return Some((*seen.get(index)?, rest));
        }
        'b' | 'c' | 'a' | 'h' => 1,
        // Only after a pointer.
        'v' => 1,
        's' | 't' => 2,
        'i' | 'j' | 'f' | 'w' => 4,
        'l' | 'm' | 'x' | 'y' | 'd' => 8,
        _ => return None,
    };
    Some((size, rest))
}
