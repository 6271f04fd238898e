//! One side of all the copies of a batch: the places that it names, and the buffers that they lie
//! in.
//!
//! C may name one buffer in a thousand copies. It is looked up and borrowed once, as a whole; where
//! it is written, the borrowed whole is cut into parts, which are exclusive each.
//!
//! # Invariants
//!
//! * A place is named by an address or by a buffer, and lies in an address space or in its buffer.
//! * Parts that are cut do not overlap: what would has no bytes left.

use std::ffi::c_void;
use std::ops::Range;

use crate::capi::buffer::HostBuffer;
use crate::capi::device_buffer::pinlane_device_buffer;
use crate::capi::handle::{self, Handle};
use crate::capi::slice::check_memory;
use crate::capi::table::{Alone, Inside};
use crate::driver::DevicePtr;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceBuf, DeviceSliceMut, PinnedSliceMut};
use crate::stream::Stream;

/// `bytes` from `address` on, or from `offset` on in a buffer.
pub(in crate::capi) struct Place<H> {
    pub(in crate::capi) address: *mut c_void,
    pub(in crate::capi) buffer: *mut H,
    pub(in crate::capi) offset: usize,
    pub(in crate::capi) bytes: usize,
}

impl<H> Place<H> {
    /// Only of a place that has been checked.
    pub(super) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }

    fn check(&self, operation: &'static str, number: usize) -> Result<()> {
        let refuse = |kind, what, remedy| {
            Err(Error::new(kind, operation, format!("copy {number}: {what}"), remedy))
        };
        if self.buffer.is_null() {
            if self.address.is_null() && self.bytes > 0 {
                return refuse(
                    ErrorKind::InvalidValue,
                    format!("{} bytes at NULL", self.bytes),
                    "name each side by its address or its buffer",
                );
            }
            return check_memory(operation, self.address.cast(), self.bytes).map(drop);
        }
        if !self.address.is_null() {
            return refuse(
                ErrorKind::InvalidValue,
                format!("a side is both at {:p} and in a buffer", self.address),
                "set the address to NULL, or the buffer",
            );
        }
        if self.offset.checked_add(self.bytes).is_none() {
            return refuse(
                ErrorKind::OutOfRange,
                format!("{} bytes from offset {} on", self.bytes, self.offset),
                "keep offset + bytes within the buffer",
            );
        }
        Ok(())
    }
}

pub(in crate::capi) struct Side<H: Handle> {
    operation: &'static str,
    pub(super) places: Vec<Place<H>>,
    /// The buffers that are named, ascending.
    handles: Vec<*mut H>,
}

impl<T: Buffer, H: Handle<Object = T>> Side<H> {
    /// Sorts out which buffers are named.
    pub(in crate::capi) fn new(
        operation: &'static str,
        places: impl Iterator<Item = Place<H>>,
    ) -> Result<Self> {
        let places: Vec<Place<H>> = places.collect();
        for (number, place) in places.iter().enumerate() {
            place.check(operation, number)?;
        }
        let mut handles: Vec<*mut H> =
            places.iter().map(|place| place.buffer).filter(|buffer| !buffer.is_null()).collect();
        handles.sort_unstable();
        handles.dedup();
        Ok(Side { operation, places, handles })
    }

    /// Borrows all buffers, and checks that the places lie in them.
    pub(super) fn shared(&self) -> Result<Vec<Inside<T>>> {
        let guards = self.handles.iter().map(|&buffer| handle::get(self.operation, buffer));
        let guards: Vec<_> = guards.collect::<Result<_>>()?;
        self.check_ranges(|buffer| guards[buffer].bytes()).map(|()| guards)
    }

    /// Borrows all buffers exclusively, and checks that the places lie in them.
    pub(in crate::capi) fn exclusive(&self) -> Result<Vec<Alone<T>>> {
        let guards = self.handles.iter().map(|&buffer| handle::get_mut(self.operation, buffer));
        let guards: Vec<_> = guards.collect::<Result<_>>()?;
        self.check_ranges(|buffer| guards[buffer].bytes()).map(|()| guards)
    }

