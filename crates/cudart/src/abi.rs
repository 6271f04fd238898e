//! What C hands over: pointers that may be NULL, handles, structs, symbols.

use std::ffi::{CStr, c_int, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;

/// `cudaStream_t`, `cudaEvent_t` and their like: numbers.
pub type Handle = usize;

/// `cudaMemLocation`, `CUmemLocation`: where memory is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: c_int,
    /// The device, or the node of the host.
    pub id: c_int,
}

impl Location {
    pub const DEVICE: c_int = 1;
    pub const HOST: c_int = 2;
    pub const HOST_NODE: c_int = 3;
    pub const HOST_NODE_OF_THREAD: c_int = 4;
}

/// `cudaMemAllocationType`, `CUmemAllocationType`.
pub const PINNED: c_int = 1;
pub const MANAGED: c_int = 2;

/// A pointer to what a call gives.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// The pointer that came as a number.
    pub fn of(address: usize) -> Self {
        Out(std::ptr::with_exposed_provenance_mut(address))
    }

    /// # Errors
    ///
    /// `INVALID_VALUE` if it is NULL.
    pub fn check(self) -> DriverResult<()> {
        if self.0.is_null() { Err(CudaCode::INVALID_VALUE) } else { Ok(()) }
    }

    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn put(self, value: T) -> DriverResult<()> {
        self.check()?;
        self.put_if_any(value);
        Ok(())
    }

    pub fn put_if_any(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the CUDA runtime demands of its callers that such a pointer is NULL or can be
            // written to.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Takes the value that is there, and leaves another.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn exchange(self, change: impl FnOnce(T) -> T) -> DriverResult<()>
    where
        T: Copy,
    {
        self.put(change(In(self.0.cast_const()).get()?))
    }

    /// A later place.
    pub fn at(self, bytes: usize) -> Out<u8> {
        Out(self.0.cast::<u8>().wrapping_add(bytes))
    }

    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// A pointer to what a call takes.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// # Errors
    ///
    /// `INVALID_VALUE` if it is NULL.
    pub fn get(self) -> DriverResult<T> {
        if self.0.is_null() {
            return Err(CudaCode::INVALID_VALUE);
        }
        // SAFETY: the CUDA runtime demands of its callers that such a pointer is NULL or can be
        // read.
        Ok(unsafe { self.0.read_unaligned() })
    }

    pub fn nth(self, index: usize) -> In<T> {
        In(self.0.wrapping_add(index))
    }
}

/// `dim3`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// The same pointer, to an `int`.
pub fn narrow(value: In<u64>) -> In<i32> {
    In(value.0.cast())
}

/// The symbol of the program or of its libraries that has this name.
pub fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
