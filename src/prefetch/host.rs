//! A batch on the host: named slices of existing memory, or of room to be written.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::error::Error as StdError;
use std::hash::BuildHasher;
use std::sync::Arc;

use bytemuck::Pod;

use super::parts::Parts;
use crate::error::{Error, Result};
use crate::memory::byte_count;

/// An error of the producer's own code.
type ProducerError = Box<dyn StdError + Send + Sync>;

/// A batch in host memory. Implemented for one slice (`Vec<T>`, `Box<[T]>`, `Arc<[T]>`, arrays and
/// `&'static [T]`, named `"0"`), for tuples of those (`"0"`, `"1"`, ...), and for maps from names
/// to slices.
///
/// ```
/// use pinlane::prefetch::{HostBatch, Slices};
///
/// struct Samples {
///     images: Vec<f32>,
///     labels: Vec<i64>,
/// }
///
/// impl HostBatch for Samples {
///     fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
///         slices.slice("images", &self.images);
///         slices.slice("labels", &self.labels);
///     }
/// }
/// ```
pub trait HostBatch {
    /// Names every slice of the batch. Called once, by a worker.
    fn visit<'a>(&'a self, slices: &mut Slices<'a>);

    /// Writes the slices that [`visit`](Self::visit) has [reserved](Slices::reserve). Called once,
    /// by the same worker, if there are any.
    ///
    /// # Errors
    ///
    /// The consumer gets the error in the batch's place, as the source of an [`Error`] of the kind
    /// [`Producer`](crate::ErrorKind::Producer).
    fn fill(&mut self, _block: &mut FillBlock<'_>) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }
}

/// The item of a producer: a [`HostBatch`], or a `Result` of one, whose error the consumer gets in
/// its place.
pub trait IntoHostBatch {
    /// The batch that it becomes.
    type Batch: HostBatch;

    /// Makes the batch. A worker calls it, outside of the producer, so several may run at once.
    ///
    /// # Errors
    ///
    /// As for [`HostBatch::fill`].
    fn into_batch(self) -> Result<Self::Batch, Box<dyn StdError + Send + Sync>>;
}

impl<B: HostBatch> IntoHostBatch for B {
    type Batch = B;

    fn into_batch(self) -> Result<B, ProducerError> {
        Ok(self)
    }
}

impl<B: HostBatch, E: Into<ProducerError>> IntoHostBatch for Result<B, E> {
    type Batch = B;

    fn into_batch(self) -> Result<B, ProducerError> {
        self.map_err(Into::into)
    }
}

/// The slices of a batch, as [`HostBatch::visit`] names them.
#[derive(Debug, Default)]
pub struct Slices<'a> {
    pub(super) parts: Parts,
    /// One for each part; `None` for parts to be filled.
    pub(super) sources: Vec<Option<&'a [u8]>>,
    /// The first error.
    pub(super) error: Option<Error>,
}

impl<'a> Slices<'a> {
    /// A slice of pageable memory. A second slice of the same name makes the batch an error.
    pub fn slice<T: Pod>(&mut self, name: &str, slice: &'a [T]) {
        let source = Some(bytemuck::cast_slice(slice));
        self.push(name, size_of_val(slice), size_of::<T>(), source);
    }

    /// Page-locked room for `len` elements, which [`HostBatch::fill`] writes. Names are as for
    /// [`slice`](Self::slice).
    pub fn reserve<T: Pod>(&mut self, name: &str, len: usize) {
        match byte_count::<T>("Slices::reserve", len) {
            Ok(bytes) => self.push(name, bytes, size_of::<T>(), None),
            Err(error) => drop(self.error.get_or_insert(error)),
        }
    }

    /// A slice of `bytes` bytes, in elements of `size`. Without a source it will be filled.
    pub(crate) fn push(&mut self, name: &str, bytes: usize, size: usize, source: Option<&'a [u8]>) {
        match self.parts.push(name, bytes, size) {
            Ok(()) => self.sources.push(source),
            Err(error) => drop(self.error.get_or_insert(error)),
        }
    }

    /// Whether a worker has to call [`HostBatch::fill`].
    pub(super) fn has_reserved(&self) -> bool {
        self.sources.iter().any(Option::is_none)
    }
}

/// The page-locked memory of a batch while [`HostBatch::fill`] writes it.
#[derive(Debug)]
pub struct FillBlock<'a> {
    pub(super) parts: &'a Parts,
    /// The bytes of all parts, with the gaps.
    pub(super) bytes: &'a mut [u8],
}

