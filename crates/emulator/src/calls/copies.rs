//! Copies as programs write them: a line or a plane, in a direction that the pointers show, with
//! the host waiting or not.
//!
//! | | synchronous | asynchronous |
//! |---|---|---|
//! | H2D, pageable | waits (rules 1 and 6), takes the bytes, enqueues | `../pageable.rs` |
//! | H2D, page-locked | enqueues and waits (rule 2) | enqueues (rule 5) |
//! | D2H | enqueues and waits (rule 2) | page-locked: enqueues; pageable: the same, or waits |
//! | D2D | enqueues (rule 2) | enqueues |
//! | H2H | waits for the stream, copies (rule 2) | the same |

use std::ffi::c_void;

use super::Side;
use super::ranges::call_of;
use super::{Held, Target};
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::host::{Access, Cover, HostMemory, HostPtr, HostUse};
use crate::memory::pageable::Way;
use crate::operation::{Action, Source, Transfer};
use crate::races::RacingAccess;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, RawStream};

/// An upload of at most this many bytes may be asynchronous to the host (rule 6).
const SHORT: usize = 64 << 10;

/// What a call says of the direction of its copy (`cudaMemcpyKind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Within host memory.
    H2H,
    /// From the host to a device.
    H2D,
    /// From a device to the host.
    D2H,
    /// Within a device, or between two.
    D2D,
    /// As the pointers show.
    Default,
}

impl Kind {
    /// The kind of that number.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        [Kind::H2H, Kind::H2D, Kind::D2H, Kind::D2D, Kind::Default].get(number as usize).copied()
    }

    /// Which sides are a device's, according to this kind.
    fn of_device(self, dst: &Held, src: &Held) -> Vec<Side> {
        match self {
            Kind::H2H | Kind::Default => vec![],
            Kind::H2D => vec![dst.side],
            Kind::D2H => vec![src.side],
            Kind::D2D => vec![dst.side, src.side],
        }
    }
}

/// What is copied: lines of `width` bytes, a pitch apart.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Where the first line goes.
    pub dst: *mut c_void,
    /// From the start of a line at the destination to that of the next, in bytes.
    pub dst_pitch: usize,
    /// Where the first line comes from.
    pub src: *const c_void,
    /// As `dst_pitch`, at the source.
    pub src_pitch: usize,
    /// The length of a line in bytes.
    pub width: usize,
    /// How many lines.
    pub height: usize,
}

impl Plane {
    /// One line.
    #[must_use]
    pub fn line(dst: *mut c_void, src: *const c_void, bytes: usize) -> Self {
        Plane { dst, dst_pitch: bytes, src, src_pitch: bytes, width: bytes, height: 1 }
    }

    /// The distance from the first byte to the end of the last line, at a pitch.
    fn span(&self, pitch: usize) -> Option<usize> {
        (self.height - 1).checked_mul(pitch)?.checked_add(self.width)
    }

    /// Checks the plane as CUDA does; joins lines that follow each other without a gap. `None` if
    /// there is nothing to copy.
    fn settled(mut self) -> DriverResult<Option<Self>> {
        if self.width == 0 || self.height == 0 {
            return Ok(None);
        }
        let too_narrow = self.height > 1 && self.width > self.dst_pitch.min(self.src_pitch);
        if self.dst.is_null() || self.src.is_null() || too_narrow {
            return Err(CudaCode::INVALID_VALUE);
        }
        if self.height > 1 && self.dst_pitch == self.width && self.src_pitch == self.width {
            self.width = self.width.checked_mul(self.height).ok_or(CudaCode::INVALID_VALUE)?;
            self.height = 1;
        }
        let spans = self.span(self.dst_pitch).zip(self.span(self.src_pitch));
        let spans = spans.filter(|spans| spans.0.max(spans.1) <= isize::MAX as usize);
        spans.map(|_| Some(self)).ok_or(CudaCode::INVALID_VALUE)
    }

    /// The addresses of the lines, destination first.
    fn lines(self) -> impl Iterator<Item = (*mut c_void, *const c_void)> {
        let (dst, src) = (self.dst.cast::<u8>(), self.src.cast::<u8>());
        (0..self.height).map(move |line| {
            let to = dst.wrapping_add(line * self.dst_pitch);
            (to.cast(), src.wrapping_add(line * self.src_pitch).cast())
        })
    }
}

