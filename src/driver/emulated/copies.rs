//! Copies for which CUDA has a choice of how to make them: from and to pageable memory, and
//! batches.
//!
//! Rule 4 says what may become of a copy of pageable memory; the seed picks a [`Way`]:
//!
//! | way | to the device | to the host |
//! |---|---|---|
//! | block | the call returns when the stream is done with it | the same |
//! | stage | the bytes are taken at the call | - |
//! | late | as from page-locked memory | as to page-locked memory |
//!
//! A program that counts on one of them is wrong with some seed. A stalled stream stalls a call
//! that blocks.

use super::driver::Runtime;
use super::finding::FindingKind;
use super::host_memory::{Access, Cover, HostMemory, HostPtr, HostUse};
use super::machine::Machine;
use super::operation::{Action, Position, Source, Transfer};
use super::slots::Key;
use crate::driver::{
    BatchAccess, BatchCopy, BatchKind, Call, DevicePtr, DriverResult, Ordinal, RawStream,
};
use crate::error::CudaCode;

/// What becomes of a copy between host and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Block,
    Stage,
    Late,
}

impl Runtime {
    /// A copy between host and device, of the kind that `call` says.
    #[inline]
    pub(super) fn copy_host(
        &self,
        call: Call,
        stream: RawStream,
        host: HostPtr,
        device: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        let access = match call {
            Call::CopyH2D | Call::CopyPageableH2D => Access::Read,
            _ => Access::Write,
        };
        let pageable = matches!(call, Call::CopyPageableH2D | Call::CopyPageableD2H);
        let target = self.on_stream(call, stream, |machine, key| {
            if pageable {
                machine.refuse_in_capture(call, key)?;
            }
            if bytes == 0 {
                return Ok(None);
            }
            let host = machine.host_side(call, key, host, bytes, access, pageable)?;
            let way = machine.way(std::slice::from_ref(&host));
            machine.submit(key, Vec::new(), Action::Copy(call, transfer(host, device, way)))?;
            Ok((way == Way::Block).then(|| machine.tail(key)))
        })?;
        self.wait(stream.device, target)
    }
}

impl Machine {
    /// Enqueues a batch; gives what its call has to wait for.
    pub(super) fn copy_batch(
        &mut self,
        key: Key,
        kind: BatchKind,
        access: BatchAccess,
        copies: &[BatchCopy],
    ) -> DriverResult<Option<Position>> {
        let copies: Vec<BatchCopy> =
            copies.iter().copied().filter(|copy| copy.bytes != 0).collect();
        if copies.is_empty() {
            return Ok(None);
        }
        if !self.batches {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        if self.is_legacy(key) {
            return Err(CudaCode::INVALID_VALUE);
        }
        if self.streams.get(key).is_some_and(|stream| stream.capture.is_some()) {
            return Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED);
        }
        if depend(&copies) {
            return Err(self.bad_batch(key, "copies that overlap"));
        }
        let (reads_host, pageable) = match kind {
            BatchKind::H2D => (true, false),
            BatchKind::PageableH2D => (true, true),
            BatchKind::D2H => (false, false),
            BatchKind::PageableD2H => (false, true),
            BatchKind::D2D => return self.batch_within(key, access, &copies),
        };
        let mut hosts = Vec::with_capacity(copies.len());
        for copy in &copies {
            let (at, access) =
                if reads_host { (copy.src, Access::Read) } else { (copy.dst, Access::Write) };
            let exposed = || HostPtr(std::ptr::with_exposed_provenance_mut(at as usize));
            let ptr = self.host.locate(at, copy.bytes).unwrap_or_else(exposed);
            hosts.push(self.host_side(Call::CopyBatch, key, ptr, copy.bytes, access, pageable)?);
        }
        let way = match access {
            BatchAccess::StreamOrder => self.way(&hosts),
            BatchAccess::DuringCall if !reads_host => {
                return Err(
                    self.bad_batch(key, "sources in device memory, to be read during the call")
                );
            }
            BatchAccess::DuringCall => {
                let pending =
                    |host: &HostUse| self.host.is_pending(host.ptr, host.bytes, Access::Write);
                if hosts.iter().any(pending) {
                    let what = "sources to be read during the call, which earlier work is to write";
                    return Err(self.bad_batch(key, what));
                }
                Way::Stage
            }
        };
        let device = |copy: &BatchCopy| if reads_host { copy.dst } else { copy.src };
        let transfers = hosts.into_iter().zip(&copies);
        let transfers = transfers.map(|(host, copy)| transfer(host, device(copy), way)).collect();
        self.submit(key, Vec::new(), Action::Batch(transfers))?;
        Ok((way == Way::Block).then(|| self.tail(key)))
    }

