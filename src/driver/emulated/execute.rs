//! What operations do to memory.
//!
//! Every access is checked before it is made. One that fails is, as on a GPU, the end of the device:
//! it is lost with a sticky error (rule 28), and a finding says why.

use super::device_memory::Violation;
use super::finding::FindingKind;
use super::host_memory::HostMemory;
use super::machine::Machine;
use super::operation::Action;
use super::rng;
use super::slots::Key;
use crate::driver::{DevicePtr, Item, Ordinal, reference};
use crate::error::CudaCode;

const ITEM_BYTES: usize = size_of::<Item>();

impl Machine {
    /// Ends the claim of a queued operation on host memory. False if that memory went away meanwhile:
    /// then the operation must not run, and the device is lost.
    pub(super) fn claim(&mut self, key: Key, id: u64, action: &Action) -> bool {
        let Some((ptr, bytes, _)) = action.host_range() else { return true };
        if self.host.end_use(ptr, bytes, id) {
            return true;
        }
        let address = ptr.address();
        let violation = format!("{bytes} bytes at {address:#x} are not page-locked any more");
        self.fail(key, action, FindingKind::NotPageLocked, &violation, CudaCode::ILLEGAL_ADDRESS);
        false
    }

    /// Runs an operation. False if it lost the device.
    pub(super) fn execute(&mut self, key: Key, action: Action) -> bool {
        let device = self.streams.get(key).expect("runs an operation").device;
        if let Action::Checksum { out, .. } = action
            && out % 8 != 0
        {
            let violation = format!("the result's address {out:#x} is not aligned to 8");
            let code = CudaCode::MISALIGNED_ADDRESS;
            self.fail(key, &action, FindingKind::IllegalAddress, &violation, code);
            return false;
        }
        match self.apply(key, device, &action) {
            Ok(()) => true,
            Err(violation) => {
                let code = CudaCode::ILLEGAL_ADDRESS;
                self.fail(key, &action, FindingKind::IllegalAddress, &violation, code);
                false
            }
        }
    }

    #[cold]
    fn fail(&mut self, key: Key, by: &Action, kind: FindingKind, violation: &str, code: CudaCode) {
        let message = format!("{:?} on {}: {violation}", by.call(), self.describe(key));
        self.findings.report(kind, message);
        let device = self.streams.get(key).expect("runs an operation").device;
        self.lose(device, code);
    }

    fn apply(&mut self, key: Key, device: Ordinal, action: &Action) -> Result<(), Violation> {
        match *action {
            Action::CopyH2D { dst, src, bytes, fingerprint } => {
                let target = self.memory.write(dst, bytes)?;
                // SAFETY: the range was found page-locked when the copy was enqueued, and, if time has
                // passed since, again by `claim`; the host does not write to it until the copy is
                // retired, and all device work is under the machine's lock.
                let source = unsafe { HostMemory::bytes(src, bytes) };
                target.copy_from_slice(source);
                if fingerprint.is_some_and(|earlier| earlier != rng::fingerprint(source)) {
                    let message = format!(
                        "the source of CopyH2D on {}, {bytes} bytes at {:#x}, was written to \
                         before the copy was done",
                        self.describe(key),
                        src.address()
                    );
                    self.findings.report(FindingKind::SourceChanged, message);
                }
            }
            Action::CopyD2H { dst, src, bytes } => {
                let source = self.memory.read(src, bytes)?;
                // SAFETY: as for the source of CopyH2D; the host does not access the range at all.
                unsafe { HostMemory::write(dst, source) };
            }
            Action::CopyD2D { dst, src, bytes } | Action::CopyPeer { dst, src, bytes } => {
                self.memory.copy(dst, src, bytes)?;
            }
            Action::Memset { dst, value, bytes } => self.memory.write(dst, bytes)?.fill(value),
            Action::Fill { dst, bytes, pattern } => {
                self.reach(device, dst)?;
                reference::fill(self.memory.write(dst, bytes)?, pattern.as_slice());
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
            Action::Scatter { packed, items, count } => {
                let items = self.items(device, items, count)?;
                reference::scatter(packed, &items, |dst, src, n| self.part(device, dst, src, n))?;
            }
            Action::Gather { packed, items, count } => {
                let items = self.items(device, items, count)?;
                reference::gather(packed, &items, |dst, src, n| self.part(device, dst, src, n))?;
            }
            Action::Busy { nanoseconds } => {
                self.devices[device as usize].busy_nanoseconds += nanoseconds;
            }
            Action::Alloc { ptr } => self.memory.commit(ptr),
            Action::Free { ptr } => self.memory.release(ptr),
            Action::Mark { event } => {
                let now = self.now(device);
                let count = self.streams.get(key).map(|stream| stream.completed + 1);
                let event = self.events.get_mut(event).filter(|event| event.timing);
                // A later record has overwritten the snapshot of this one.
                if let Some(event) = event
                    && event.snapshot.map(|snapshot| (snapshot.stream, Some(snapshot.count)))
                        == Some((key, count))
                {
                    event.stamp = Some(now);
                }
            }
            Action::Join | Action::HostFunction(_) => {}
        }
        Ok(())
    }

    /// The clock of a device: real time, and what its busy kernels would have taken.
    fn now(&self, device: Ordinal) -> u64 {
        let real = self.epoch.elapsed().as_nanos() as u64;
        real + self.devices[device as usize].busy_nanoseconds
    }

    /// Kernels reach the memory of their own device and of enabled peers; copies reach all.
    fn reach(&self, device: Ordinal, address: DevicePtr) -> Result<(), Violation> {
        match self.memory.device_of(address) {
            Some(other)
                if other != device && !self.devices[device as usize].peers.contains(&other) =>
            {
                Err(format!("{address:#x} is memory of device {other}, not enabled as a peer"))
            }
            _ => Ok(()),
        }
    }

    /// The items of a scatter or gather.
    fn items(
        &self,
        device: Ordinal,
        items: DevicePtr,
        count: usize,
    ) -> Result<Vec<Item>, Violation> {
        self.reach(device, items)?;
        let bytes = count.checked_mul(ITEM_BYTES).ok_or("more items than fit an address space")?;
        let items = self.memory.read(items, bytes)?;
        Ok(items.chunks_exact(ITEM_BYTES).map(bytemuck::pod_read_unaligned).collect())
    }

    /// One part of a scatter or gather.
    fn part(
        &mut self,
        device: Ordinal,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
    ) -> Result<(), Violation> {
        self.reach(device, dst)?;
        self.reach(device, src)?;
        self.memory.copy(dst, src, usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}