impl Emulator {
    /// Copies, on the stream that a call names. `cudaMemcpy`, `cudaMemcpyAsync`, and both in two
    /// dimensions
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], with a finding: a side of the copy is no live memory of a
    /// device, or begins in page-locked memory that it runs out of, or is pageable though the kind
    /// says that it is a device's. Without one: a pointer is NULL, a pitch is shorter than a line,
    /// or the destination was registered for reading only. And other errors of the machine.
    ///
    /// Other kinds that contradict the pointers, and sides that overlap, are findings only.
    ///
    /// # Safety
    ///
    /// * Host memory that the plane names is mapped, and initialised where it is read.
    /// * It stays so, and is not accessed by others, as the CUDA runtime demands of such a copy. If
    ///   a program breaks this rule for page-locked memory, that is a finding.
    pub unsafe fn copy(
        &self,
        stream: impl Into<Target>,
        plane: Plane,
        kind: Kind,
        synchronous: bool,
    ) -> DriverResult<()> {
        let target = stream.into();
        let (stream, dst, src) = self.shared.with(|machine| {
            let stream = self.find_stream(machine, target)?;
            Ok((stream, machine.held(plane.dst), machine.held(plane.src)))
        })?;
        let Some(plane) = plane.settled()? else {
            // It still fails on a lost device.
            return self.with(|machine| machine.enter(Call::CopyH2D, stream.device, |_| Ok(())));
        };
        dst.check_writable()?;
        match (dst.is_device(), src.is_device()) {
            (false, false) => {
                self.check_kind(Kind::H2H, kind, &dst, &src)?;
                self.drain(stream, true)?;
                self.copied_by_host(plane.lines().map(|(to, from)| (to, from, plane.width)));
                for (to, from) in plane.lines() {
                    // SAFETY: the caller says that the lines are mapped; lines that overlap are
                    // copied as by memmove.
                    unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), plane.width) };
                }
                Ok(())
            }
            (true, false) => {
                self.check_kind(Kind::H2D, kind, &dst, &src)?;
                if synchronous && src.side == Side::Pageable {
                    let is_short = plane.width * plane.height <= SHORT;
                    let goes_on = is_short && self.with(|m| m.takes_liberty(2));
                    if !goes_on {
                        self.drain(stream, !is_short)?;
                    }
                }
                self.across(stream, plane, Access::Read, synchronous)
            }
            (false, true) => {
                self.check_kind(Kind::D2H, kind, &dst, &src)?;
                self.across(stream, plane, Access::Write, synchronous)
            }
            (true, true) => {
                self.check_kind(Kind::D2D, kind, &dst, &src)?;
                self.within(stream, plane, dst, src)
            }
        }
    }

    /// A kind that contradicts the pointers is undefined (rule 7). GPUs were seen to copy as the
    /// pointers show, but for pageable memory that is said to be a device's. Managed memory is of
    /// both sides.
    fn check_kind(&self, real: Kind, said: Kind, dst: &Held, src: &Held) -> DriverResult<()> {
        let managed = dst.side == Side::Managed || src.side == Side::Managed;
        if said == Kind::Default || said == real || managed {
            return Ok(());
        }
        let message = format!("a copy is said to be {said:?}, and its pointers are {real:?}");
        self.with(|machine| machine.report(FindingKind::BadCopy, message));
        let unknown = said.of_device(dst, src).into_iter().any(|side| side == Side::Pageable);
        if unknown { Err(CudaCode::INVALID_VALUE) } else { Ok(()) }
    }

    /// Waits until the stream has done all that was enqueued on it. `promised` says whether CUDA
    /// promises that, or only does so this time.
    pub(crate) fn drain(&self, stream: RawStream, promised: bool) -> DriverResult<()> {
        let target = self.on_stream(Call::StreamSynchronize, stream, |machine, key| {
            // The legacy stream comes after all blocking streams.
            let mut waits = Vec::new();
            if machine.is_legacy(key) {
                machine.device_waits(stream.device, &mut waits);
            }
            waits.push(machine.tail(key));
            Ok(waits)
        })?;
        target.into_iter().try_for_each(|target| self.wait(stream.device, target, promised))
    }

    /// Between the host and a device.
    fn across(
        &self,
        stream: RawStream,
        plane: Plane,
        access: Access,
        synchronous: bool,
    ) -> DriverResult<()> {
        let call = call_of(access);
        let (host, pitch) = match access {
            Access::Read => (plane.src.cast_mut(), plane.src_pitch),
            Access::Write => (plane.dst, plane.dst_pitch),
        };
        let span = plane.span(pitch).expect("checked");
        let target = self.on_stream(call, stream, |machine, key| {
            check_device_sides(machine, call, key, &plane)?;
            let host = HostUse::new(HostPtr(host.cast()), span, access);
            let pageable = match machine.is_pageable(call, key, &host) {
                // Its first byte says what a range is.
                Err(code) if machine.host.cover(host.ptr, 1) != Cover::None => return Err(code),
                found => found.unwrap_or(true),
            };
            if pageable && synchronous {
                machine.refuse_capturing(key)?;
            }
            let captures = machine.streams.get(key).is_some_and(|s| s.capture.is_some());
            let waits = synchronous || machine.waits_for(pageable, access) && !captures;
            let host = HostUse { pageable, waited: waits, ..host };
            let way = match (pageable, waits) {
                // Each replay reads or writes it.
                (true, false) if captures => Way::Late,
                (false, true) => Way::Block,
                (false, false) => Way::Late,
                (true, true) if access == Access::Write => Way::Block,
                (true, true) => Way::Stage,
                (true, false) if machine.stages_pageable => Way::Stage,
                (true, false) => machine.pick_way(key, &host, plane.width),
            };
            let is_promised = waits || machine.stages_pageable;
            let parts = match way {
                Way::Torn => plane.torn(),
                _ => vec![(way, plane)],
            };
            for (way, part) in parts {
                let source = match way {
                    Way::Stage if is_promised => Reading::Done,
                    Way::Stage => Reading::Begun,
                    _ => Reading::Later,
                };
                let transfers = part.transfers(&machine.host, &host, source);
                machine.submit(key, Vec::new(), action(call, transfers))?;
                if source == Reading::Done {
                    // An asynchronous call does not wait for what the stream does first.
                    machine.source_was_read(call, synchronous.then_some(key), &part);
                }
            }
            Ok((way == Way::Block).then(|| (machine.tail(key), waits)))
        })?;
        // An asynchronous call may wait, and does not promise to.
        target.map_or(Ok(()), |(target, waits)| self.wait(stream.device, target, waits))
    }

    /// The host copies now: destinations, sources and lengths. Watched memory notices that by
    /// itself.
    pub(crate) fn copied_by_host(
        &self,
        copies: impl Iterator<Item = (*mut c_void, *const c_void, usize)>,
    ) {
        self.with(|machine| {
            for (to, from, bytes) in copies {
                machine.used_by_call(from.addr(), bytes, RacingAccess::Read);
                machine.used_by_call(to.addr(), bytes, RacingAccess::Write);
            }
            machine.report_races();
        });
    }

    /// Within a device, or between two.
    fn within(&self, stream: RawStream, plane: Plane, dst: Held, src: Held) -> DriverResult<()> {
        if plane.height == 1 && dst.device != src.device {
            let (to, from) = (plane.dst.addr() as u64, plane.src.addr() as u64);
            return self.copy_peer(stream, to, dst.device, from, src.device, plane.width);
        }
        self.on_stream(Call::CopyD2D, stream, |machine, key| {
            check_device_sides(machine, Call::CopyD2D, key, &plane)?;
            let mut transfers = Vec::new();
            for (to, from) in plane.lines() {
                let (to, from) = (to.addr() as u64, from.addr() as u64);
                let (at, by) = ((to, dst.device), (from, src.device));
                // GPUs were seen to copy even so. The bytes that arrive are undefined.
                let _ = machine.check_across(Call::CopyD2D, key, at, by, plane.width);
                transfers.push(Transfer::Across { dst: to, src: from, bytes: plane.width });
            }
            machine.submit(key, Vec::new(), action(Call::CopyD2D, transfers))
        })
    }
}

