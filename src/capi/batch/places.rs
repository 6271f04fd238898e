//! One side of all the copies of a batch: the places that it names, and the buffers that hold them.
//!
//! C may name one buffer in a thousand copies. The buffer is looked up and borrowed once, as a
//! whole. If it is written, the whole is cut into parts, each of which is exclusive.
//!
//! # Invariants
//!
//! * A place is named by an address, as memory of a pool, or by a buffer. It fits in the address
//!   space, in one block, or in its buffer.
//! * Parts do not overlap: a part that would overlap an earlier one is cut short.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use crate::capi::buffer::extent;
use crate::capi::memory::{check_memory, device_memory};
use crate::capi::table::{Alone, Inside, Kind};
use crate::capi::{ErrorKind, Result, handle, pinlane_device_buffer, refused};
use crate::copy::transfer::check_disjoint;
use crate::memory::{DeviceBuf, DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// `bytes` from `address` on, or from `offset` on in a buffer.
pub(in crate::capi) struct Place<H> {
    pub(super) address: *mut c_void,
    /// The address, if the caller names it as memory of a pool.
    pub(super) pinned: *mut c_void,
    buffer: *mut H,
    offset: usize,
    pub(super) bytes: usize,
    /// The start: an address, or an offset in the buffer.
    start: u64,
}

impl<H> Place<H> {
    pub(in crate::capi) fn new(
        address: *const c_void,
        buffer: *mut H,
        offset: usize,
        bytes: usize,
    ) -> Self {
        let (address, pinned) = (address.cast_mut(), ptr::null_mut());
        Place { address, pinned, buffer, offset, bytes, start: 0 }
    }

    /// The same place, or memory of a pool if `pinned` is not NULL.
    pub(super) fn or_pinned(self, pinned: *mut c_void) -> Self {
        Place { pinned, ..self }
    }

    /// The address of a place that is not in a buffer.
    fn memory(&self) -> *mut c_void {
        if self.pinned.is_null() { self.address } else { self.pinned }
    }

    /// Only for a place that was checked.
    pub(super) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }

    /// Checks the place, and computes its start.
    fn check(&mut self, pair: &str, number: usize) -> Result<()>
    where
        H: Kind,
    {
        let memory = self.memory();
        self.start = memory.addr() as u64;
        let (kind, what, remedy) = match (memory.is_null(), self.buffer.is_null()) {
            _ if !self.address.is_null() && !self.pinned.is_null() => (
                ErrorKind::InvalidValue,
                format!("a side is both at {:p} and, pinned, at {memory:p}", self.address),
                "set the address to NULL, or pinned",
            ),
            (true, true) if self.bytes > 0 => (
                ErrorKind::InvalidValue,
                format!("{} bytes at NULL", self.bytes),
                "name each side by its address or its buffer",
            ),
            (_, true) => return check_memory(memory, self.bytes).map(drop),
            (false, false) => (
                ErrorKind::InvalidValue,
                format!("a side is both at {memory:p} and in a buffer"),
                "set the address to NULL, or the buffer",
            ),
            (true, false) => {
                let (start, bytes) = extent(handle::notes(self.buffer)?);
                let what = match self.offset.checked_add(self.bytes) {
                    None => format!("{} bytes from offset {} on", self.bytes, self.offset),
                    Some(end) if end > bytes => {
                        format!("bytes {:?} of a buffer of {bytes} bytes", self.range())
                    }
                    Some(_) => {
                        self.start = start + self.offset as u64;
                        return Ok(());
                    }
                };
                (ErrorKind::OutOfRange, what, "keep offset + bytes within the buffer")
            }
        };
        Err(refused(kind, format!("{pair} {number}: {what}"), remedy))
    }
}

pub(in crate::capi) struct Places<H: Kind> {
    /// The name of a pair of places in messages.
    pub(super) pair: &'static str,
    pub(super) places: Vec<Place<H>>,
    /// The buffers that the places name, ascending.
    handles: Vec<*mut H>,
}

impl<H: Kind> Places<H> {
    /// The places, which lie in their buffers.
    pub(in crate::capi) fn new(
        pair: &'static str,
        places: impl Iterator<Item = Place<H>>,
    ) -> Result<Self> {
        let mut places: Vec<Place<H>> = places.collect();
        for (number, place) in places.iter_mut().enumerate() {
            place.check(pair, number)?;
        }
        let mut handles: Vec<*mut H> =
            places.iter().map(|place| place.buffer).filter(|buffer| !buffer.is_null()).collect();
        handles.sort_unstable();
        handles.dedup();
        Ok(Places { pair, places, handles })
    }

