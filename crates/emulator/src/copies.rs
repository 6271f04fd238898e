//! Copies between host and device, and batches of copies.
//!
//! This crate copies page-locked memory only. For programs that hand pageable memory to CUDA
//! themselves, [`Emulator`] makes such copies too; the seed picks their [`Way`] (rule 4).

use super::emulator::Emulator;
use super::finding::FindingKind;
use super::machine::Machine;
use super::memory::host::{Access, Cover, HostPtr, HostUse};
use super::memory::pageable::Way;
use super::operation::{Action, Source, Transfer};
use super::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{BatchCopy, BatchKind, Call, DevicePtr, DriverResult, Ordinal, RawStream};

impl Emulator {
    /// Copies from pageable host memory to the device, as `cudaMemcpyAsync` does.
    ///
    /// The call may return before the source is read, or only when the copy and all earlier work
    /// of the stream are done: CUDA allows both, and the seed decides. Memory that is wholly
    /// page-locked is copied as such. A fault for [`Call::CopyH2D`] strikes here too.
    ///
    /// # Errors
    ///
    /// As `cudaMemcpyAsync`; [`CudaCode::INVALID_VALUE`] where part of the memory is page-locked.
    ///
    /// # Safety
    ///
    /// * `src .. src + bytes` is readable host memory, and nobody writes to it, from the call until
    ///   the copy is complete; operations that are ahead of it in the stream may.
    pub unsafe fn copy_pageable_h2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> DriverResult<()> {
        let host = HostUse::new(HostPtr(src.cast_mut()), bytes, Access::Read);
        self.copy_pageable(stream, host, dst)
    }

    /// Copies from the device to pageable host memory; otherwise as
    /// [`copy_pageable_h2d`](Self::copy_pageable_h2d).
    ///
    /// # Errors
    ///
    /// As for [`copy_pageable_h2d`](Self::copy_pageable_h2d).
    ///
    /// # Safety
    ///
    /// * `dst .. dst + bytes` is initialised host memory, and nobody reads or writes it, until the
    ///   copy is complete.
    pub unsafe fn copy_pageable_d2h(
        &self,
        stream: RawStream,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        let host = HostUse::new(HostPtr(dst), bytes, Access::Write);
        self.copy_pageable(stream, host, src)
    }
}

/// The call that copies host memory which the device reads, or writes.
fn call_of(access: Access) -> Call {
    match access {
        Access::Read => Call::CopyH2D,
        Access::Write => Call::CopyD2H,
    }
}

impl Emulator {
    /// A copy between page-locked memory and the device.
    #[inline]
    pub(super) fn copy_host(
        &self,
        stream: RawStream,
        host: HostUse,
        device: DevicePtr,
    ) -> DriverResult<()> {
        let call = call_of(host.access);
        self.on_stream(call, stream, |machine, key| {
            if host.bytes == 0 {
                return Ok(());
            }
            machine.check_page_locked(call, key, &host)?;
            machine.submit(key, Vec::new(), Action::Copy(call, transfer(host, device)))
        })
    }

    fn copy_pageable(
        &self,
        stream: RawStream,
        host: HostUse,
        device: DevicePtr,
    ) -> DriverResult<()> {
        let call = call_of(host.access);
        let target = self.on_stream(call, stream, |machine, key| {
            machine.refuse_in_capture(call, key)?;
            if host.bytes == 0 {
                return Ok(None);
            }
            let pageable = machine.is_pageable(call, key, &host)?;
            let host = HostUse { pageable, ..host };
            let way = match pageable {
                true => machine.pick_way(key, host.access, host.bytes),
                false => Way::Late,
            };
            let taken = match way {
                Way::Stage => host.bytes,
                Way::Torn => host.bytes / 2,
                Way::Block | Way::Late => 0,
            };
            if taken > 0 {
                // SAFETY: valid as the caller says, who does not write to it during the call.
                let bytes = unsafe { machine.host.taken(host.ptr, taken) };
                let src = Source::Taken { bytes, from: host.ptr.address(), ahead: true };
                let first = Transfer::In { dst: device, src };
                machine.submit(key, Vec::new(), Action::Copy(call, first))?;
            }
            if taken < host.bytes {
                let rest = HostPtr(host.ptr.0.wrapping_add(taken));
                let host = HostUse { ptr: rest, bytes: host.bytes - taken, ..host };
                let rest = transfer(host, device + taken as u64);
                machine.submit(key, Vec::new(), Action::Copy(call, rest))?;
            }
            Ok((way == Way::Block).then(|| machine.tail(key)))
        })?;
        target.map_or(Ok(()), |target| self.shared.wait(stream.device, target, None))
    }
}

