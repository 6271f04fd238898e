//! cuda-core's device memory, as arguments of copies.

use std::ops::Range;

use cuda_core::{DeviceBuffer, DeviceBufferView, RawDeviceBuffer};

use crate::Result;

mod sealed {
    pub trait Sealed {}
}

/// The storage of elements of cuda-core, and how many they are.
pub struct Part {
    pub(crate) storage: RawDeviceBuffer,
    pub(crate) len: usize,
}

/// cuda-core's memory that a copy reads: `&DeviceBuffer`, or a part of one, a
/// [`DeviceBufferView`] of `buffer.slice(..)`.
pub trait Source<T>: sealed::Sealed {
    #[doc(hidden)]
    fn part(self) -> Part;
}

/// cuda-core's memory that a copy writes: `&mut DeviceBuffer`, or `(&mut DeviceBuffer, range)` for
/// a part, of which cuda-core has no view.
pub trait Target<T>: sealed::Sealed {
    #[doc(hidden)]
    fn part(self) -> Result<Part>;
}

impl<T> sealed::Sealed for &DeviceBuffer<T> {}
impl<T> sealed::Sealed for DeviceBufferView<'_, T> {}
impl<T> sealed::Sealed for &mut DeviceBuffer<T> {}
impl<T> sealed::Sealed for (&mut DeviceBuffer<T>, Range<usize>) {}

impl<T> Source<T> for &DeviceBuffer<T> {
    fn part(self) -> Part {
        Part { storage: self.storage().clone(), len: self.len() }
    }
}

impl<T> Source<T> for DeviceBufferView<'_, T> {
    fn part(self) -> Part {
        Part { storage: self.storage().clone(), len: self.len() }
    }
}

impl<T> Target<T> for &mut DeviceBuffer<T> {
    fn part(self) -> Result<Part> {
        Ok(Source::part(&*self))
    }
}

impl<T> Target<T> for (&mut DeviceBuffer<T>, Range<usize>) {
    fn part(self) -> Result<Part> {
        let (buffer, range) = self;
        Ok(buffer.slice(range)?.part())
    }
}
