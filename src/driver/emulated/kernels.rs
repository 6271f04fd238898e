//! The kernels' launches on the emulated machine, and what kernels may touch.

use super::device_memory::Violation;
use super::host_memory::{Access, HostPtr, HostUse};
use super::machine::Machine;
use super::operation::{Action, Pattern};
use super::runtime::Runtime;
use crate::driver::{Call, DevicePtr, DriverResult, Item, Kernels, Mover, Ordinal, RawStream};
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

    unsafe fn move_items(
        &self,
        stream: RawStream,
        mover: Mover,
        items: u64,
        count: usize,
        _bytes: usize,
    ) -> DriverResult<()> {
        self.on_stream(Call::MoveItems, stream, |machine, key| {
            if count == 0 {
                return Ok(());
            }
            // SAFETY: items in host memory are complete, and left alone until the kernel is
            // retired.
            let (uses, known) = unsafe { machine.uses_of_move(mover, items, count) };
            machine.submit(key, Vec::new(), Action::Move { mover, items, count, uses, known })
        })
    }

    unsafe fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()> {
        self.enqueue(stream, 1, Action::Busy { nanoseconds })
    }
}

impl Machine {
    /// The host memory that a move uses, as far as that is known before it runs: its items, if they
    /// are in page-locked memory, and what those name; and the items. What is in none is found when
    /// it runs.
    ///
    /// # Safety
    ///
    /// * If the items are in page-locked memory, nobody writes to them meanwhile.
    unsafe fn uses_of_move(
        &self,
        mover: Mover,
        items: u64,
        count: usize,
    ) -> (Box<[HostUse]>, Box<[Item]>) {
        let bytes = count.saturating_mul(ITEM_BYTES);
        let Some(list) = self.host.locate(items, bytes) else { return Default::default() };
        let mut uses = vec![HostUse::new(list, bytes, Access::Read)];
        // SAFETY: just found page-locked; nobody writes meanwhile: promised by the caller.
        let items = items_in(unsafe { self.host.bytes(list, bytes) });
        for item in &items {
            let (at, access) = match mover {
                Mover::Up => (item.src, Access::Read),
                Mover::Down => (item.dst, Access::Write),
                Mover::OnDevice => continue,
            };
            let bytes = usize::try_from(item.bytes).unwrap_or(usize::MAX);
            let found = self.host.locate(at, bytes).filter(|_| bytes != 0);
            uses.extend(found.map(|ptr| HostUse::new(ptr, bytes, access)));
        }
        (uses.into(), items.into())
    }

    /// The items of a move, of which `uses` are claimed.
    pub(super) fn items(
        &self,
        device: Ordinal,
        items: u64,
        count: usize,
        uses: &[HostUse],
    ) -> Result<Vec<Item>, Violation> {
        let bytes = count.checked_mul(ITEM_BYTES);
        let bytes = bytes.ok_or_else(|| "more items than fit an address space".to_owned())?;
        if self.memory.device_of(items).is_some() {
            self.reach(device, items)?;
            return Ok(items_in(self.memory.read(items, bytes)?));
        }
        let list = self.host_range(items, bytes, uses)?;
        // SAFETY: page-locked; the host does not write to the items until the move is retired.
        Ok(items_in(unsafe { self.host.bytes(list, bytes) }))
    }

    /// Copies one item, each side of which is in the memory that `mover` says.
    pub(super) fn move_item(
        &mut self,
        device: Ordinal,
        mover: Mover,
        item: Item,
        uses: &[HostUse],
    ) -> Result<(), Violation> {
        let Item { src, dst, bytes } = item;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        match mover {
            Mover::Up => {
                self.reach(device, dst)?;
                let src = self.host_range(src, bytes, uses)?;
                // SAFETY: page-locked; the host does not write to it until the move is retired.
                let source = unsafe { self.host.bytes(src, bytes) };
                self.memory.write(dst, bytes)?.copy_from_slice(source);
            }
            Mover::Down => {
                self.reach(device, src)?;
                let dst = self.host_range(dst, bytes, uses)?;
                let source = self.memory.read(src, bytes)?;
                // SAFETY: page-locked; the host does not access it until the move is retired.
                unsafe { self.host.write(dst, source) };
            }
            Mover::OnDevice => {
                self.reach(device, src)?;
                self.reach(device, dst)?;
                self.memory.copy(dst, src, bytes)?;
            }
        }
        Ok(())
    }

    /// Host memory that a kernel uses: page-locked now, or freed with the kernel's claim on it,
    /// which was reported then.
    fn host_range(&self, at: u64, bytes: usize, uses: &[HostUse]) -> Result<HostPtr, Violation> {
        if !self.host_addresses {
            return Err(format!("{at:#x} is an address of the host's, which kernels cannot use"));
        }
        let claimed =
            || uses.iter().find(|host| host.ptr.address() as u64 == at && host.bytes == bytes);
        let found = self.host.locate(at, bytes).or_else(|| claimed().map(|host| host.ptr));
        found.ok_or_else(|| format!("{bytes} bytes at {at:#x} are not in one page-locked block"))
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

fn items_in(bytes: &[u8]) -> Vec<Item> {
    bytes.chunks_exact(ITEM_BYTES).map(bytemuck::pod_read_unaligned).collect()
}