impl Plane {
    /// A part that is taken at the call, and one that is read as late as can be.
    fn torn(self) -> Vec<(Way, Plane)> {
        let cut = |skip: usize, width: usize| Plane {
            dst: self.dst.cast::<u8>().wrapping_add(skip).cast(),
            src: self.src.cast::<u8>().wrapping_add(skip).cast(),
            width,
            ..self
        };
        let half = self.width / 2;
        let parts = [(Way::Stage, cut(0, half)), (Way::Late, cut(half, self.width - half))];
        parts.into_iter().filter(|(_, part)| part.width > 0).collect()
    }

    /// The copies of the lines, whose side on the host is part of `host`.
    fn transfers(self, memory: &HostMemory, host: &HostUse, source: Reading) -> Vec<Transfer> {
        let transfer = |(to, from): (*mut c_void, *const c_void)| {
            let at = if host.access == Access::Read { from.cast_mut() } else { to };
            let host = HostUse { ptr: HostPtr(at.cast()), bytes: self.width, ..host.clone() };
            match host.access {
                Access::Read if source != Reading::Later => {
                    // SAFETY: the caller of `Emulator::copy` says that the line can be read now.
                    let bytes = unsafe { memory.taken(host.ptr, host.bytes) };
                    // What is done races with nothing that comes later.
                    let from = if source == Reading::Begun { from.addr() } else { 0 };
                    let src = Source::Taken { bytes, from, ahead: true };
                    Transfer::In { dst: to.addr() as u64, src }
                }
                Access::Read => Transfer::In { dst: to.addr() as u64, src: Source::Host(host) },
                Access::Write => Transfer::Out { dst: host, src: from.addr() as u64 },
            }
        };
        self.lines().map(transfer).collect()
    }
}

