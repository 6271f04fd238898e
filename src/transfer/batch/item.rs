//! What a batch is made of.

use bytemuck::Pod;

use crate::error::Result;
use crate::memory::{
    DeviceBytes, DeviceSlice, DeviceSliceMut, PinnedBuf, PinnedSlice, PinnedSliceMut,
};
use crate::transfer::entry::Entry;
use crate::transfer::order::check_lengths;

/// Host memory to upload from: an ordinary slice, or page-locked memory.
pub enum HostSlice<'a, T: Pod> {
    /// Ordinary memory.
    Ordinary(&'a [T]),
    /// A view of a [`PinnedBuf`].
    Pinned(PinnedSlice<'a, T>),
}

/// Host memory to download to: an ordinary slice, or page-locked memory.
pub enum HostSliceMut<'a, T: Pod> {
    /// Ordinary memory.
    Ordinary(&'a mut [T]),
    /// A view of a [`PinnedBuf`].
    Pinned(PinnedSliceMut<'a, T>),
}

/// One copy of [`Stream::upload_batch`](crate::Stream::upload_batch).
#[repr(transparent)]
pub struct UploadItem<'a>(pub(super) Entry<'a>);

/// One copy of [`Stream::download_batch`](crate::Stream::download_batch).
#[repr(transparent)]
pub struct DownloadItem<'a>(pub(super) Entry<'a>);

/// One copy of [`Stream::copy_batch`](crate::Stream::copy_batch).
pub struct CopyItem<'a> {
    pub(super) src: DeviceBytes<'a>,
    pub(super) dst: DeviceBytes<'a>,
}

impl<'a> UploadItem<'a> {
    /// From `src` to `dst`, which have the same number of elements.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](crate::ErrorKind::LengthMismatch).
    pub fn new<T: Pod>(
        src: impl Into<HostSlice<'a, T>>,
        dst: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<Self> {
        const OPERATION: &str = "UploadItem::new";
        let dst = dst.into();
        Ok(UploadItem(match src.into() {
            HostSlice::Ordinary(src) => {
                check_lengths(OPERATION, src.len(), dst.len())?;
                Entry::from_host(bytemuck::cast_slice(src), dst.into())
            }
            HostSlice::Pinned(src) => {
                check_lengths(OPERATION, src.len(), dst.len())?;
                Entry::pinned(src.as_ptr().cast(), src.bytes(), dst.into())
            }
        }))
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl<'a> DownloadItem<'a> {
    /// From `src` to `dst`, which have the same number of elements.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](crate::ErrorKind::LengthMismatch).
    pub fn new<T: Pod>(
        src: impl Into<DeviceSlice<'a, T>>,
        dst: impl Into<HostSliceMut<'a, T>>,
    ) -> Result<Self> {
        const OPERATION: &str = "DownloadItem::new";
        let src = src.into();
        Ok(DownloadItem(match dst.into() {
            HostSliceMut::Ordinary(dst) => {
                check_lengths(OPERATION, src.len(), dst.len())?;
                Entry::to_host(bytemuck::cast_slice_mut(dst), src.into())
            }
            HostSliceMut::Pinned(mut dst) => {
                check_lengths(OPERATION, src.len(), dst.len())?;
                Entry::pinned(dst.as_mut_ptr().cast(), dst.into_bytes(), src.into())
            }
        }))
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl<'a> CopyItem<'a> {
    /// From `src` to `dst`, which have the same number of elements, on one device.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](crate::ErrorKind::LengthMismatch).
    pub fn new<T: Pod>(
        src: impl Into<DeviceSlice<'a, T>>,
        dst: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<Self> {
        let (src, dst) = (src.into(), dst.into());
        check_lengths("CopyItem::new", src.len(), dst.len())?;
        Ok(CopyItem { src: src.into(), dst: dst.into() })
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.dst.len()
    }
}

impl<'a, T: Pod> From<&'a [T]> for HostSlice<'a, T> {
    fn from(slice: &'a [T]) -> Self {
        HostSlice::Ordinary(slice)
    }
}

impl<'a, T: Pod> From<&'a Vec<T>> for HostSlice<'a, T> {
    fn from(vec: &'a Vec<T>) -> Self {
        HostSlice::Ordinary(vec)
    }
}

impl<'a, T: Pod, const N: usize> From<&'a [T; N]> for HostSlice<'a, T> {
    fn from(array: &'a [T; N]) -> Self {
        HostSlice::Ordinary(array)
    }
}

impl<'a, T: Pod> From<&'a PinnedBuf<T>> for HostSlice<'a, T> {
    fn from(buffer: &'a PinnedBuf<T>) -> Self {
        HostSlice::Pinned(buffer.as_slice())
    }
}

impl<'a, T: Pod> From<PinnedSlice<'a, T>> for HostSlice<'a, T> {
    fn from(view: PinnedSlice<'a, T>) -> Self {
        HostSlice::Pinned(view)
    }
}

impl<'a, T: Pod> From<&'a mut [T]> for HostSliceMut<'a, T> {
    fn from(slice: &'a mut [T]) -> Self {
        HostSliceMut::Ordinary(slice)
    }
}

impl<'a, T: Pod> From<&'a mut Vec<T>> for HostSliceMut<'a, T> {
    fn from(vec: &'a mut Vec<T>) -> Self {
        HostSliceMut::Ordinary(vec)
    }
}

impl<'a, T: Pod, const N: usize> From<&'a mut [T; N]> for HostSliceMut<'a, T> {
    fn from(array: &'a mut [T; N]) -> Self {
        HostSliceMut::Ordinary(array)
    }
}

impl<'a, T: Pod> From<&'a mut PinnedBuf<T>> for HostSliceMut<'a, T> {
    fn from(buffer: &'a mut PinnedBuf<T>) -> Self {
        HostSliceMut::Pinned(buffer.as_slice_mut())
    }
}

impl<'a, T: Pod> From<PinnedSliceMut<'a, T>> for HostSliceMut<'a, T> {
    fn from(view: PinnedSliceMut<'a, T>) -> Self {
        HostSliceMut::Pinned(view)
    }
}

impl<'a> UploadItem<'a> {
    pub(super) fn entries<'e>(items: &'e [UploadItem<'a>]) -> &'e [Entry<'a>] {
        // SAFETY: an item is an entry and nothing else: `repr(transparent)`.
        unsafe { &*(std::ptr::from_ref(items) as *const [Entry<'a>]) }
    }
}

impl<'a> DownloadItem<'a> {
    pub(super) fn entries<'e>(items: &'e [DownloadItem<'a>]) -> &'e [Entry<'a>] {
        // SAFETY: as for `UploadItem`.
        unsafe { &*(std::ptr::from_ref(items) as *const [Entry<'a>]) }
    }
}
