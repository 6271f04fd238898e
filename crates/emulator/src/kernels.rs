//! The kernels' launches on the emulated machine, and what kernels may touch.

use super::declared::written_though_to_read;
use super::emulator::Emulator;
use super::machine::Machine;
use super::memory::device::Violation;
use super::memory::host::{Access, HostPtr, HostUse};
use super::memory::mapped::MappedAccess;
use super::operation::{Action, Move, Moved, Pattern};
use pinlane_driver::CudaCode;
use pinlane_driver::{
    Call, CopyKind, DevicePtr, DriverResult, Item, Kernels, Layer, Ordinal, RawStream, RowIndex,
    RowMove, reference,
};

// SAFETY: an operation runs in stream order, and `execute` checks every address that it touches.
unsafe impl Kernels for Emulator {
    unsafe fn fill(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        bytes: usize,
        pattern: &[u8],
    ) -> DriverResult<()> {
        let pattern = Pattern::new(pattern).ok_or(CudaCode::INVALID_VALUE)?;
        self.enqueue(stream, Call::Fill, bytes, || Action::Fill { dst, bytes, pattern })
    }

    unsafe fn checksum(
        &self,
        stream: RawStream,
        src: DevicePtr,
        bytes: usize,
        out: DevicePtr,
    ) -> DriverResult<()> {
        // The checksum of no bytes is written, too.
        let action = || Action::Checksum { src, bytes, out };
        self.enqueue(stream, Call::Checksum, bytes.max(1), action)
    }

    unsafe fn move_items(
        &self,
        stream: RawStream,
        kind: CopyKind,
        items: u64,
        count: usize,
        _bytes: usize,
    ) -> DriverResult<()> {
        // SAFETY: the caller's preconditions.
        unsafe { self.move_all(stream, kind, Moved::Items { at: items, count }) }
    }

    unsafe fn move_rows(
        &self,
        stream: RawStream,
        kind: CopyKind,
        rows: &RowMove,
    ) -> DriverResult<()> {
        // SAFETY: the caller's preconditions.
        unsafe { self.move_all(stream, kind, Moved::Rows(*rows)) }
    }

    unsafe fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()> {
        self.enqueue(stream, Call::Busy, 1, || Action::Busy { nanoseconds })
    }
}

impl Emulator {
    /// # Safety
    ///
    /// * `stream` is live.
    /// * What is moved is as [`Kernels::move_items`] and [`Kernels::move_rows`] demand.
    unsafe fn move_all(&self, stream: RawStream, kind: CopyKind, moved: Moved) -> DriverResult<()> {
        self.on_stream(Call::MoveItems, stream, |machine, key| {
            if moved.is_nothing() {
                return Ok(());
            }
            // SAFETY: lists in host memory are complete, and left alone until the kernel is
            // retired.
            let (uses, known) = unsafe { machine.uses_of_move(kind, &moved) };
            let work = Move { kind, moved, uses, known };
            machine.submit(key, Vec::new(), Action::Move(Box::new(work)))
        })
    }
}

impl Machine {
    /// The host memory that a move uses, as far as that is known before it runs: those of its lists
    /// that are in page-locked memory, and what they name; and the items, if all lists are. If the
    /// numbers of rows are not, it may use all of its tables. What is not known is found when it
    /// runs.
    ///
    /// # Safety
    ///
    /// * Lists in page-locked memory are not written to during the call.
    unsafe fn uses_of_move(&self, kind: CopyKind, moved: &Moved) -> (Box<[HostUse]>, Box<[Item]>) {
        let mut uses = Vec::new();
        for (at, bytes) in moved.lists() {
            let list = self.host.locate(at, bytes);
            uses.extend(list.map(|list| HostUse::new(list, bytes, Access::Read)));
        }
        let host = |at, bytes| {
            let list = self.host.locate(at, bytes).ok_or(())?;
            // SAFETY: just found page-locked; the caller promises that it is not written to during
            // this call.
            Ok::<_, ()>(unsafe { self.host.bytes(list, bytes) }.to_vec())
        };
        let items = items_of(moved, host).map_err(|()| tables_of(kind, moved, host));
        let (Ok(named) | Err(named)) = &items;
        for item in named {
            let (at, access) = match kind {
                CopyKind::H2D => (item.src, Access::Read),
                CopyKind::D2H => (item.dst, Access::Write),
                CopyKind::D2D => continue,
            };
            let bytes = usize::try_from(item.bytes).unwrap_or(usize::MAX);
            let found = self.host.locate(at, bytes).filter(|_| bytes != 0);
            uses.extend(found.map(|ptr| HostUse::new(ptr, bytes, access)));
        }
        (uses.into(), items.unwrap_or_default().into())
    }

