//! DLPack: buffers as tensors of other libraries, and their tensors as buffers, without a copy.
//!
//! A tensor crosses as a pointer to a [`ManagedTensor`]. Its holder calls its deleter, once, when
//! the memory is no longer needed.
//!
//! ```
//! use pinlane::dlpack::{DataType, Layout};
//! use pinlane::{Device, PinnedPool};
//!
//! let pool = PinnedPool::builder(&Device::open_or_emulated()?).build()?;
//! let buffer = pool.alloc::<f32>(12)?;
//! let layout = Layout { shape: &[3, 4], ..Layout::new(DataType::F32) };
//! let tensor = buffer.into_dlpack(&layout, None)?; // hand it to NumPy, PyTorch, JAX, ...
//! # // SAFETY: the tensor has no other owner.
//! # unsafe { pinlane::dlpack::delete(tensor) };
//! # Ok::<(), pinlane::Error>(())
//! ```
//!
//! # Who may use the memory
//!
//! * **An exported buffer is gone** ([`PinnedBuf::into_dlpack`](crate::PinnedBuf::into_dlpack)):
//!   the tensor is the only way to its memory. So other code's use of the tensor cannot race with a
//!   call of this crate. The deleter gives the memory back to the pool, which reuses it after all
//!   work that was on the consumer's stream.
//! * **An imported tensor is a buffer** ([`Imported`],
//!   [`Stream::import_dlpack`](crate::Stream::import_dlpack)): its deleter is called when the
//!   buffer has been dropped and no use of it is pending. If that cannot be known, it is never
//!   called. A tensor with gaps, such as some columns of a matrix, is imported with its strides
//!   ([`Imported::with_strides`]), for [strided copies](crate::Stream::upload_strided).
//!
//! # Elements of less than a byte
//!
//! Elements whose bits are not a whole number of bytes (4-bit integers, FP6, FP4) are packed one
//! after the other, and a tensor of `n` of them takes `n * bits * lanes / 8` bytes, rounded up
//! once. That is what DLPack 1.1 says of tensors without [`ManagedTensor::PADDED`]. A tensor of
//! 1.0, or a [`LegacyTensor`], has no such flag, and is read in the same way: if its producer did
//! pad the elements, it has more memory than is used, never less. Exported tensors are packed.
//!
//! # Layouts
//!
//! The structs are those of the specification of DLPack 1.0, an ABI that minor versions keep
//! (`dlpack.h` of github.com/dmlc/dlpack, and "C API (dlpack.h)" of its documentation). Each offset
//! is asserted.

mod check;
mod export;
mod import;
mod legacy;

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;

pub use export::Layout;
pub use import::{Imported, ImportedReadOnly};
pub use legacy::{LegacyTensor, from_legacy, to_legacy};

/// The version of a tensor's struct (`DLPackVersion`). Minor versions only add codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Another major version has another layout, of which only the members up to the flags are
    /// known.
    pub major: u32,
    /// A larger minor version knows more codes.
    pub minor: u32,
}

/// The newest version that this crate knows. Exported tensors have minor version 0, which all
/// consumers know, unless elements are packed, which 1.1 is the first to define.
pub const VERSION: Version = Version { major: 1, minor: 1 };

/// The location of memory (`DLDevice`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// One of the constants.
    pub device_type: i32,
    /// The number of the device; 0 for host memory.
    pub device_id: i32,
}

impl Place {
    /// Host memory (`kDLCPU`), page-locked or not.
    pub const CPU: i32 = 1;
    /// The memory of a CUDA device (`kDLCUDA`).
    pub const CUDA: i32 = 2;
    /// Page-locked host memory (`kDLCUDAHost`).
    pub const CUDA_HOST: i32 = 3;
    /// Memory with a private meaning (`kDLExtDev`): the memory of emulated devices.
    pub const EXTENSION: i32 = 12;
}

/// The type of an element (`DLDataType`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    /// A `DLDataTypeCode`: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool, ...
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// 1, or more for vectors.
    pub lanes: u16,
}

