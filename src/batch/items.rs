//! The copies that a batch is made of.

use bytemuck::Pod;

use crate::context::Context;
use crate::copy::entry::Entry;
use crate::memory::{
    DeviceBuf, DeviceBytes, DeviceSlice, DeviceSliceMut, PinnedBuf, PinnedBytes, PinnedSlice,
    PinnedSliceMut, Strided,
};
use crate::pool::block_at;

/// Host memory to upload from: a slice of pageable memory, or page-locked memory.
pub enum HostSlice<'a, T: Pod> {
    /// Pageable memory. If it is memory of a pool, the device copies it directly.
    Pageable(&'a [T]),
    /// A view of a [`PinnedBuf`].
    Pinned(PinnedSlice<'a, T>),
}

/// Host memory to download to: a slice of pageable memory, or page-locked memory.
pub enum HostSliceMut<'a, T: Pod> {
    /// Pageable memory. If it is memory of a pool, the device writes it directly.
    Pageable(&'a mut [T]),
    /// A view of a [`PinnedBuf`].
    Pinned(PinnedSliceMut<'a, T>),
}

/// One copy of [`Stream::upload_batch`](crate::Stream::upload_batch). A pair of a source and a
/// destination becomes one.
pub struct Upload<'a>(pub(super) BatchItem<'a>);

/// One copy of [`Stream::download_batch`](crate::Stream::download_batch). A pair of a source and a
/// destination becomes one.
pub struct Download<'a>(pub(super) BatchItem<'a>);

/// One copy of [`Stream::copy_batch`](crate::Stream::copy_batch). A pair of a source and a
/// destination becomes one.
pub struct DeviceCopy<'a> {
    pub(super) src: DeviceBytes<'a>,
    pub(super) dst: DeviceBytes<'a>,
}

/// The host side of a copy, borrowed for `'a`: exclusively if it is written.
#[derive(Clone, Copy)]
pub(super) struct HostSide<'a> {
    pub(super) host: *mut u8,
    pub(super) bytes: usize,
    /// Its block, if it is page-locked.
    pub(super) pinned: Option<PinnedBytes<'a>>,
    /// It is a slice: borrowed only for the call, even if it is page-locked.
    pub(super) is_slice: bool,
}

// SAFETY: a borrowed range of bytes, and a borrowed region, which is `Sync`.
unsafe impl Sync for HostSide<'_> {}

impl<'a> HostSide<'a> {
    /// Inlined, so that the parts of the item stay in registers. So are the functions that call it.
    #[inline(always)]
    pub(super) fn read<T: Pod>(side: HostSlice<'a, T>, context: &Context) -> Self {
        match side {
            // SAFETY: the slice is borrowed for 'a.
            HostSlice::Pageable(slice) => unsafe {
                Self::of_slice(slice.as_ptr().cast_mut().cast(), size_of_val(slice), context)
            },
            HostSlice::Pinned(view) => {
                Self::of_view(view.as_ptr().cast_mut(), view.len(), view.bytes())
            }
        }
    }

    /// As [`read`](Self::read).
    #[inline(always)]
    pub(super) fn write<T: Pod>(side: HostSliceMut<'a, T>, context: &Context) -> Self {
        match side {
            // SAFETY: the slice is borrowed exclusively for 'a.
            HostSliceMut::Pageable(slice) => unsafe {
                Self::of_slice(slice.as_mut_ptr().cast(), size_of_val(slice), context)
            },
            HostSliceMut::Pinned(mut view) => {
                Self::of_view(view.as_mut_ptr(), view.len(), view.into_bytes())
            }
        }
    }

    /// # Safety
    ///
    /// * `bytes` bytes from `host` on are borrowed for `'a`, exclusively if they are written.
    #[inline]
    unsafe fn of_slice(host: *mut u8, bytes: usize, context: &Context) -> Self {
        // SAFETY: the bytes are borrowed for 'a, so they stay allocated.
        let pinned = unsafe { block_at(host, bytes, context) };
        HostSide { host, bytes, pinned, is_slice: true }
    }

    #[inline]
    fn of_view<T>(host: *mut T, len: usize, pinned: PinnedBytes<'a>) -> Self {
        let (host, bytes) = (host.cast(), len * size_of::<T>());
        HostSide { host, bytes, pinned: Some(pinned), is_slice: false }
    }

    /// `bytes` of its bytes from `start` on, which must lie in it.
    pub(super) fn part(&self, start: usize, bytes: usize) -> Self {
        HostSide { host: self.host.wrapping_add(start), bytes, ..*self }
    }

    #[inline]
    pub(super) fn with(self, device: DeviceBytes<'a>) -> BatchItem<'a> {
        let HostSide { host, bytes, pinned, is_slice } = self;
        BatchItem { entry: Entry::of(host, pinned, device), host_bytes: bytes, is_slice }
    }
}

/// An entry whose two lengths have not been compared yet.
#[derive(Clone, Copy)]
pub(super) struct BatchItem<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) host_bytes: usize,
    /// As in [`HostSide`].
    pub(super) is_slice: bool,
}

impl<'a> Upload<'a> {
    /// From `src` to `dst`. They must have the same length in bytes, which is checked when the
    /// batch is submitted.
    #[inline]
    pub fn new<T: Pod>(
        src: impl Into<HostSlice<'a, T>>,
        dst: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Self {
        let device: DeviceBytes<'a> = dst.into().into();
        Upload(HostSide::read(src.into(), device.context()).with(device))
    }

    /// The number of bytes at the destination.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.entry.bytes()
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
        let device: DeviceBytes<'a> = src.into().into();
        Download(HostSide::write(dst.into(), device.context()).with(device))
    }

    /// The number of bytes at the source.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.entry.bytes()
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

/// `From` for everything that a view of host memory can be made of, or one of rows without gaps.
macro_rules! host_slices {
    ($($view:ident $(<$n:ident>)?: $variant:ident($from:ident: $type:ty) = $make:expr;)*) => {
        $(impl<'a, T: Pod $(, const $n: usize)?> From<$type> for $view<'a, T> {
            #[inline]
            fn from($from: $type) -> Self {
                $view::$variant($make)
            }
        }

        impl<'a, T: Pod $(, const $n: usize)?> From<$type> for Strided<$view<'a, T>> {
            fn from($from: $type) -> Self {
                let len = $from.len();
                Strided::flat($view::$variant($make), len)
            }
        })*
    };
}

host_slices! {
    HostSlice: Pageable(slice: &'a [T]) = slice;
    HostSlice: Pageable(vec: &'a Vec<T>) = vec;
    HostSlice<N>: Pageable(array: &'a [T; N]) = array;
    HostSlice: Pinned(buffer: &'a PinnedBuf<T>) = buffer.as_slice();
    HostSlice: Pinned(view: PinnedSlice<'a, T>) = view;
    HostSliceMut: Pageable(slice: &'a mut [T]) = slice;
    HostSliceMut: Pageable(vec: &'a mut Vec<T>) = vec;
    HostSliceMut<N>: Pageable(array: &'a mut [T; N]) = array;
    HostSliceMut: Pinned(buffer: &'a mut PinnedBuf<T>) = buffer.as_slice_mut();
    HostSliceMut: Pinned(view: PinnedSliceMut<'a, T>) = view;
}
