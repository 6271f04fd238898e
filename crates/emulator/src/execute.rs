//! What operations do to memory.
//!
//! Every access is checked before it is made. One that fails is, as on a GPU, the end of the
//! device: it is lost with a sticky error (rule 28), and a finding says why.

use super::finding::FindingKind;
use super::machine::Machine;
use super::memory::device::Violation;
use super::memory::host::HostUse;
use super::memory::pageable;
use super::operation::{Action, Move, Position, Source, Transfer};
use super::races::Knowledge;
use super::words::rng;
use super::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Item, Ordinal, reference};

/// What an operation has seen of its source.
enum Seen {
    /// The hash of the bytes, if there is an earlier one.
    Bytes(Option<u64>),
    /// It is not mapped any more.
    Gone,
}

impl Machine {
    /// Ends the claims of a queued operation on host memory. False if some of that memory was freed
    /// or unregistered since the call. Then the operation must not run, and the device is lost.
    pub(super) fn claim(&mut self, key: Key, id: u64, action: &Action) -> bool {
        let mut gone = None;
        for host in action.host_claims() {
            if !self.host.end_use(host, id) && !host.named {
                gone = Some((host.bytes, host.ptr.address()));
            }
        }
        let Some((bytes, address)) = gone else { return true };
        let violation = format!("{bytes} bytes at {address:#x} are not page-locked any more");
        self.fail(key, action, FindingKind::NotPageLocked, &violation, CudaCode::ILLEGAL_ADDRESS);
        false
    }

    /// Runs an operation. False if it lost the device. `knowledge` is what the race checker kept of
    /// the call.
    pub(super) fn execute(
        &mut self,
        key: Key,
        action: &Action,
        knowledge: Option<&Knowledge>,
    ) -> bool {
        let device = self.streams.get(key).expect("runs an operation").device;
        let words = match action {
            Action::Checksum { out, .. } => *out,
            Action::Move(it) => it.moved.words(),
            _ => 0,
        };
        if words % 8 != 0 {
            let violation = format!("the address {words:#x} is not aligned to 8");
            let code = CudaCode::MISALIGNED_ADDRESS;
            self.fail(key, action, FindingKind::IllegalAddress, &violation, code);
            return false;
        }
        if !self.sides.is_empty() {
            self.look_before(action, knowledge);
        }
        match self.apply(key, device, action, knowledge) {
            Ok(()) => {
                if let Some(knowledge) = knowledge {
                    self.hash_sides(key, action, knowledge);
                }
                true
            }
            Err(violation) => {
                let code = CudaCode::ILLEGAL_ADDRESS;
                self.fail(key, action, FindingKind::IllegalAddress, &violation, code);
                false
            }
        }
    }

    #[cold]
    fn fail(&mut self, key: Key, by: &Action, kind: FindingKind, violation: &str, code: CudaCode) {
        let memory = self.races.freed_memory(by);
        let message = format!("{} on {}: {violation}{memory}", by.name(), self.describe(key));
        self.report(kind, message);
        let device = self.streams.get(key).expect("runs an operation").device;
        self.lose(device, code);
    }

    fn apply(
        &mut self,
        key: Key,
        device: Ordinal,
        action: &Action,
        knowledge: Option<&Knowledge>,
    ) -> Result<(), Violation> {
        match *action {
            Action::Copy(call, ref transfer) => self.transfer(key, call, transfer)?,
            Action::Batch(call, ref transfers) => {
                for transfer in transfers {
                    self.transfer(key, call, transfer)?;
                }
            }
            Action::Fill { dst, bytes, pattern } => {
                self.reach(device, dst)?;
                reference::fill(self.memory.write(dst, bytes)?, pattern.as_slice());
            }
            Action::FillHost { ref dst, pattern } => {
                let mut bytes = vec![0; dst.bytes];
                reference::fill(&mut bytes, pattern.as_slice());
                // SAFETY: page-locked when the fill was enqueued and, if time has passed since,
                // when it was claimed; no other code accesses what an operation writes.
                unsafe { self.host.write(dst.ptr, &bytes) };
            }
            Action::Checksum { src, bytes, out } => {
                self.reach(device, out)?;
                let sum = if bytes == 0 {
                    reference::checksum(&[])
                } else {
                    self.reach(device, src)?;
                    reference::checksum(self.memory.read(src, bytes)?)
                };
                self.memory.write(out, 8)?.copy_from_slice(&sum.to_le_bytes());
            }
            Action::Move(ref it) => {
                let Move { kind, moved, uses, .. } = &**it;
                uses.iter().for_each(|host| self.check_source(key, Call::MoveItems, host));
                let items = self.items(device, moved, uses)?;
                if let Some(knowledge) = knowledge {
                    self.races.moved(knowledge, &items);
                    self.report_races();
                }
                reference::move_items(&items, |dst, src, bytes| {
                    self.move_item(device, *kind, Item { src, dst, bytes }, uses)
                })?;
            }
            Action::Busy { nanoseconds } => {
                self.devices[device as usize].busy_nanoseconds += nanoseconds;
            }
            Action::Kernel(ref launch) => self.run_kernel(key, device, launch, knowledge)?,
            Action::Alloc { ptr } => self.memory.commit(ptr),
            Action::Free { ptr } => self.memory.release(ptr),
            Action::Mark { event } => {
                let count = self.streams.get(key).expect("runs an operation").completed + 1;
                self.stamp(Position { stream: key, count }, device, event);
            }
            Action::Join | Action::HostFunction(_) => {}
        }
        Ok(())
    }

