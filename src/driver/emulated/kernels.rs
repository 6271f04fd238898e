//! The kernels' launches on the emulated machine, and what kernels may touch.

use super::device_memory::Violation;
use super::driver::Runtime;
use super::host_memory::{Access, HostMemory, HostPtr, HostUse};
use super::machine::Machine;
use super::operation::{Action, Pattern};
use crate::driver::{Call, DevicePtr, DriverResult, Item, Kernels, Ordinal, RawStream};
use crate::error::CudaCode;

const ITEM_BYTES: usize = size_of::<Item>();

// SAFETY: an operation runs in stream order, and `execute` checks every address that it touches.
unsafe impl Kernels for Runtime {
    unsafe fn fill(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        bytes: usize,
        pattern: &[u8],
    ) -> DriverResult<()> {
        let pattern = Pattern::new(pattern).ok_or(CudaCode::INVALID_VALUE)?;
        self.enqueue(stream, bytes, Action::Fill { dst, bytes, pattern })
    }

    unsafe fn checksum(
        &self,
        stream: RawStream,
        src: DevicePtr,
        bytes: usize,
        out: DevicePtr,
    ) -> DriverResult<()> {
        // The checksum of nothing is written, too.
        self.enqueue(stream, bytes.max(1), Action::Checksum { src, bytes, out })
    }

    unsafe fn scatter(
        &self,
        stream: RawStream,
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    ) -> DriverResult<()> {
        self.enqueue(stream, count, Action::Scatter { packed, items, count })
    }

    unsafe fn gather(
        &self,
        stream: RawStream,
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    ) -> DriverResult<()> {
        self.enqueue(stream, count, Action::Gather { packed, items, count })
    }

    unsafe fn pull(&self, stream: RawStream, items: u64, count: usize) -> DriverResult<()> {
        self.on_stream(Call::Pull, stream, |machine, key| {
            if count == 0 {
                return Ok(());
            }
            // SAFETY: items in host memory are complete, and left alone until the pull is retired.
            let reads = unsafe { machine.reads_of_pull(items, count) };
            machine.submit(key, Vec::new(), Action::Pull { items, count, reads })
        })
    }

    unsafe fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()> {
        self.enqueue(stream, 1, Action::Busy { nanoseconds })
    }
}

impl Machine {
    /// The host memory that a pull reads, as far as that is known before it runs: its items, and
    /// their sources, if the items are in page-locked memory. What is in none is found when it
    /// runs.
    ///
    /// # Safety
    ///
    /// * If the items are in page-locked memory, nobody writes to them meanwhile.
    unsafe fn reads_of_pull(&self, items: u64, count: usize) -> Box<[HostUse]> {
        let bytes = count.saturating_mul(ITEM_BYTES);
        let Some(list) = self.host.locate(items, bytes) else { return Box::default() };
        // SAFETY: just found page-locked; nobody writes meanwhile: promised by the caller.
        let contents = unsafe { HostMemory::bytes(list, bytes) };
        let sources = items_in(contents).into_iter().filter(|item| item.bytes != 0);
        let sources =
            sources.filter_map(|item| Some((item.offset, usize::try_from(item.bytes).ok()?)));
        let sources = sources.filter_map(|(at, bytes)| Some((self.host.locate(at, bytes)?, bytes)));
        let all = std::iter::once((list, bytes)).chain(sources);
        all.map(|(ptr, bytes)| HostUse::locked(ptr, bytes, Access::Read)).collect()
    }

    /// The items of a scatter or gather.
    pub(super) fn items(
        &self,
        device: Ordinal,
        items: DevicePtr,
        count: usize,
    ) -> Result<Vec<Item>, Violation> {
        self.reach(device, items)?;
        Ok(items_in(self.memory.read(items, size_of_items(count)?)?))
    }

    /// The items of a pull, of which `reads` are claimed.
    pub(super) fn items_of_pull(
        &self,
        device: Ordinal,
        items: u64,
        count: usize,
        reads: &[HostUse],
    ) -> Result<Vec<Item>, Violation> {
        if self.memory.device_of(items).is_some() {
            return self.items(device, items, count);
        }
        let bytes = size_of_items(count)?;
        let list = self.host_source(items, bytes, reads)?;
        // SAFETY: page-locked; the host does not write to the items until the pull is retired.
        Ok(items_in(unsafe { HostMemory::bytes(list, bytes) }))
    }

    /// One part of a scatter or gather.
    pub(super) fn part(
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

    /// One part of a pull.
    pub(super) fn part_of_pull(
        &mut self,
        device: Ordinal,
        dst: DevicePtr,
        src: u64,
        bytes: u64,
        reads: &[HostUse],
    ) -> Result<(), Violation> {
        if self.memory.device_of(src).is_some() {
            return self.part(device, dst, src, bytes);
        }
        self.reach(device, dst)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let src = self.host_source(src, bytes, reads)?;
        // SAFETY: page-locked; the host does not write to the source until the pull is retired.
        let source = unsafe { HostMemory::bytes(src, bytes) };
        self.memory.write(dst, bytes)?.copy_from_slice(source);
        Ok(())
    }

    /// Host memory that a kernel reads: page-locked now, or freed with the kernel's claim on it,
    /// which was reported then.
    fn host_source(&self, at: u64, bytes: usize, reads: &[HostUse]) -> Result<HostPtr, Violation> {
        let claimed =
            || reads.iter().find(|read| read.ptr.address() as u64 == at && read.bytes == bytes);
        let found = self.host.locate(at, bytes).or_else(|| claimed().map(|read| read.ptr));
        found.ok_or_else(|| {
            format!(
                "{bytes} bytes at {at:#x} are neither device memory nor in one page-locked block"
            )
        })
    }

    /// Kernels reach the memory of their own device and of those whose pools are open to it; copies
    /// reach all.
    pub(super) fn reach(&self, device: Ordinal, address: DevicePtr) -> Result<(), Violation> {
        match self.memory.device_of(address) {
            Some(other)
                if other != device && !self.devices[device as usize].peers.contains(&other) =>
            {
                Err(format!("{address:#x} is memory of device {other}, whose pool is closed to it"))
            }
            _ => Ok(()),
        }
    }
}

fn size_of_items(count: usize) -> Result<usize, Violation> {
    count.checked_mul(ITEM_BYTES).ok_or_else(|| "more items than fit an address space".to_owned())
}

fn items_in(bytes: &[u8]) -> Vec<Item> {
    bytes.chunks_exact(ITEM_BYTES).map(bytemuck::pod_read_unaligned).collect()
}
