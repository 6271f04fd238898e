//! Memory that graphs allocate. Its address is fixed when the allocation is captured, and stays
//! taken while a graph can allocate it again; its bytes are there from a launch on until they are
//! freed.
//!
//! Calls of launches and frees say whether it is allocated, as for other memory. Several of them
//! may be pending at a time.

use crate::memory::device::{ALIGNMENT, Allocation, DeviceMemory, OfGraph};
use pinlane_driver::{DevicePtr, DriverResult, Ordinal};

impl Allocation {
    /// A free is reached. False if the address is free for good.
    pub(super) fn stays_with_graph(&mut self) -> bool {
        let Some(graph) = &mut self.graph else { return false };
        graph.frees -= 1;
        self.storage.vanish();
        graph.graphs > 0 || graph.frees > 0 || !self.freeing
    }
}

impl DeviceMemory {
    /// Takes an address for what a capture allocates. No byte counts as used before a launch.
    pub(crate) fn reserve_for_graph(
        &mut self,
        device: Ordinal,
        bytes: usize,
        site: u32,
    ) -> DriverResult<DevicePtr> {
        let address = self.take(device, bytes, ALIGNMENT)?;
        let allocation = self.allocation(address).expect("just taken");
        allocation.graph = Some(OfGraph { graphs: 1, frees: 0, site });
        Ok(address)
    }

    /// The device and the length of memory that a graph allocates, allocated or not.
    pub(crate) fn of_graph(&self, address: DevicePtr) -> Option<(Ordinal, usize)> {
        let device = self.bank_of(address)?;
        let found = self.banks[device as usize].allocations.get(address)?;
        found.graph.as_ref().map(|_| (device, found.bytes))
    }

    /// The capture does not have the memory any more: it has freed it, or is over.
    pub(crate) fn end_captured(&mut self, address: DevicePtr) {
        self.allocation(address).expect("a graph has it").freeing = true;
    }

    /// One graph more can allocate the memory.
    pub(crate) fn shared_with_graph(&mut self, address: DevicePtr) {
        self.of_graph_mut(address).graphs += 1;
    }

    /// One graph less can allocate the memory. After the last one it stays until it is freed.
    pub(crate) fn left_by_graph(&mut self, address: DevicePtr) {
        let graph = self.of_graph_mut(address);
        graph.graphs -= 1;
        let is_pending = graph.graphs > 0 || graph.frees > 0;
        if !is_pending && self.allocation(address).is_some_and(|it| it.freeing) {
            self.remove(address);
        }
    }

    /// A launch allocates the memory, which is not allocated. Gives its device and length, and the
    /// place of its capture.
    pub(crate) fn allocate_again(&mut self, address: DevicePtr) -> (Ordinal, usize, u32) {
        let site = self.of_graph_mut(address).site;
        let allocation = self.allocation(address).expect("just found");
        allocation.freeing = false;
        let bytes = allocation.bytes;
        self.count(address, bytes as isize);
        (self.bank_of(address).expect("has an allocation"), bytes, site)
    }

    /// How many bytes each device has that are not allocated.
    pub(crate) fn room(&self) -> Vec<isize> {
        let devices = 0..self.banks.len() as Ordinal;
        devices.map(|device| self.free_and_total(device).0 as isize).collect()
    }

    fn of_graph_mut(&mut self, address: DevicePtr) -> &mut OfGraph {
        let found = self.allocation(address).and_then(|allocation| allocation.graph.as_mut());
        found.expect("a graph has it")
    }
}
