//! Batches of copies (rule 8).
//!
//! | source on the host | when it is read |
//! |---|---|
//! | in stream order, page-locked | when the batch runs |
//! | in stream order, pageable | at the call, when the stream is done, or when the batch runs |
//! | during the call | at the call |
//! | any order | at the call, or when the batch runs |
//!
//! Where there are two, the seed picks; an eager machine takes the first, and so does one that
//! [stages](crate::Builder::stage_pageable), of pageable sources. A call that writes to pageable
//! memory waits; a machine that stages promises that.

use std::ffi::c_void;

use super::ranges::transfer;
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::host::{Access, HostPtr, HostUse};
use crate::operation::{Action, Source, Transfer};
use crate::races::RacingAccess;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, CopyKind, DriverResult, Item, RawStream};

/// When the source of a copy of a batch may be read (`cudaMemcpySrcAccessOrder`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// In the order of the stream.
    InStreamOrder,
    /// During the call, ahead of the order of the stream.
    DuringCall,
    /// At any time from the call on, in any order.
    Any,
}

/// One copy of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchEntry {
    /// Where the bytes go.
    pub dst: *mut c_void,
    /// Where they come from.
    pub src: *const c_void,
    /// How many.
    pub bytes: usize,
    /// When the source may be read.
    pub order: SourceOrder,
}

impl BatchEntry {
    fn is_of_nothing(&self) -> bool {
        self.bytes == 0 || self.dst.is_null() || self.src.is_null()
    }

    fn plain(&self) -> Item {
        let (src, dst) = (self.src.addr() as u64, self.dst.addr() as u64);
        Item { src, dst, bytes: self.bytes as u64 }
    }
}

impl Emulator {
    /// Makes many copies, in any order among themselves. `cudaMemcpyBatchAsync`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] on the legacy stream, for NULL, and for copies of no bytes; and
    /// as for [`copy`](Self::copy). [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`], with a finding, on a
    /// capturing stream; the capture stays valid. Copies that overlap are a finding only.
    ///
    /// # Safety
    ///
    /// * As for [`copy`](Self::copy), of each entry.
    pub unsafe fn copy_batch(&self, stream: RawStream, entries: &[BatchEntry]) -> DriverResult<()> {
        if entries.iter().any(BatchEntry::is_of_nothing) {
            return Err(CudaCode::INVALID_VALUE);
        }
        entries.iter().try_for_each(|entry| self.held(entry.dst).check_writable())?;
        let (within_host, entries): (Vec<BatchEntry>, Vec<BatchEntry>) = {
            let on_device = |ptr: *const c_void| self.held(ptr).is_device();
            entries.iter().partition(|entry| !on_device(entry.dst) && !on_device(entry.src))
        };
        let (is_late, drains) = self.on_stream(Call::CopyBatch, stream, |machine, key| {
            machine.check_entries(key, &entries)?;
            let is_late = machine.takes_liberty_on(key, 2);
            let mut drains = false;
            for entry in entries.iter().filter(|entry| entry.order == SourceOrder::InStreamOrder) {
                let host = HostUse::new(HostPtr(entry.src.cast_mut().cast()), entry.bytes, READ);
                let on_device = machine.memory.device_of(entry.src.addr() as u64).is_some();
                drains |= !on_device && machine.is_pageable(Call::CopyBatch, key, &host)?;
            }
            Ok((is_late, drains))
        })?;
        let reads_now = !is_late || self.with(|machine| machine.stages_pageable);
        if !within_host.is_empty() || (drains && reads_now) {
            self.drain(stream, !within_host.is_empty())?;
        }
        // As every copy within the host: by the call (rule 2).
        self.copied_by_host(within_host.iter().map(|entry| (entry.dst, entry.src, entry.bytes)));
        for BatchEntry { dst, src, bytes, .. } in within_host {
            // SAFETY: the caller says that both are mapped.
            unsafe { std::ptr::copy(src.cast::<u8>(), dst.cast::<u8>(), bytes) };
        }
        if entries.is_empty() {
            return Ok(());
        }
        let (waits, is_promised, tail) = self.on_stream(Call::CopyBatch, stream, |machine, key| {
            let transfers: DriverResult<Box<[Transfer]>> =
                entries.iter().map(|entry| machine.batch_transfer(key, entry, is_late)).collect();
            let transfers = transfers?;
            let to_pageable =
                |transfer: &Transfer| matches!(transfer, Transfer::Out { dst, .. } if dst.pageable);
            let waits = transfers.iter().any(to_pageable);
            machine.submit(key, Vec::new(), Action::Batch(Call::CopyBatch, transfers))?;
            Ok((waits, machine.stages_pageable, machine.tail(key)))
        })?;
        if waits { self.wait(stream.device, tail, is_promised) } else { Ok(()) }
    }
}

const READ: Access = Access::Read;

impl Machine {
    /// Enqueues a batch of copies that all go in one direction, from and to page-locked memory.
    pub(crate) fn copy_batch(
        &mut self,
        key: Key,
        kind: CopyKind,
        copies: &[Item],
    ) -> DriverResult<()> {
        let copies: Vec<Item> = copies.iter().copied().filter(|copy| copy.bytes != 0).collect();
        if copies.is_empty() {
            return Ok(());
        }
        self.check_batch(key)?;
        if depend(&copies) {
            return Err(self.bad_copy(Call::CopyBatch, key, "copies that overlap"));
        }
        let transfers: DriverResult<_> =
            copies.iter().map(|copy| self.transfer_of(Call::CopyBatch, key, kind, copy)).collect();
        self.submit(key, Vec::new(), Action::Batch(Call::CopyBatch, transfers?))
    }

