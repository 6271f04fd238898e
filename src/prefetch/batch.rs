//! The batches that the consumer gets.

use std::fmt;
#[cfg(feature = "capi")]
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::copy::Copied;
use super::recycler::{BatchMemory, Recycler};
use crate::error::Result;
#[cfg(feature = "capi")]
use crate::memory::DeviceBuf;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::ticket::Ticket;

/// A batch on the device, from [`Batches`](super::Batches).
///
/// All work on the consumer's stream is ordered after the copy, including work that this crate does
/// not know of. Work on other streams is ordered if it uses the views, as with any buffer.
///
/// It may be dropped on any thread, and in host functions. That does not wait. A later batch then
/// reuses its memory, after all work that was on the consumer's stream at the drop, and after all
/// uses of the views. If you give its addresses to other streams without
/// [`Stream::foreign`](crate::Stream::foreign), keep it until that work is complete.
pub struct DeviceBatch {
    number: u64,
    ticket: Ticket,
    /// `Some` until drop.
    set: Option<BatchMemory>,
    recycler: Arc<Recycler>,
}

impl DeviceBatch {
    pub(super) fn new(copied: Copied, recycler: &Arc<Recycler>) -> Self {
        let Copied { number, ticket, set } = copied;
        DeviceBatch { number, ticket, set: Some(set), recycler: recycler.clone() }
    }

    fn set(&self) -> &BatchMemory {
        self.set.as_ref().expect("there until drop")
    }

    /// The number of the batch in the producer's order, from 0.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.number
    }

    /// Complete when the batch is on the device. The consumer's stream waits for it anyway.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The names of the slices and their sizes in bytes, in the order in which the batch named
    /// them.
    pub fn names(&self) -> impl ExactSizeIterator<Item = (&str, usize)> {
        self.set().parts.as_slice().iter().map(|part| (part.name.as_str(), part.bytes))
    }

    /// The slice with this name, on the device.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if there is none, or its bytes are not a
    /// whole number of elements.
    pub fn slice<T: Pod>(&self, name: &str) -> Result<DeviceSlice<'_, T>> {
        let BatchMemory { parts, buffer } = self.set();
        let part = parts.get("DeviceBatch::slice", name)?;
        buffer.slice(part.start..part.end())?.cast()
    }

    /// The slice with this name, on the device, to be written.
    ///
    /// # Errors
    ///
    /// As for [`slice`](Self::slice).
    pub fn slice_mut<T: Pod>(&mut self, name: &str) -> Result<DeviceSliceMut<'_, T>> {
        let BatchMemory { parts, buffer } = self.set.as_mut().expect("there until drop");
        let part = parts.get("DeviceBatch::slice_mut", name)?;
        buffer.slice_mut(part.start..part.end())?.cast()
    }
}

/// For the C interface: a batch is one buffer there, and its slices are ranges.
#[cfg(feature = "capi")]
impl DeviceBatch {
    pub(crate) fn buffer(&self) -> &DeviceBuf<u8> {
        &self.set().buffer
    }

    pub(crate) fn buffer_mut(&mut self) -> &mut DeviceBuf<u8> {
        &mut self.set.as_mut().expect("there until drop").buffer
    }

    /// The range of the slice with this name in the buffer.
    pub(crate) fn range(&self, name: &str) -> Result<Range<usize>> {
        let part = self.set().parts.get("DeviceBatch::slice", name)?;
        Ok(part.start..part.end())
    }
}

impl Drop for DeviceBatch {
    fn drop(&mut self) {
        if let Some(set) = self.set.take() {
            self.recycler.give_back(set);
        }
    }
}

impl fmt::Debug for DeviceBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.debug_struct("DeviceBatch")
            .field("index", &self.number)
            .field("slices", &names)
            .finish_non_exhaustive()
    }
}