    fn batch_within(
        &mut self,
        key: Key,
        access: BatchAccess,
        copies: &[BatchCopy],
    ) -> DriverResult<Option<Position>> {
        if access == BatchAccess::DuringCall {
            return Err(self.bad_batch(key, "sources in device memory, to be read during the call"));
        }
        for copy in copies {
            let device = self.memory.device_of(copy.src).unwrap_or_default();
            if let Some(what) = bad_copy(self, (copy.dst, device), (copy.src, device), copy.bytes) {
                return Err(self.bad_batch(key, &what));
            }
        }
        let across =
            |copy: &BatchCopy| Transfer::Across { dst: copy.dst, src: copy.src, bytes: copy.bytes };
        let transfers = copies.iter().map(across).collect();
        self.submit(key, Vec::new(), Action::Batch(transfers))?;
        Ok(None)
    }

    fn bad_batch(&mut self, key: Key, what: &str) -> CudaCode {
        let message = format!("CopyBatch on {}: {what}", self.describe(key));
        self.misuse(FindingKind::BadCopy, message, CudaCode::INVALID_VALUE)
    }

    /// The host's side of a copy, if its memory is of the kind that it should be.
    fn host_side(
        &mut self,
        call: Call,
        key: Key,
        ptr: HostPtr,
        bytes: usize,
        access: Access,
        pageable: bool,
    ) -> DriverResult<HostUse> {
        let what = match self.host.cover(ptr, bytes) {
            // Rule 7: what is wholly page-locked is copied as such, whatever it was taken for.
            Cover::Whole => return Ok(HostUse::locked(ptr, bytes, access)),
            Cover::None if pageable => {
                return Ok(HostUse { ptr, bytes, access, pageable, fingerprint: None });
            }
            Cover::Part if pageable => "are page-locked in part",
            Cover::Part | Cover::None => "are not in one page-locked block",
        };
        let (stream, at) = (self.describe(key), ptr.address());
        let message = format!("{call:?} on {stream}: {bytes} bytes at {at:#x} {what}");
        Err(self.misuse(FindingKind::NotPageLocked, message, CudaCode::INVALID_VALUE))
    }

    /// How a copy of these ranges, all used alike, is made.
    fn way(&mut self, hosts: &[HostUse]) -> Way {
        if !hosts.iter().any(|host| host.pageable) {
            return Way::Late;
        }
        let early = |host: &HostUse| host.access == Access::Read && self.is_settled(host);
        let settled = hosts.iter().all(early);
        match self.rng.below(3) {
            0 => Way::Late,
            // Taken ahead of earlier work only where that leaves the source alone.
            1 if settled => Way::Stage,
            _ => Way::Block,
        }
    }
}

/// The copy of a range between host and device. What is staged is read now.
fn transfer(host: HostUse, device: DevicePtr, way: Way) -> Transfer {
    match (host.access, way) {
        (Access::Write, _) => Transfer::Out { dst: host, src: device },
        (Access::Read, Way::Stage) => {
            // SAFETY: the range was found page-locked under the same lock, or is valid as the
            // caller says; the host does not write to the source of a copy during its call.
            let taken = unsafe { HostMemory::bytes(host.ptr, host.bytes) };
            Transfer::In { dst: device, src: Source::Taken(taken.into()) }
        }
        (Access::Read, _) => Transfer::In { dst: device, src: Source::Host(host) },
    }
}

/// Whether a destination of the batch overlaps another one, or a source.
fn depend(copies: &[BatchCopy]) -> bool {
    let end = |start: u64, bytes: usize| start.saturating_add(bytes as u64);
    let destinations = copies.iter().map(|copy| (copy.dst, end(copy.dst, copy.bytes), true));
    let sources = copies.iter().map(|copy| (copy.src, end(copy.src, copy.bytes), false));
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

/// What is wrong with a copy between two device ranges, each with the device it should be on.
pub(super) fn bad_copy(
    machine: &Machine,
    dst: (DevicePtr, Ordinal),
    src: (DevicePtr, Ordinal),
    bytes: usize,
) -> Option<String> {
    if dst.0.abs_diff(src.0) < bytes as u64 {
        return Some(format!("{bytes} bytes at {:#x} and at {:#x} overlap", src.0, dst.0));
    }
    let misplaced = [src, dst].into_iter().find(|&(address, device)| {
        machine.memory.device_of(address).is_some_and(|actual| actual != device)
    });
    misplaced.map(|(address, device)| format!("{address:#x} is not memory of device {device}"))
}