/// When a copy reads its source in host memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// When it runs.
    Later,
    /// At the call, though it may have been later as well.
    Begun,
    /// At the call.
    Done,
}

/// One operation for all lines, which land in any order (rule 5).
fn action(call: Call, mut transfers: Vec<Transfer>) -> Action {
    match transfers.len() {
        1 => Action::Copy(call, transfers.remove(0)),
        _ => Action::Batch(Call::CopyStrided, transfers.into()),
    }
}

/// The sides in device memory lie in one live allocation each. CUDA reports a bad address at the
/// call where it can. The emulated device always does.
fn check_device_sides(
    machine: &mut Machine,
    call: Call,
    key: Key,
    plane: &Plane,
) -> DriverResult<()> {
    let sides =
        [(plane.dst.addr() as u64, plane.dst_pitch), (plane.src.addr() as u64, plane.src_pitch)];
    for (address, pitch) in sides {
        if machine.memory.device_of(address).is_some() {
            let bytes = plane.span(pitch).expect("checked");
            machine.check_allocated(call, key, address, bytes)?;
        }
    }
    Ok(())
}

impl Machine {
    /// Whether this machine promises that an asynchronous copy of host memory is complete when its
    /// call returns.
    pub(super) fn waits_for(&self, pageable: bool, access: Access) -> bool {
        pageable && access == Access::Write && self.stages_pageable
    }

    /// A call has read a source: after what a stream does first, if it has waited for that, as
    /// synchronous calls do (rule 1).
    fn source_was_read(&mut self, call: Call, after: Option<Key>, plane: &Plane) {
        let stream = after.and_then(|key| self.streams.get(key)).map(|stream| stream.agent);
        for (_, from) in plane.lines() {
            self.races.read_by_call(call, stream, from.addr() as u64, plane.width as u64);
        }
        self.report_races();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_longer_than_an_address_space_is_refused() {
        let plane = |pitch| {
            let mut bytes = [0u8; 8];
            let at: *mut c_void = bytes.as_mut_ptr().cast();
            Plane { dst: at, dst_pitch: pitch, src: at, src_pitch: 8, width: 4, height: 3 }
        };
        assert!(plane(8).settled().unwrap().is_some());
        for pitch in [isize::MAX as usize / 2 + 1, usize::MAX / 2] {
            assert_eq!(plane(pitch).settled().unwrap_err(), CudaCode::INVALID_VALUE);
        }
    }
}