impl Machine {
    /// Enqueues a batch.
    pub(super) fn copy_batch(
        &mut self,
        key: Key,
        kind: BatchKind,
        copies: &[BatchCopy],
    ) -> DriverResult<()> {
        let copies: Vec<BatchCopy> =
            copies.iter().copied().filter(|copy| copy.bytes != 0).collect();
        if copies.is_empty() {
            return Ok(());
        }
        self.check_batch(key)?;
        if depend(&copies) {
            return Err(self.bad_batch(key, "copies that overlap"));
        }
        let transfers: DriverResult<_> =
            copies.iter().map(|copy| self.transfer_of(key, kind, copy)).collect();
        self.submit(key, Vec::new(), Action::Batch(transfers?))
    }

    /// Whether a stream takes batches.
    pub(super) fn check_batch(&self, key: Key) -> DriverResult<()> {
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

    /// One copy of a batch.
    fn transfer_of(
        &mut self,
        key: Key,
        kind: BatchKind,
        copy: &BatchCopy,
    ) -> DriverResult<Transfer> {
        let &BatchCopy { dst, src, bytes } = copy;
        let (at, access, device) = match kind {
            BatchKind::H2D => (src, Access::Read, dst),
            BatchKind::D2H => (dst, Access::Write, src),
            BatchKind::D2D => {
                let device = self.memory.device_of(src).unwrap_or_default();
                return match bad_copy(self, (dst, device), (src, device), bytes) {
                    Some(what) => Err(self.bad_batch(key, &what)),
                    None => Ok(Transfer::Across { dst, src, bytes }),
                };
            }
        };
        let plain = || HostPtr(std::ptr::without_provenance_mut(at as usize));
        let ptr = self.host.locate(at, bytes).unwrap_or_else(plain);
        let host = HostUse::new(ptr, bytes, access);
        self.check_page_locked(Call::CopyBatch, key, &host)?;
        Ok(transfer(host, device))
    }

    pub(super) fn bad_batch(&mut self, key: Key, what: &str) -> CudaCode {
        let message = format!("CopyBatch on {}: {what}", self.describe(key));
        self.misuse(FindingKind::BadCopy, message, CudaCode::INVALID_VALUE)
    }

    /// The host's side of a copy has to lie in one page-locked block.
    #[inline]
    fn check_page_locked(&mut self, call: Call, key: Key, host: &HostUse) -> DriverResult<()> {
        if self.host.is_page_locked(host.ptr, host.bytes) {
            return Ok(());
        }
        Err(self.not_page_locked(call, key, host, "are not in one page-locked block"))
    }

    /// Whether the host's side of a copy is pageable memory (rule 7): it is page-locked as a whole,
    /// or not at all.
    pub(super) fn is_pageable(
        &mut self,
        call: Call,
        key: Key,
        host: &HostUse,
    ) -> DriverResult<bool> {
        match self.host.cover(host.ptr, host.bytes) {
            Cover::Whole => Ok(false),
            Cover::None => Ok(true),
            Cover::Part => Err(self.not_page_locked(call, key, host, "are page-locked in part")),
        }
    }

    #[cold]
    fn not_page_locked(&mut self, call: Call, key: Key, host: &HostUse, what: &str) -> CudaCode {
        let (stream, bytes, at) = (self.describe(key), host.bytes, host.ptr.address());
        let message = format!("{call:?} on {stream}: {bytes} bytes at {at:#x} {what}");
        self.misuse(FindingKind::NotPageLocked, message, CudaCode::INVALID_VALUE)
    }
}

/// The copy of a range between host and device.
fn transfer(host: HostUse, device: DevicePtr) -> Transfer {
    match host.access {
        Access::Read => Transfer::In { dst: device, src: Source::Host(host) },
        Access::Write => Transfer::Out { dst: host, src: device },
    }
}

/// Whether a destination of the batch overlaps another one, or a source.
pub(super) fn depend(copies: &[BatchCopy]) -> bool {
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
