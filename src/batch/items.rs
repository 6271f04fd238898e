//! What a batch is made of.

use bytemuck::Pod;

use crate::copy::entry::Entry;
use crate::memory::{
    DeviceBuf, DeviceBytes, DeviceSlice, DeviceSliceMut, PinnedBuf, PinnedSlice, PinnedSliceMut,
};
use crate::pool::block_at;

/// Host memory to upload from: a slice of pageable memory, or page-locked memory.
pub enum HostSlice<'a, T: Pod> {
    /// Pageable memory. If it is memory of a pool, the device copies it as it is.
    Pageable(&'a [T]),
    /// A view of a [`PinnedBuf`].
    Pinned(PinnedSlice<'a, T>),
}

/// Host memory to download to: a slice of pageable memory, or page-locked memory.
pub enum HostSliceMut<'a, T: Pod> {
    /// Pageable memory. If it is memory of a pool, the device writes it as it is.
    Pageable(&'a mut [T]),
    /// A view of a [`PinnedBuf`].
    Pinned(PinnedSliceMut<'a, T>),
}

/// One copy of [`Stream::upload_batch`](crate::Stream::upload_batch). A pair of a source and a
/// destination becomes one.
pub struct Upload<'a>(BatchItem<'a>);

/// One copy of [`Stream::download_batch`](crate::Stream::download_batch). A pair of a source and a
/// destination becomes one.
pub struct Download<'a>(BatchItem<'a>);

/// One copy of [`Stream::copy_batch`](crate::Stream::copy_batch). A pair of a source and a
/// destination becomes one.
pub struct DeviceCopy<'a> {
    pub(super) src: DeviceBytes<'a>,
    pub(super) dst: DeviceBytes<'a>,
}

/// An entry whose two lengths have not been compared yet.
#[derive(Clone, Copy)]
pub(super) struct BatchItem<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) host_bytes: usize,
    /// The host's side is a slice, which may be page-locked all the same.
    pub(super) is_slice: bool,
}

impl<'a> BatchItem<'a> {
    /// # Safety
    ///
    /// * `host_bytes` bytes from `host` on are borrowed for `'a`, exclusively for a download.
    #[inline]
    unsafe fn of_slice(host: *const u8, host_bytes: usize, device: DeviceBytes<'a>) -> Self {
        // SAFETY: the bytes are borrowed for 'a, so they stay allocated.
        let block = unsafe { block_at(host, host_bytes, device.context()) };
        let entry = match block {
            Some(block) => Entry::pinned(host, block, device),
            None => Entry::pageable(host, device),
        };
        BatchItem { entry, host_bytes, is_slice: true }
    }
}

impl<'a> Upload<'a> {
    /// From `src` to `dst`. They must have the same length in bytes, which is checked when the
    /// batch is submitted.
    #[inline]
    pub fn new<T: Pod>(
        src: impl Into<HostSlice<'a, T>>,
        dst: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Self {
        let device = dst.into().into();
        Upload(match src.into() {
            // SAFETY: the slice is borrowed for 'a.
            HostSlice::Pageable(src) => unsafe {
                BatchItem::of_slice(src.as_ptr().cast(), size_of_val(src), device)
            },
            HostSlice::Pinned(src) => BatchItem {
                entry: Entry::pinned(src.as_ptr().cast(), src.bytes(), device),
                host_bytes: src.len() * size_of::<T>(),
                is_slice: false,
            },
        })
    }

    /// The number of bytes at the destination.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.entry.bytes()
    }

    pub(super) fn item(&self) -> BatchItem<'a> {
        self.0
    }
}

impl<'a> Download<'a> {
    /// From `src` to `dst`. They must have the same length in bytes, which is checked when the
    /// batch is submitted.
    #[inline]
    pub fn new<T: Pod>(
        src: impl Into<DeviceSlice<'a, T>>,
        dst: impl Into<HostSliceMut<'a, T>>,
    ) -> Self {
        let device = src.into().into();
        Download(match dst.into() {
            // SAFETY: the slice is borrowed exclusively for 'a.
            HostSliceMut::Pageable(dst) => unsafe {
                BatchItem::of_slice(dst.as_mut_ptr().cast(), size_of_val(dst), device)
            },
            HostSliceMut::Pinned(mut dst) => {
                let (host, host_bytes) = (dst.as_mut_ptr().cast(), dst.len() * size_of::<T>());
                let entry = Entry::pinned(host, dst.into_bytes(), device);
                BatchItem { entry, host_bytes, is_slice: false }
            }
        })
    }