    /// The items of a move, of which `uses` are claimed.
    pub(super) fn items(
        &self,
        device: Ordinal,
        moved: &Moved,
        uses: &[HostUse],
    ) -> Result<Vec<Item>, Violation> {
        items_of(moved, |at, bytes| {
            if self.memory.device_of(at).is_some() {
                self.reach(device, at)?;
                return Ok(self.memory.read(at, bytes)?.to_vec());
            }
            let list = self.host_range(at, bytes, uses)?;
            // SAFETY: page-locked; the host does not write to it until the move is retired.
            Ok(unsafe { self.host.bytes(list, bytes) }.to_vec())
        })
    }

    /// Copies one item, each side of which is in the memory that `kind` says.
    pub(super) fn move_item(
        &mut self,
        device: Ordinal,
        kind: CopyKind,
        item: Item,
        uses: &[HostUse],
    ) -> Result<(), Violation> {
        let Item { src, dst, bytes } = item;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        match kind {
            CopyKind::H2D => {
                self.reach(device, dst)?;
                let src = self.host_range(src, bytes, uses)?;
                // SAFETY: page-locked; the host does not write to it until the move is retired.
                let source = unsafe { self.host.bytes(src, bytes) };
                self.memory.write(dst, bytes)?.copy_from_slice(source);
            }
            CopyKind::D2H => {
                self.reach(device, src)?;
                if bytes != 0 && self.host.is_to_read(dst as usize) {
                    return Err(written_though_to_read(dst));
                }
                let dst = self.host_range(dst, bytes, uses)?;
                let source = self.memory.read(src, bytes)?;
                // SAFETY: page-locked; the host does not access it until the move is retired.
                unsafe { self.host.write(dst, source) };
            }
            CopyKind::D2D => {
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
        let claimed = || {
            let end = at.checked_add(bytes as u64)?;
            let within = |host: &&HostUse| {
                let start = host.ptr.address() as u64;
                start <= at && end <= start + host.bytes as u64
            };
            uses.iter().find(within).map(|host| host.ptr.with_address(at))
        };
        let found = self.host.locate(at, bytes).or_else(claimed);
        found.ok_or_else(|| format!("{bytes} bytes at {at:#x} are not in one page-locked block"))
    }

    /// Kernels reach the memory of their own device, and of those that their device has peer access
    /// to and whose pools are open to it: the memory may come from `cudaMalloc` or from a pool.
    /// Mapped memory they reach if `cuMemSetAccess` says so. Copies reach all.
    pub(super) fn reach(&self, device: Ordinal, address: DevicePtr) -> Result<(), Violation> {
        if let Some(access) = self.memory.access(address, device) {
            let text = "is mapped, and not for device";
            let is_closed = access == MappedAccess::None;
            return if is_closed { Err(format!("{address:#x} {text} {device}")) } else { Ok(()) };
        }
        let Some(other) = self.memory.device_of(address) else { return Ok(()) };
        let ours = &self.devices[device as usize];
        if other == device || ours.peers.contains(&other) && ours.mapped_peers.contains(&other) {
            return Ok(());
        }
        Err(format!(
            "{address:#x} is memory of device {other}, and device {device} has no peer access to \
             it, or none to its pool"
        ))
    }
}

/// The items of a move, whose lists `read` gives by address and length in bytes.
fn items_of<E>(
    moved: &Moved,
    read: impl Fn(u64, usize) -> Result<Vec<u8>, E>,
) -> Result<Vec<Item>, E> {
    let mut lists = Vec::new();
    for (at, bytes) in moved.lists() {
        lists.push((at, read(at, bytes)?));
    }
    let list = |address| {
        // Two lists may begin at one address.
        let same = lists.iter().filter(|list| list.0 == address).map(|list| &list.1);
        same.max_by_key(|list| list.len()).expect("read")
    };
    Ok(match moved {
        Moved::Items { at, .. } => elements(list(*at)).collect(),
        Moved::Rows(rows) => {
            let number = |index: &RowIndex, n: u64| {
                let at = (n * index.bytes) as usize;
                match list(index.at)[at..][..index.bytes as usize] {
                    [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
                    ref bytes => u64::from_le_bytes(bytes.try_into().expect("4 or 8 bytes")),
                }
            };
            let layers: Vec<Layer> = elements(list(rows.layers)).collect();
            reference::rows(rows, &layers, number).collect()
        }
    })
}

/// The tables in host memory of a move of rows, each as an item, if `read` can give the layers.
fn tables_of(
    kind: CopyKind,
    moved: &Moved,
    read: impl Fn(u64, usize) -> Result<Vec<u8>, ()>,
) -> Vec<Item> {
    let Moved::Rows(rows) = moved else { return Vec::new() };
    let index = if kind == CopyKind::H2D { &rows.from } else { &rows.to };
    let behind_first = index.limit.saturating_sub(1).saturating_mul(index.pitch);
    let bytes = if index.limit == 0 { 0 } else { behind_first.saturating_add(rows.bytes) };
    let layers = read(rows.layers, rows.layer_count as usize * size_of::<Layer>());
    let layers = layers.unwrap_or_default();
    elements(&layers).map(|Layer { src, dst }| Item { src, dst, bytes }).collect()
}

fn elements<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}
