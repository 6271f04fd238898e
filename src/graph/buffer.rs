//! The buffers of a graph, and the keys that name them.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::hazard::Access;
use crate::memory::{
    DeviceBuf, DeviceSlice, DeviceSliceMut, Operand, PinnedBuf, PinnedSlice, PinnedSliceMut, range,
};

/// A buffer that a graph can own: a [`PinnedBuf`], a [`DeviceBuf`], or an [`Arc`] of one, which
/// several graphs may share and none can write. Only these implement it.
pub trait GraphBuffer: Held {
    /// The type of its elements.
    type Element: Pod;

    #[doc(hidden)]
    const IS_OF_DEVICE: bool;
}

/// A buffer in page-locked host memory.
pub trait OnHost: GraphBuffer + sealed::Pinned<Self::Element> {}

/// A buffer in device memory.
pub trait OnDevice: GraphBuffer + sealed::OfDevice<Self::Element> {}

/// A buffer that work may write.
pub trait Writable: GraphBuffer {
    /// An exclusive view of a part of it.
    type SliceMut<'a>
    where
        Self: 'a;

    #[doc(hidden)]
    fn part_mut(&mut self, range: Range<usize>) -> Result<Self::SliceMut<'_>>;
}

mod sealed {
    use super::{Any, DeviceSlice, Operand, PinnedSlice, Pod, Range, Result};

    /// How a graph sees each of its buffers.
    pub trait Held: Any + Send + Sync {
        /// The number of elements, and the bytes of each.
        fn extent(&self) -> (usize, usize);

        /// A range of bytes, as a part of an operation that reads, or also writes them.
        fn operand(&self, bytes: Range<usize>, writes: bool) -> Operand<'_>;

        /// The address of the first byte, as CUDA takes it.
        fn address(&self) -> u64;

        /// Whether one copy may cover that range of bytes.
        fn is_one_piece(&self, bytes: Range<usize>) -> bool;
    }

    pub trait Pinned<T: Pod> {
        /// Some of the elements.
        fn part(&self, range: Range<usize>) -> Result<PinnedSlice<'_, T>>;
    }

    pub trait OfDevice<T: Pod> {
        /// Some of the elements.
        fn part(&self, range: Range<usize>) -> Result<DeviceSlice<'_, T>>;
    }
}

pub(crate) use sealed::Held;
pub(super) use sealed::Held as AnyBuffer;
#[cfg(feature = "capi")]
pub(crate) use sealed::{OfDevice, Pinned};

macro_rules! graph_buffer {
    (
        $buffer:ident, $where:ident, $parts:ident -> $view:ident, $view_mut:ident,
        $is_device:literal
    ) => {
        impl<T: Pod + Send + Sync> Held for $buffer<T> {
            fn extent(&self) -> (usize, usize) {
                (self.len(), size_of::<T>())
            }

            fn operand(&self, bytes: Range<usize>, writes: bool) -> Operand<'_> {
                self.operand_of(bytes, if writes { Access::Write } else { Access::Read })
            }

            fn address(&self) -> u64 {
                self.exposed_address()
            }

            fn is_one_piece(&self, bytes: Range<usize>) -> bool {
                $buffer::is_one_piece(self, bytes)
            }
        }

        impl<T: Pod + Send + Sync> GraphBuffer for $buffer<T> {
            type Element = T;
            const IS_OF_DEVICE: bool = $is_device;
        }

        impl<T: Pod + Send + Sync> sealed::$parts<T> for $buffer<T> {
            fn part(&self, range: Range<usize>) -> Result<$view<'_, T>> {
                self.slice(range)
            }
        }

        impl<T: Pod + Send + Sync> $where for $buffer<T> {}

        impl<T: Pod + Send + Sync> Writable for $buffer<T> {
            type SliceMut<'a> = $view_mut<'a, T>;

            fn part_mut(&mut self, range: Range<usize>) -> Result<$view_mut<'_, T>> {
                self.slice_mut(range)
            }
        }
    };
}

