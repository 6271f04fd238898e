//! What a reset of a device destroys (rule 23).

use std::ffi::c_void;

use crate::emulator::Emulator;
use crate::machine::LIMITS;
use crate::memory::host::Block;
use crate::memory::made::{HostKind, MadeHost};
use pinlane_driver::{DriverResult, Ordinal};

impl Emulator {
    /// Waits for the work of a device, without a promise of that, and destroys its memory, its
    /// streams and events, and the page-locked memory that was made while it was current. Its
    /// limits are those of a new device. `cudaDeviceReset`
    ///
    /// # Errors
    ///
    /// As for [`device_synchronize`](Self::device_synchronize). A lost device stays lost.
    ///
    /// # Safety
    ///
    /// * No reference into such page-locked memory is used afterwards.
    /// * Streams, events and memory of the device are not used afterwards. Those of other users of
    ///   the machine are destroyed, too.
    pub unsafe fn reset(&self, device: Ordinal) -> DriverResult<()> {
        self.refuse_in_host_function()?;
        self.drain_device(device, false)?;
        self.with(|machine| {
            // It was waited for. CUDA does not promise that, but a finding would accuse correct
            // programs.
            machine.sides.forget_device(device);
            machine.destinations.forget_device(device);
            let default = |key| {
                let device = &machine.devices[device as usize];
                key == device.legacy || device.per_thread.contains(key)
            };
            let streams = machine.streams.keys_of(|stream| stream.device == device);
            let streams: Vec<_> = streams.into_iter().filter(|&key| !default(key)).collect();
            streams.into_iter().for_each(|key| machine.stream_destroy(key));
            machine.devices[device as usize].limits = LIMITS;
            for key in machine.events.keys_of(|event| event.device == device) {
                machine.events.remove(key);
            }
        });
        let (memory, blocks) = self.with(|machine| {
            let blocks = machine.host.made_below(usize::MAX);
            let blocks = blocks.filter(|(block, _)| block.device == device);
            let block = |(block, made): (&Block, MadeHost)| (block.ptr, made.kind);
            (machine.memory.made_on(device), blocks.map(block).collect::<Vec<_>>())
        });
        // First what was not waited for: work that uses it is a finding.
        blocks.into_iter().try_for_each(|(start, kind)| match kind {
            HostKind::Registered => self.unregister(start.0.cast()),
            _ => self.end_host(start.0.cast(), kind),
        })?;
        let at = |address| std::ptr::without_provenance_mut::<c_void>(address as usize);
        memory.into_iter().try_for_each(|address| self.free(at(address)))
    }
}