impl FillBlock<'_> {
    /// The elements of the slice that was reserved by this name. Their contents are unspecified at
    /// first.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if the batch has no such slice, or its
    /// bytes are not a whole number of elements.
    pub fn slice_mut<T: Pod>(&mut self, name: &str) -> Result<&mut [T]> {
        const OPERATION: &str = "FillBlock::slice_mut";
        let part = self.parts.get(OPERATION, name)?;
        bytemuck::try_cast_slice_mut(&mut self.bytes[part.start..part.end()]).map_err(|_| {
            let what = format!("{} bytes as elements of {}", part.bytes, size_of::<T>());
            Error::invalid(OPERATION, what, "use the element type that the slice was reserved for")
        })
    }
}

#[cfg(feature = "capi")]
impl FillBlock<'_> {
    /// The bytes of slice number `number`.
    pub(crate) fn bytes_of(&mut self, number: usize) -> &mut [u8] {
        let part = &self.parts.as_slice()[number];
        &mut self.bytes[part.start..part.end()]
    }
}

/// Room for a slice in a [`FillBatch`].
#[derive(Clone, Debug)]
pub struct Reserved {
    name: Cow<'static, str>,
    bytes: Option<usize>,
}

impl Reserved {
    /// For `len` elements. A size that overflows makes the batch an error.
    pub fn of<T: Pod>(name: impl Into<Cow<'static, str>>, len: usize) -> Self {
        Reserved { name: name.into(), bytes: len.checked_mul(size_of::<T>()) }
    }
}

/// A batch that a closure writes straight into page-locked memory, on a worker's thread.
///
/// ```
/// use pinlane::prefetch::{FillBatch, Reserved};
///
/// let reserved = [Reserved::of::<f32>("x", 1000), Reserved::of::<u8>("y", 10)];
/// let batch = FillBatch::new(reserved, |block| {
///     block.slice_mut::<f32>("x")?.fill(0.5);
///     block.slice_mut::<u8>("y")?.fill(1);
///     Ok::<(), pinlane::Error>(())
/// });
/// # let _ = batch;
/// ```
#[derive(Debug)]
pub struct FillBatch<const N: usize, F> {
    spaces: [Reserved; N],
    fill: Option<F>,
}

impl<const N: usize, F, E> FillBatch<N, F>
where
    F: FnOnce(&mut FillBlock<'_>) -> Result<(), E>,
    E: Into<ProducerError>,
{
    /// A batch of these slices, which `fill` writes. Bytes that it does not write have unspecified
    /// contents.
    #[must_use]
    pub fn new(spaces: [Reserved; N], fill: F) -> Self {
        FillBatch { spaces, fill: Some(fill) }
    }
}

impl<const N: usize, F, E> HostBatch for FillBatch<N, F>
where
    F: FnOnce(&mut FillBlock<'_>) -> Result<(), E>,
    E: Into<ProducerError>,
{
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        for space in &self.spaces {
            slices.reserve::<u8>(&space.name, space.bytes.unwrap_or(usize::MAX));
        }
    }

    fn fill(&mut self, block: &mut FillBlock<'_>) -> Result<(), ProducerError> {
        self.fill.take().map_or(Ok(()), |fill| fill(block).map_err(Into::into))
    }
}

/// A slice of elements, with any owner.
pub trait Elements {
    #[doc(hidden)]
    fn show<'a>(&'a self, name: &str, slices: &mut Slices<'a>);
}

macro_rules! slices {
    ($([$($generics:tt)*] $type:ty;)*) => {$(
        impl<$($generics)*> Elements for $type {
            fn show<'a>(&'a self, name: &str, slices: &mut Slices<'a>) {
                slices.slice::<T>(name, self);
            }
        }

        impl<$($generics)*> HostBatch for $type {
            fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
                self.show("0", slices);
            }
        }
    )*};
}

slices! {
    [T: Pod] Vec<T>;
    [T: Pod] Box<[T]>;
    [T: Pod] Arc<[T]>;
    [T: Pod] &'static [T];
    [T: Pod, const N: usize] [T; N];
}

macro_rules! tuples {
    ($(($($slice:ident $name:literal),+))*) => {$(
        impl<$($slice: Elements),+> HostBatch for ($($slice,)+) {
            fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
                #[allow(non_snake_case)]
                let ($($slice,)+) = self;
                $($slice.show($name, slices);)+
            }
        }
    )*};
}

tuples! {
    (A "0")
    (A "0", B "1")
    (A "0", B "1", C "2")
    (A "0", B "1", C "2", D "3")
}

impl<K: AsRef<str>, S: Elements> HostBatch for BTreeMap<K, S> {
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        self.iter().for_each(|(name, slice)| slice.show(name.as_ref(), slices));
    }
}

impl<K: AsRef<str>, S: Elements, H: BuildHasher> HostBatch for HashMap<K, S, H> {
    fn visit<'a>(&'a self, slices: &mut Slices<'a>) {
        self.iter().for_each(|(name, slice)| slice.show(name.as_ref(), slices));
    }
}