    /// Borrows all buffers.
    pub(super) fn shared(&self) -> Result<Vec<Inside<H>>> {
        self.handles.iter().map(|&buffer| handle::get(buffer)).collect()
    }

    /// Borrows all buffers exclusively.
    pub(in crate::capi) fn exclusive(&self) -> Result<Vec<Alone<H>>> {
        self.handles.iter().map(|&buffer| handle::get_mut(buffer)).collect()
    }

    /// Refuses places that overlap.
    pub(in crate::capi) fn check_apart(&self) -> Result<()> {
        check_disjoint("", self.places.iter().map(|place| (place.start, place.bytes)))
    }

    /// The number of the buffer that holds a place, if one does.
    pub(super) fn buffer(&self, place: &Place<H>) -> Option<usize> {
        self.handles.binary_search(&place.buffer).ok()
    }

    /// Whether a place is in this buffer.
    pub(super) fn name(&self, buffer: *mut H) -> bool {
        self.handles.binary_search(&buffer).is_ok()
    }

    /// Whether both sides name the same buffer.
    pub(super) fn shares_buffers_with(&self, other: &Self) -> bool {
        self.handles.iter().any(|&buffer| other.name(buffer))
    }

    /// Cuts the places out of the buffers that hold them; `None` for the other places.
    pub(super) fn cut<'g, V>(
        &self,
        guards: &'g mut [Alone<H>],
        whole: impl Fn(&'g mut H::Object) -> Result<V>,
        split: impl Fn(V, usize) -> Result<(V, V)>,
    ) -> Result<Vec<Option<V>>> {
        let mut parts: Vec<Option<V>> = self.places.iter().map(|_| None).collect();
        let places = self.places.iter().enumerate();
        let mut wanted: Vec<(usize, usize, usize)> = places
            .filter_map(|(number, place)| Some((self.buffer(place)?, place.offset, number)))
            .collect();
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        for (index, guard) in guards.iter_mut().enumerate() {
            let (mut rest, mut at) = (whole(guard)?, 0);
            while let Some((_, _, number)) = wanted.next_if(|&(buffer, ..)| buffer == index) {
                let range = self.places[number].range();
                let start = range.start.max(at);
                let end = range.end.max(start);
                let (_, from) = split(rest, start - at)?;
                let (part, after) = split(from, end - start)?;
                parts[number] = Some(part);
                (rest, at) = (after, end);
            }
        }
        Ok(parts)
    }
}

impl Places<pinlane_device_buffer> {
    /// The device memory that places name by its address, in order.
    ///
    /// # Safety
    ///
    /// * It is memory of the stream's device, and valid until what the call enqueues is complete.
    pub(in crate::capi) unsafe fn lent(&self, stream: &Stream) -> Result<Vec<DeviceBuf<u8>>> {
        let lent = self.places.iter().filter(|place| place.buffer.is_null()).map(|place| {
            // SAFETY: the same precondition.
            unsafe { device_memory(stream, place.address, place.bytes) }
        });
        lent.collect()
    }

    /// The places, to write: parts of `guards`, which [`exclusive`](Self::exclusive) borrowed, and
    /// [lent](Self::lent) memory.
    pub(in crate::capi) fn written<'g>(
        &self,
        guards: &'g mut [Alone<pinlane_device_buffer>],
        lent: &'g mut [DeviceBuf<u8>],
    ) -> Result<impl Iterator<Item = DeviceSliceMut<'g, u8>>> {
        let parts =
            self.cut(guards, |buffer| Ok(buffer.as_slice_mut()), DeviceSliceMut::split_at_mut)?;
        let mut lent = lent.iter_mut();
        Ok(parts.into_iter().map(move |part| {
            let place = part.or_else(|| lent.next().map(DeviceBuf::as_slice_mut));
            place.expect("a place is lent, or a part of a buffer")
        }))
    }

    /// The places, to read: parts of `guards`, which [`shared`](Self::shared) borrowed, and
    /// [lent](Self::lent) memory.
    pub(super) fn read<'g>(
        &'g self,
        guards: &'g [Inside<pinlane_device_buffer>],
        lent: &'g [DeviceBuf<u8>],
    ) -> impl Iterator<Item = Result<DeviceSlice<'g, u8>>> {
        let mut lent = lent.iter();
        self.places.iter().map(move |place| match self.buffer(place) {
            Some(buffer) => guards[buffer].slice(place.range()),
            None => Ok(lent.next().expect("a place without a buffer is lent").as_slice()),
        })
    }
}