    /// The number of bytes at the source.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.entry.bytes()
    }

    pub(super) fn item(&self) -> BatchItem<'a> {
        self.0
    }
}

impl<'a> DeviceCopy<'a> {
    /// From `src` to `dst`. They must have the same length in bytes, which is checked when the
    /// batch is submitted.
    pub fn new<T: Pod>(
        src: impl Into<DeviceSlice<'a, T>>,
        dst: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Self {
        DeviceCopy { src: src.into().into(), dst: dst.into().into() }
    }

    /// The number of bytes at the destination.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.dst.len()
    }
}

/// The same copy, for as long as it is borrowed: it can be part of several batches.
impl<'s, 'a: 's> From<&'s mut Upload<'a>> for Upload<'s> {
    fn from(upload: &'s mut Upload<'a>) -> Self {
        Upload(upload.0)
    }
}

/// The same copy, for as long as it is borrowed: it can be part of several batches.
impl<'s, 'a: 's> From<&'s mut Download<'a>> for Download<'s> {
    fn from(download: &'s mut Download<'a>) -> Self {
        Download(download.0)
    }
}

/// The same copy, for as long as it is borrowed: it can be part of several batches.
impl<'s, 'a: 's> From<&'s mut DeviceCopy<'a>> for DeviceCopy<'s> {
    fn from(copy: &'s mut DeviceCopy<'a>) -> Self {
        DeviceCopy { src: copy.src, dst: copy.dst }
    }
}

/// `From` for every pair of these two kinds of memory.
macro_rules! pairs {
    ($item:ident: [$($src:ty),*] -> $dsts:tt) => {
        $(pairs!(@ $item: $src => $dsts);)*
    };
    (@ $item:ident: $src:ty => [$($dst:ty),*]) => {
        $(impl<'a, T: Pod> From<($src, $dst)> for $item<'a> {
            #[inline]
            fn from((src, dst): ($src, $dst)) -> Self {
                $item::new(src, dst)
            }
        })*
    };
}

pairs!(Upload: [HostSlice<'a, T>, &'a [T], &'a Vec<T>, &'a PinnedBuf<T>, PinnedSlice<'a, T>]
    -> [&'a mut DeviceBuf<T>, DeviceSliceMut<'a, T>]);
pairs!(Download: [&'a DeviceBuf<T>, DeviceSlice<'a, T>]
    -> [HostSliceMut<'a, T>, &'a mut [T], &'a mut Vec<T>, &'a mut PinnedBuf<T>,
        PinnedSliceMut<'a, T>]);
pairs!(DeviceCopy: [&'a DeviceBuf<T>, DeviceSlice<'a, T>]
    -> [&'a mut DeviceBuf<T>, DeviceSliceMut<'a, T>]);

/// `From` for what a view of host memory can be made of.
macro_rules! host_slices {
    ($($view:ident: $variant:ident($from:ident: $type:ty) = $make:expr;)*) => {
        $(impl<'a, T: Pod> From<$type> for $view<'a, T> {
            #[inline]
            fn from($from: $type) -> Self {
                $view::$variant($make)
            }
        })*
    };
}

host_slices! {
    HostSlice: Pageable(slice: &'a [T]) = slice;
    HostSlice: Pageable(vec: &'a Vec<T>) = vec;
    HostSlice: Pinned(buffer: &'a PinnedBuf<T>) = buffer.as_slice();
    HostSlice: Pinned(view: PinnedSlice<'a, T>) = view;
    HostSliceMut: Pageable(slice: &'a mut [T]) = slice;
    HostSliceMut: Pageable(vec: &'a mut Vec<T>) = vec;
    HostSliceMut: Pinned(buffer: &'a mut PinnedBuf<T>) = buffer.as_slice_mut();
    HostSliceMut: Pinned(view: PinnedSliceMut<'a, T>) = view;
}

impl<'a, T: Pod, const N: usize> From<&'a [T; N]> for HostSlice<'a, T> {
    fn from(array: &'a [T; N]) -> Self {
        HostSlice::Pageable(array)
    }
}

impl<'a, T: Pod, const N: usize> From<&'a mut [T; N]> for HostSliceMut<'a, T> {
    fn from(array: &'a mut [T; N]) -> Self {
        HostSliceMut::Pageable(array)
    }
}