    fn check_ranges(&self, bytes: impl Fn(usize) -> usize) -> Result<()> {
        for (number, place) in self.places.iter().enumerate() {
            let Some(buffer) = self.buffer(place) else { continue };
            let (range, bytes) = (place.range(), bytes(buffer));
            if range.end > bytes {
                return Err(Error::new(
                    ErrorKind::OutOfRange,
                    self.operation,
                    format!("copy {number}: bytes {range:?} of a buffer of {bytes} bytes"),
                    "keep offset + bytes within the buffer",
                ));
            }
        }
        Ok(())
    }

    /// The number of the buffer that a place lies in, if it lies in one.
    pub(super) fn buffer(&self, place: &Place<H>) -> Option<usize> {
        self.handles.binary_search(&place.buffer).ok()
    }

    /// Whether a buffer is named by both.
    pub(super) fn shares_buffers_with(&self, other: &Self) -> bool {
        self.handles.iter().any(|buffer| other.handles.binary_search(buffer).is_ok())
    }

    /// Where all places are, for who must know whether they overlap.
    pub(in crate::capi) fn addresses<'s>(
        &'s self,
        guards: &'s [Alone<T>],
    ) -> impl Iterator<Item = (u64, usize)> + 's {
        self.places.iter().map(|place| {
            let start = match self.buffer(place) {
                Some(buffer) => guards[buffer].start() + place.offset as u64,
                None => place.address.addr() as u64,
            };
            (start, place.bytes)
        })
    }

    /// Cuts the places out of the buffers that they lie in; `None` for the others.
    pub(in crate::capi) fn cut<'g, V: View>(
        &self,
        guards: &'g mut [Alone<T>],
        whole: impl Fn(&'g mut T) -> V,
    ) -> Result<Vec<Option<V>>> {
        let mut parts: Vec<Option<V>> = self.places.iter().map(|_| None).collect();
        let places = self.places.iter().enumerate();
        let mut wanted: Vec<(usize, usize, usize)> = places
            .filter_map(|(number, place)| Some((self.buffer(place)?, place.offset, number)))
            .collect();
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        for (index, guard) in guards.iter_mut().enumerate() {
            let (mut rest, mut at) = (whole(guard), 0);
            while let Some((_, _, number)) = wanted.next_if(|&(buffer, ..)| buffer == index) {
                let range = self.places[number].range();
                let start = range.start.max(at);
                let end = range.end.max(start);
                let (_, from) = rest.split(start - at)?;
                let (part, after) = from.split(end - start)?;
                parts[number] = Some(part);
                (rest, at) = (after, end);
            }
        }
        Ok(parts)
    }
}

impl Side<pinlane_device_buffer> {
    /// The device memory that is named by its address, for the time of a call, in the order of the
    /// places.
    ///
    /// # Safety
    ///
    /// * It is memory of the stream's device, valid until retired.
    pub(in crate::capi) unsafe fn lent(&self, stream: &Stream) -> Vec<DeviceBuf<u8>> {
        let lent = self.places.iter().filter(|place| place.buffer.is_null()).map(|place| {
            let address = place.address.addr() as DevicePtr;
            DeviceBuf::borrowed(stream.timeline.context(), address, place.bytes)
        });
        lent.collect()
    }
}

/// What a handle's cell holds.
pub(in crate::capi) trait Buffer: Send + Sync + 'static {
    fn start(&self) -> u64;
    fn bytes(&self) -> usize;
}

impl Buffer for HostBuffer {
    fn start(&self) -> u64 {
        self.as_ptr().addr() as u64
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Buffer for DeviceBuf<u8> {
    fn start(&self) -> u64 {
        self.as_device_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// An exclusive view that can be cut in two.
pub(in crate::capi) trait View: Sized {
    fn split(self, middle: usize) -> Result<(Self, Self)>;
}

impl View for PinnedSliceMut<'_, u8> {
    fn split(self, middle: usize) -> Result<(Self, Self)> {
        self.split_at_mut(middle)
    }
}

impl View for DeviceSliceMut<'_, u8> {
    fn split(self, middle: usize) -> Result<(Self, Self)> {
        self.split_at_mut(middle)
    }
}
