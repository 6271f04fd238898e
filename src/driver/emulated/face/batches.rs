//! Batches of copies (rule 8).
//!
//! | source on the host | when it is read |
//! |---|---|
//! | in stream order, page-locked | when the batch runs |
//! | in stream order, pageable | at the call, when the stream is done |
//! | during the call | at the call |
//! | any order | at the call, or when the batch runs, as the seed says |

use std::ffi::c_void;

use super::Face;
use crate::driver::emulated::copies::bad_copy;
use crate::driver::emulated::host_memory::{Access, HostPtr, HostUse};
use crate::driver::emulated::machine::Machine;
use crate::driver::emulated::operation::{Action, Source, Transfer};
use crate::driver::emulated::slots::Key;
use crate::driver::{BatchCopy, Call, DriverResult, RawStream};
use crate::error::CudaCode;

/// When the source of a copy of a batch may be read (`cudaMemcpySrcAccessOrder`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// In the order of the stream.
    InStreamOrder,
    /// Ahead of that, and not after the call.
    DuringCall,
    /// Ahead of that, and after the call.
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
    fn plain(&self) -> BatchCopy {
        BatchCopy { dst: self.dst.addr() as u64, src: self.src.addr() as u64, bytes: self.bytes }
    }
}

impl Face {
    /// Makes many copies, in any order among themselves. `cudaMemcpyBatchAsync`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] on the legacy stream; the same with a finding for copies that
    /// overlap, and as for [`copy`](Self::copy). [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`] on a
    /// capturing stream, whose capture goes on. [`CudaCode::NOT_SUPPORTED`] between two ranges of
    /// the host.
    ///
    /// # Safety
    ///
    /// * As for [`copy`](Self::copy), of each entry.
    pub unsafe fn copy_batch(&self, stream: RawStream, entries: &[BatchEntry]) -> DriverResult<()> {
        let entries: Vec<BatchEntry> =
            entries.iter().copied().filter(|entry| entry.bytes != 0).collect();
        let copies: Vec<BatchCopy> = entries.iter().map(BatchEntry::plain).collect();
        if copies.is_empty() {
            return self
                .emulator
                .with(|machine| machine.enter(Call::CopyBatch, stream.device, |_| Ok(())));
        }
        let runtime = &self.emulator.runtime;
        let drains = runtime.on_stream(Call::CopyBatch, stream, |machine, key| {
            machine.check_batch(key, &copies)?;
            let mut drains = false;
            for entry in entries.iter().filter(|entry| entry.order == SourceOrder::InStreamOrder) {
                let host = HostUse::new(HostPtr(entry.src.cast_mut().cast()), entry.bytes, READ);
                let on_device = machine.memory.device_of(entry.src.addr() as u64).is_some();
                drains |= !on_device && machine.is_pageable(Call::CopyBatch, key, &host)?;
            }
            Ok(drains)
        })?;
        if drains {
            self.drain(stream, false)?;
        }
        let (waits, tail) = runtime.on_stream(Call::CopyBatch, stream, |machine, key| {
            let is_late = machine.takes_liberty_on(key, 2);
            let transfers: DriverResult<Box<[Transfer]>> =
                entries.iter().map(|entry| machine.batch_transfer(key, entry, is_late)).collect();
            let transfers = transfers?;
            let to_pageable =
                |transfer: &Transfer| matches!(transfer, Transfer::Out { dst, .. } if dst.pageable);
            let waits = transfers.iter().any(to_pageable);
            machine.submit(key, Vec::new(), Action::Batch(transfers))?;
            Ok((waits, machine.tail(key)))
        })?;
        if waits { self.wait(stream.device, tail, false) } else { Ok(()) }
    }
}

const READ: Access = Access::Read;

impl Machine {
    fn batch_transfer(
        &mut self,
        key: Key,
        entry: &BatchEntry,
        is_late: bool,
    ) -> DriverResult<Transfer> {
        let BatchCopy { dst, src, bytes } = entry.plain();
        let call = Call::CopyBatch;
        let (to, from) = (self.memory.device_of(dst), self.memory.device_of(src));
        for address in [to.map(|_| dst), from.map(|_| src)].into_iter().flatten() {
            self.check_allocated(call, key, address, bytes)?;
        }
        let ptr = |at: *const c_void| HostPtr(at.cast_mut().cast());
        match (to, from) {
            (Some(to), Some(from)) => match bad_copy(self, (dst, to), (src, from), bytes) {
                Some(what) => Err(self.bad_batch(key, &what)),
                None => Ok(Transfer::Across { dst, src, bytes }),
            },
            (None, Some(_)) => {
                let host = HostUse::new(ptr(entry.dst), bytes, Access::Write);
                let pageable = self.is_pageable(call, key, &host)?;
                Ok(Transfer::Out { dst: HostUse { pageable, ..host }, src })
            }
            (Some(_), None) => {
                let host = HostUse::new(ptr(entry.src), bytes, READ);
                let pageable = self.is_pageable(call, key, &host)?;
                let in_order = entry.order == SourceOrder::InStreamOrder;
                if in_order && !pageable {
                    return Ok(Transfer::In { dst, src: Source::Host(host) });
                }
                if entry.order == SourceOrder::Any && is_late {
                    // Out of the stream's order, as pageable memory is always read.
                    let host = HostUse { pageable: true, ..host };
                    return Ok(Transfer::In { dst, src: Source::Host(host) });
                }
                // What is done races with nothing that comes later.
                let at = if entry.order == SourceOrder::Any { src as usize } else { 0 };
                // SAFETY: the caller of `Face::copy_batch` says that it can be read now.
                let taken = unsafe { self.host.bytes(host.ptr, bytes) };
                Ok(Transfer::In { dst, src: Source::Taken { bytes: taken.into(), from: at } })
            }
            (None, None) => Err(CudaCode::NOT_SUPPORTED),
        }
    }
}