graph_buffer!(PinnedBuf, OnHost, Pinned -> PinnedSlice, PinnedSliceMut, false);
graph_buffer!(DeviceBuf, OnDevice, OfDevice -> DeviceSlice, DeviceSliceMut, true);

/// Nobody has exclusive access to the buffer while the graph has its clone, so nothing writes it.
impl<B: Held> Held for Arc<B> {
    fn extent(&self) -> (usize, usize) {
        (**self).extent()
    }

    fn operand(&self, bytes: Range<usize>, writes: bool) -> Operand<'_> {
        (**self).operand(bytes, writes)
    }

    fn address(&self) -> u64 {
        (**self).address()
    }

    fn is_one_piece(&self, bytes: Range<usize>) -> bool {
        (**self).is_one_piece(bytes)
    }
}

impl<B: GraphBuffer> GraphBuffer for Arc<B> {
    type Element = B::Element;
    const IS_OF_DEVICE: bool = B::IS_OF_DEVICE;
}

impl<T: Pod, B: sealed::Pinned<T>> sealed::Pinned<T> for Arc<B> {
    fn part(&self, range: Range<usize>) -> Result<PinnedSlice<'_, T>> {
        (**self).part(range)
    }
}

impl<T: Pod, B: sealed::OfDevice<T>> sealed::OfDevice<T> for Arc<B> {
    fn part(&self, range: Range<usize>) -> Result<DeviceSlice<'_, T>> {
        (**self).part(range)
    }
}

impl<B: OnHost> OnHost for Arc<B> {}
impl<B: OnDevice> OnDevice for Arc<B> {}

/// Names a buffer that a [`Capture`](super::Capture) has taken, there and in the
/// [`Graph`](super::Graph) that it becomes.
pub struct Key<B> {
    graph: u64,
    index: usize,
    buffer: PhantomData<fn() -> B>,
}

/// Names a part of such a buffer: a [`Key`] stands for all of it.
pub struct Part<B> {
    key: Key<B>,
    range: (Bound<usize>, Bound<usize>),
}

/// A part of a buffer, and what foreign work does with it.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    graph: u64,
    index: usize,
    range: (Bound<usize>, Bound<usize>),
    access: Access,
}

impl<B: GraphBuffer> Key<B> {
    /// The elements of the buffer in `range`. The call that takes the part checks the range.
    #[must_use]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Part<B> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        Part { key: self, range }
    }

    /// All of the buffer, for foreign work that reads it.
    #[must_use]
    pub fn reading(self) -> Named {
        self.slice(..).reading()
    }

    /// All of the buffer, for foreign work that writes it, and may read it.
    #[must_use]
    pub fn writing(self) -> Named
    where
        B: Writable,
    {
        self.slice(..).writing()
    }
}

impl<B: GraphBuffer> Part<B> {
    /// The part, for foreign work that reads it.
    #[must_use]
    pub fn reading(self) -> Named {
        self.named(Access::Read)
    }

    /// The part, for foreign work that writes it, and may read it.
    #[must_use]
    pub fn writing(self) -> Named
    where
        B: Writable,
    {
        self.named(Access::Write)
    }

    pub(super) fn named(self, access: Access) -> Named {
        Named { graph: self.key.graph, index: self.key.index, range: self.range, access }
    }
}

impl<B: GraphBuffer> From<Key<B>> for Part<B> {
    fn from(key: Key<B>) -> Self {
        key.slice(..)
    }
}

impl<B> Clone for Key<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Key<B> {}

impl<B> Clone for Part<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Part<B> {}

impl<B> fmt::Debug for Key<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("graph", &self.graph).field("index", &self.index).finish()
    }
}

impl<B> fmt::Debug for Part<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("key", &self.key).field("range", &self.range).finish()
    }
}

/// What an operation of a graph does with one buffer.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) index: usize,
    /// In bytes.
    pub(super) range: Range<usize>,
    pub(super) access: Access,
}

