//! cudarc's device memory, as arguments of copies.

use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

mod sealed {
    pub trait Sealed {}
}

/// cudarc's memory that a copy reads: `&CudaSlice` or a [`CudaView`]. Only these: cudarc's own
/// trait `DevicePtr` is safe to implement, with any address.
pub trait Source<'a, T>: sealed::Sealed {
    /// The memory as a view.
    fn view(self) -> CudaView<'a, T>;
}

/// cudarc's memory that a copy writes: `&mut CudaSlice` or a [`CudaViewMut`].
pub trait Target<'a, T>: sealed::Sealed {
    /// The memory as a view.
    fn view_mut(self) -> CudaViewMut<'a, T>;
}

impl<T> sealed::Sealed for &CudaSlice<T> {}
impl<T> sealed::Sealed for &mut CudaSlice<T> {}
impl<T> sealed::Sealed for CudaView<'_, T> {}
impl<T> sealed::Sealed for CudaViewMut<'_, T> {}

impl<'a, T> Source<'a, T> for &'a CudaSlice<T> {
    fn view(self) -> CudaView<'a, T> {
        self.as_view()
    }
}

impl<'a, T> Source<'a, T> for CudaView<'a, T> {
    fn view(self) -> CudaView<'a, T> {
        self
    }
}

impl<'a, T> Target<'a, T> for &'a mut CudaSlice<T> {
    fn view_mut(self) -> CudaViewMut<'a, T> {
        self.as_view_mut()
    }
}

impl<'a, T> Target<'a, T> for CudaViewMut<'a, T> {
    fn view_mut(self) -> CudaViewMut<'a, T> {
        self
    }
}