#[allow(missing_docs)] // the names say it
impl DataType {
    pub const I8: DataType = Self::of(0, 8);
    pub const I16: DataType = Self::of(0, 16);
    pub const I32: DataType = Self::of(0, 32);
    pub const I64: DataType = Self::of(0, 64);
    pub const U8: DataType = Self::of(1, 8);
    pub const U16: DataType = Self::of(1, 16);
    pub const U32: DataType = Self::of(1, 32);
    pub const U64: DataType = Self::of(1, 64);
    pub const F16: DataType = Self::of(2, 16);
    pub const F32: DataType = Self::of(2, 32);
    pub const F64: DataType = Self::of(2, 64);
    pub const BF16: DataType = Self::of(4, 16);

    const fn of(code: u8, bits: u8) -> Self {
        DataType { code, bits, lanes: 1 }
    }

    /// Bytes of an element that lies alone, or is padded. Many take fewer bytes each if they are
    /// [packed](crate::dlpack#elements-of-less-than-a-byte).
    #[must_use]
    pub fn bytes(self) -> usize {
        self.element_bits().div_ceil(8)
    }

    /// Bits of all lanes.
    fn element_bits(self) -> usize {
        usize::from(self.bits) * usize::from(self.lanes)
    }

    /// How many packed elements fit in this many bytes. 0 for an invalid type.
    #[cfg_attr(not(feature = "capi"), allow(dead_code))]
    pub(crate) fn count_in(self, bytes: usize) -> usize {
        let bits = bytes as u128 * 8;
        let count = bits.checked_div(self.element_bits() as u128).unwrap_or(0);
        count.try_into().unwrap_or(usize::MAX)
    }
}

/// A view of memory (`DLTensor`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// The memory; the first element lies `byte_offset` bytes further. NULL if there are no
    /// elements.
    pub data: *mut c_void,
    /// The location of the memory.
    pub device: Place,
    /// The number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DataType,
    /// The length of each dimension.
    pub shape: *mut i64,
    /// In elements, not bytes. NULL: the last dimension is the innermost, and there are no gaps.
    pub strides: *mut i64,
    /// See `data`.
    pub byte_offset: u64,
}

/// A tensor and the owner of its memory (`DLManagedTensorVersioned`).
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensor {
    /// The layout of what follows the flags.
    pub version: Version,
    /// The producer's context.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and gives the memory back; called once, on any thread. May be NULL.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
    /// See the constants.
    pub flags: u64,
    /// The tensor itself.
    pub tensor: Tensor,
}

impl ManagedTensor {
    /// The elements must not be written (`DLPACK_FLAG_BITMASK_READ_ONLY`).
    pub const READ_ONLY: u64 = 1;
    /// The producer has made a copy for the consumer (`DLPACK_FLAG_BITMASK_IS_COPIED`).
    pub const COPIED: u64 = 2;
    /// Each element begins at its own byte (`DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`).
    pub const PADDED: u64 = 4;
}

/// Calls the deleter of a tensor.
///
/// # Safety
///
/// * The tensor is live, and is not used afterwards.
pub unsafe fn delete(tensor: NonNull<ManagedTensor>) {
    // SAFETY: the tensor is live.
    if let Some(deleter) = unsafe { tensor.as_ref() }.deleter {
        // SAFETY: the deleter of a live tensor, which is called once, because the tensor is not
        // used afterwards.
        unsafe { deleter(tensor.as_ptr()) };
    }
}

const _: () = {
    assert!(size_of::<Tensor>() == 48 && size_of::<ManagedTensor>() == 80);
    assert!(offset_of!(Tensor, device) == 8 && offset_of!(Tensor, ndim) == 16);
    assert!(offset_of!(Tensor, dtype) == 20 && offset_of!(Tensor, shape) == 24);
    assert!(offset_of!(Tensor, strides) == 32 && offset_of!(Tensor, byte_offset) == 40);
    assert!(offset_of!(ManagedTensor, manager_ctx) == 8);
    assert!(offset_of!(ManagedTensor, deleter) == 16 && offset_of!(ManagedTensor, flags) == 24);
    assert!(offset_of!(ManagedTensor, tensor) == 32);
};