/// The buffers that a capture, or a graph, owns.
/// [`Graph::into_buffers`](super::Graph::into_buffers) gives them back.
pub struct Buffers {
    /// Which keys are theirs. No other buffers of the process have the same number.
    graph: u64,
    /// `None` where [`take`](Self::take) has taken one.
    all: Vec<Option<Box<dyn AnyBuffer>>>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        static GRAPHS: AtomicU64 = AtomicU64::new(0);
        Buffers { graph: GRAPHS.fetch_add(1, Ordering::Relaxed), all: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn add<B: GraphBuffer>(&mut self, buffer: B) -> Key<B> {
        self.all.push(Some(Box::new(buffer)));
        Key { graph: self.graph, index: self.all.len() - 1, buffer: PhantomData }
    }

    fn find(&self, operation: &'static str, graph: u64, index: usize) -> Result<&dyn AnyBuffer> {
        let found = self.all.get(index).filter(|_| graph == self.graph);
        found.and_then(|buffer| buffer.as_deref()).ok_or_else(|| stranger(operation))
    }

    /// The buffer of a key.
    pub(super) fn get<B: GraphBuffer>(&self, operation: &'static str, key: Key<B>) -> Result<&B> {
        let found: &dyn Any = self.find(operation, key.graph, key.index)?;
        found.downcast_ref().ok_or_else(|| stranger(operation))
    }

    pub(super) fn get_mut<B: GraphBuffer>(
        &mut self,
        operation: &'static str,
        key: Key<B>,
    ) -> Result<&mut B> {
        self.find(operation, key.graph, key.index)?;
        let found: &mut dyn Any = self.all[key.index].as_deref_mut().expect("just found");
        found.downcast_mut().ok_or_else(|| stranger(operation))
    }

    /// The elements that a part names.
    pub(super) fn elements<B: GraphBuffer>(
        &self,
        operation: &'static str,
        part: Part<B>,
    ) -> Result<(&B, Range<usize>)> {
        let buffer = self.get(operation, part.key)?;
        let range = range::resolve::<B::Element>(operation, part.range, buffer.extent().0)?;
        Ok((buffer, range))
    }

    /// What a named part is, in bytes.
    pub(super) fn use_of(&self, operation: &'static str, named: &Named) -> Result<Use> {
        let (len, size) = self.find(operation, named.graph, named.index)?.extent();
        let range = range::resolve::<()>(operation, named.range, len)?;
        let range = range.start * size..range.end * size;
        Ok(Use { index: named.index, range, access: named.access })
    }

    /// The address of a buffer.
    pub(super) fn address(&self, index: usize) -> u64 {
        self.all[index].as_deref().expect("a graph keeps its buffers").address()
    }

    /// The buffer's part of an operation.
    pub(super) fn operand(&self, user: &Use) -> Operand<'_> {
        let buffer = self.all[user.index].as_deref().expect("a graph keeps its buffers");
        buffer.operand(user.range.clone(), user.access == Access::Write)
    }

    /// Takes a buffer out. It knows the launches that still use it, as after any operation.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) if the key is another graph's, or the buffer was
    /// taken before.
    pub fn take<B: GraphBuffer>(&mut self, key: Key<B>) -> Result<B> {
        const OPERATION: &str = "Buffers::take";
        self.get(OPERATION, key)?;
        let taken: Box<dyn Any> = self.all[key.index].take().expect("just found");
        Ok(*taken.downcast().expect("just found"))
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<B> Key<B> {
    pub(super) fn index(self) -> usize {
        self.index
    }
}

impl<B> Part<B> {
    pub(super) fn key(self) -> Key<B> {
        self.key
    }
}

#[cold]
fn stranger(operation: &'static str) -> Error {
    let what = "the key names no buffer of this graph";
    let remedy = "use the keys of the same capture";
    Error::new(ErrorKind::InvalidValue, operation, what, remedy)
}