    /// Whether a stream takes batches.
    fn check_batch(&self, key: Key) -> DriverResult<()> {
        if !self.batches {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        if self.is_legacy(key) {
            return Err(CudaCode::INVALID_VALUE);
        }
        if self.streams.get(key).is_some_and(|stream| stream.capture.is_some()) {
            return Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    /// One copy of a call that makes several.
    pub(super) fn transfer_of(
        &mut self,
        call: Call,
        key: Key,
        kind: CopyKind,
        copy: &Item,
    ) -> DriverResult<Transfer> {
        let (Item { dst, src, .. }, bytes) = (*copy, copy.bytes as usize);
        let (at, access, device) = match kind {
            CopyKind::H2D => (src, Access::Read, dst),
            CopyKind::D2H => (dst, Access::Write, src),
            CopyKind::D2D => {
                let device = self.memory.device_of(src).unwrap_or_default();
                let (dst_at, src_at) = ((dst, device), (src, device));
                self.check_across(call, key, dst_at, src_at, bytes)?;
                return Ok(Transfer::Across { dst, src, bytes });
            }
        };
        let plain = || HostPtr(std::ptr::without_provenance_mut(at as usize));
        let ptr = self.host.locate(at, bytes).unwrap_or_else(plain);
        let host = HostUse::new(ptr, bytes, access);
        self.check_page_locked(call, key, &host)?;
        Ok(transfer(host, device))
    }

    /// Whether a stream takes these copies. GPUs were seen to make copies that overlap.
    fn check_entries(&mut self, key: Key, entries: &[BatchEntry]) -> DriverResult<()> {
        let takes = self.check_batch(key);
        if takes == Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED) {
            let message = format!("CopyBatch on {}, which is capturing", self.describe(key));
            self.report(FindingKind::Capture, message);
        }
        takes?;
        let copies: Vec<Item> = entries.iter().map(BatchEntry::plain).collect();
        if depend(&copies) {
            self.bad_copy(Call::CopyBatch, key, "copies that overlap");
        }
        Ok(())
    }

    fn batch_transfer(
        &mut self,
        key: Key,
        entry: &BatchEntry,
        is_late: bool,
    ) -> DriverResult<Transfer> {
        let (Item { dst, src, .. }, bytes) = (entry.plain(), entry.bytes);
        let call = Call::CopyBatch;
        let (to, from) = (self.memory.device_of(dst), self.memory.device_of(src));
        for address in [to.map(|_| dst), from.map(|_| src)].into_iter().flatten() {
            self.check_allocated(call, key, address, bytes)?;
        }
        let ptr = |at: *const c_void| HostPtr(at.cast_mut().cast());
        match (to, from) {
            (Some(to), Some(from)) => {
                let _ = self.check_across(call, key, (dst, to), (src, from), bytes);
                Ok(Transfer::Across { dst, src, bytes })
            }
            (None, Some(_)) => {
                let host = HostUse::new(ptr(entry.dst), bytes, Access::Write);
                let pageable = self.is_pageable(call, key, &host)?;
                let waited = self.waits_for(pageable, Access::Write);
                Ok(Transfer::Out { dst: HostUse { pageable, waited, ..host }, src })
            }
            (Some(_), None) => {
                let host = HostUse::new(ptr(entry.src), bytes, READ);
                let pageable = self.is_pageable(call, key, &host)?;
                let in_order = entry.order == SourceOrder::InStreamOrder;
                let stages = pageable && self.stages_pageable;
                let is_late = is_late && !stages;
                if in_order && (!pageable || is_late) {
                    let host = HostUse { pageable, in_order, ..host };
                    return Ok(Transfer::In { dst, src: Source::Host(host) });
                }
                if entry.order == SourceOrder::Any && is_late {
                    // Out of the stream's order, as pageable memory is always read.
                    let host = HostUse { pageable: true, ..host };
                    return Ok(Transfer::In { dst, src: Source::Host(host) });
                }
                // What is promised to be done races with nothing that comes later.
                let during_call = entry.order == SourceOrder::DuringCall || stages;
                let from = if during_call { 0 } else { src as usize };
                if during_call && in_order {
                    // The call has waited for the stream.
                    let stream = self.streams.get(key).map(|stream| stream.agent);
                    self.races.read_by_call(call, stream, src, bytes as u64);
                    self.report_races();
                } else if during_call {
                    self.races.host_access(src, bytes as u64, RacingAccess::Read);
                    self.report_races();
                }
                // SAFETY: the caller of `Emulator::copy_batch` says that it can be read now.
                let bytes = unsafe { self.host.taken(host.ptr, bytes) };
                let src = Source::Taken { bytes, from, ahead: !in_order };
                Ok(Transfer::In { dst, src })
            }
            (None, None) => unreachable!("copied by the call"),
        }
    }
}

/// Whether a destination of the batch overlaps another one, or a source.
fn depend(copies: &[Item]) -> bool {
    let range = |start: u64, bytes, writes| (start, start.saturating_add(bytes), writes);
    let destinations = copies.iter().map(|copy| range(copy.dst, copy.bytes, true));
    let sources = copies.iter().map(|copy| range(copy.src, copy.bytes, false));
    let mut ranges: Vec<_> = destinations.chain(sources).collect();
    ranges.sort_unstable();
    let (mut written, mut used) = (0, 0);
    ranges.into_iter().any(|(start, end, writes)| {
        let overlaps = start < if writes { used } else { written };
        used = used.max(end);
        written = written.max(if writes { end } else { 0 });
        overlaps
    })
}
