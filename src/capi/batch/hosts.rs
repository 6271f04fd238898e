//! The host side of the copies of a batch: parts of buffers, memory of pools, and pageable memory.

use super::places::{Place, Places};
use crate::batch::{HostSlice, HostSliceMut};
use crate::capi::buffer::HostBuffer;
use crate::capi::memory::{destination, source};
use crate::capi::table::{Alone, Inside};
use crate::capi::{Result, invalid, pinlane_buffer};
use crate::context::Context;
use crate::memory::{PinnedBytes, PinnedSlice, PinnedSliceMut};
use crate::pool::block_at;

impl Places<pinlane_buffer> {
    /// The memory, and its block of a pool. The memory is not empty.
    ///
    /// # Safety
    ///
    /// * If it is memory of a pool, it is not given back during `'a`.
    unsafe fn block<'a>(
        &self,
        number: usize,
        context: &Context,
    ) -> Result<(*mut u8, PinnedBytes<'a>)> {
        let Place { pinned, bytes, .. } = self.places[number];
        // SAFETY: the precondition.
        let block = unsafe { block_at(pinned.cast(), bytes, context) };
        let block = block.ok_or_else(|| {
            let pair = self.pair;
            invalid(
                format!("{pair} {number}: {bytes} bytes at {pinned:p} are in no block of a pool"),
                "set pinned only for memory of pinlane_pool_allocate, or of a buffer of a pool",
            )
        })?;
        Ok((pinned.cast(), block))
    }

    /// Checks that a place named as `pinned` lies in memory of a pool.
    ///
    /// # Safety
    ///
    /// * If it is memory of a pool, it is not given back until this returns.
    pub(super) unsafe fn check_pinned(&self, number: usize, context: &Context) -> Result<()> {
        let place = &self.places[number];
        if place.pinned.is_null() || place.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the precondition.
        unsafe { self.block(number, context) }.map(drop)
    }

    /// The places, as sources: parts of `guards`, which [`shared`](Self::shared) borrowed, and
    /// memory.
    ///
    /// # Safety
    ///
    /// * Memory that is named by its address is readable, and not written, during `'g`.
    /// * Memory of a pool is not given back during `'g`, and the host does not write to it until
    ///   what is enqueued is complete.
    pub(super) unsafe fn sources<'g>(
        &'g self,
        guards: &'g [Inside<pinlane_buffer>],
        context: &'g Context,
    ) -> impl Iterator<Item = Result<HostSlice<'g, u8>>> {
        self.places.iter().enumerate().map(move |(number, place)| {
            Ok(match self.buffer(place) {
                Some(buffer) => guards[buffer].buffer().slice(place.range())?.into(),
                None if place.pinned.is_null() || place.bytes == 0 => {
                    // SAFETY: the first precondition. An empty place needs no memory.
                    unsafe { source(place.address, place.bytes) }?.into()
                }
                None => {
                    // SAFETY: the second precondition.
                    let (at, block) = unsafe { self.block(number, context) }?;
                    // SAFETY: they lie in the block, and are not written, by the second
                    // precondition.
                    unsafe { PinnedSlice::at(block, at, place.bytes) }.into()
                }
            })
        })
    }

    /// The places, as destinations: parts of `guards`, which [`exclusive`](Self::exclusive)
    /// borrowed, and memory.
    ///
    /// # Safety
    ///
    /// * Memory that is named by its address is writable, and no other code accesses it, during
    ///   `'g`.
    /// * Memory of a pool is not given back during `'g`, and the host does not access it until what
    ///   is enqueued is complete.
    /// * The places do not overlap.
    pub(super) unsafe fn destinations<'g>(
        &'g self,
        guards: &'g mut [Alone<pinlane_buffer>],
        context: &'g Context,
    ) -> Result<impl Iterator<Item = Result<HostSliceMut<'g, u8>>>> {
        let whole = |host: &'g mut HostBuffer| Ok(host.writable()?.as_slice_mut());
        let parts = self.cut(guards, whole, PinnedSliceMut::split_at_mut)?;
        let places = self.places.iter().zip(parts).enumerate();
        Ok(places.map(move |(number, (place, part))| {
            Ok(match part {
                Some(part) => part.into(),
                None if place.pinned.is_null() || place.bytes == 0 => {
                    // SAFETY: the first and the third precondition. An empty place needs no memory.
                    unsafe { destination(place.address, place.bytes) }?.into()
                }
                None => {
                    // SAFETY: the second precondition.
                    let (at, block) = unsafe { self.block(number, context) }?;
                    // SAFETY: they lie in the block. No other place names them, and the host does
                    // not access them, by the second and the third precondition.
                    unsafe { PinnedSliceMut::at(block, at, place.bytes) }.into()
                }
            })
        }))
    }
}