    fn transfer(&mut self, key: Key, call: Call, transfer: &Transfer) -> Result<(), Violation> {
        match *transfer {
            Transfer::In { dst, src: Source::Host(ref host) } => {
                let target = self.memory.write(dst, host.bytes)?;
                if host.pageable {
                    let there = pageable::read(host, target);
                    let hashed = host.fingerprint.get().map(|_| rng::fingerprint(target));
                    self.compare(
                        key,
                        call,
                        host,
                        if there { Seen::Bytes(hashed) } else { Seen::Gone },
                    );
                    return Ok(());
                }
                // SAFETY: the range was found page-locked when the copy was enqueued, and, if time
                // has passed since, again by `claim`. The host does not write to it until the copy
                // is retired, and all device work is under the machine's lock.
                target.copy_from_slice(unsafe { self.host.bytes(host.ptr, host.bytes) });
                self.check_source(key, call, host);
            }
            Transfer::In { dst, src: Source::Taken { ref bytes, .. } } => {
                self.memory.write(dst, bytes.len())?.copy_from_slice(bytes);
            }
            Transfer::Out { ref dst, src } => {
                if !self.check_destination(key, call, dst) {
                    return Ok(());
                }
                let source = self.memory.read(src, dst.bytes)?;
                // SAFETY: as for the source of a copy; the host does not access the range at all.
                unsafe { self.host.write(dst.ptr, source) };
            }
            // What a lost device's memory holds is unspecified, and whether it is there at all.
            Transfer::Across { dst, src, .. } if self.is_of_lost(dst) || self.is_of_lost(src) => {}
            Transfer::Across { dst, src, bytes } => self.memory.copy(dst, src, bytes)?,
        }
        Ok(())
    }

    /// Looks whether what an operation reads was changed while it was pending.
    fn check_source(&mut self, key: Key, call: Call, host: &HostUse) {
        if host.fingerprint.get().is_some() {
            // SAFETY: as in `transfer`: the range is still mapped, and not written to.
            let seen = rng::fingerprint(unsafe { self.host.bytes(host.ptr, host.bytes) });
            self.compare(key, call, host, Seen::Bytes(Some(seen)));
        }
    }

    /// Looks whether pageable memory that a copy is to write is there still, and untouched.
    /// Otherwise the program has reused it, and it must not be written.
    fn check_destination(&mut self, key: Key, call: Call, host: &HostUse) -> bool {
        let earlier = host.fingerprint.get();
        if !host.pageable || earlier.is_none() {
            return true;
        }
        let mut bytes = vec![0; host.bytes];
        let there = pageable::read(host, &mut bytes);
        if there && earlier == Some(rng::fingerprint(&bytes)) {
            return true;
        }
        let message = format!(
            "the destination of {call:?} on {}, {} bytes at {:#x}, was {} before the copy was done",
            self.describe(key),
            host.bytes,
            host.ptr.address(),
            if there { "written to" } else { "unmapped" }
        );
        self.report(FindingKind::DestinationChanged, message);
        false
    }

    /// Reports what became of a source while its operation was pending. Not on a lost device: what
    /// arrives there cannot be seen, and no call can say that it has been read.
    fn compare(&mut self, key: Key, call: Call, host: &HostUse, seen: Seen) {
        let earlier = host.fingerprint.get();
        let what = match seen {
            Seen::Gone => "unmapped",
            Seen::Bytes(seen) if seen != earlier => "written to",
            Seen::Bytes(_) => return,
        };
        let device = self.streams.get(key).expect("runs an operation").device;
        if self.devices[device as usize].lost.is_some() {
            return;
        }
        let message = format!(
            "the source of {call:?} on {}, {} bytes at {:#x}, was {what} before the copy was done",
            self.describe(key),
            host.bytes,
            host.ptr.address()
        );
        self.report(FindingKind::SourceChanged, message);
    }

    /// The stream has reached the record of an event.
    #[inline]
    pub(super) fn stamp(&mut self, at: Position, device: Ordinal, event: Key) {
        let Some(recorded) = self.events.get(event).filter(|event| event.timing) else { return };
        // Else a later record has overwritten the snapshot of this one.
        if recorded.snapshot == Some(at) {
            let now = self.now(device);
            self.events.get_mut(event).expect("just found").stamp = Some(now);
        }
    }

    /// The clock of a device: real time, and what its busy kernels would have taken.
    fn now(&self, device: Ordinal) -> u64 {
        let real = self.epoch.elapsed().as_nanos() as u64;
        real + self.devices[device as usize].busy_nanoseconds
    }
}
