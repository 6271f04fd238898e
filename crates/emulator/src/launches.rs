//! Kernels of the program's own: their stand-ins run, and what they touch is seen.
//!
//! What a stand-in uses is known only when it has run ([`watch`](super::watch)). A use counts as
//! made at the launch's place in its stream: the checker has kept what was known there.

use super::machine::Machine;
use super::memory::device::Violation;
use super::memory::host::{Access, HostPtr, HostUse};
use super::operation::Launch;
use super::operation::uses::Touch;
use super::races::{Epoch, Knowledge, RacingAccess};
use super::watch::{Seen, Touched, sees_faults};
use super::words::slots::Key;
use pinlane_driver::Ordinal;

const PAGE: usize = 4096;

impl Machine {
    /// Runs the stand-in of a kernel, if there is one.
    pub(super) fn run_kernel(
        &mut self,
        key: Key,
        device: Ordinal,
        launch: &Launch,
        knowledge: Option<&Knowledge>,
    ) -> Result<(), Violation> {
        if let Some(declared) = &launch.declared {
            return self.run_declared(key, device, launch, declared, knowledge);
        }
        let Some(stand_in) = &launch.stand_in else { return Ok(()) };
        let stand_in = stand_in.lock();
        let watches = self.host.watcher.is_some() && sees_faults();
        let Some(area) = self.memory.area().filter(|_| watches) else {
            self.memory.opened(|| self.host.opened(&*stand_in));
            return Ok(());
        };
        let mut areas = vec![area];
        areas.extend(self.host.areas(&launch.named));
        let seen = self.host.shut(&launch.named, || Seen::of(areas, &*stand_in));
        self.memory.close();
        let (mut used, mut freed, mut violation) = (Vec::new(), None, None);
        for touched in seen.touched() {
            if touched.of_host && self.host.is_freed(touched.start) {
                freed.get_or_insert(touched.start);
            } else if let Err(text) = self.check_touched(device, launch, &touched) {
                // A kernel would have changed nothing there.
                seen.undo(touched.start);
                violation.get_or_insert(text);
            } else {
                used.push(touched);
            }
        }
        if let Some(address) = freed {
            self.report_freed(key, launch, address);
        }
        if let Some(knowledge) = knowledge {
            self.note_used(knowledge, launch.name, &used);
        }
        violation.map_or(Ok(()), Err)
    }

    /// Device memory is allocated, and in reach of the kernel.
    fn check_touched(
        &self,
        device: Ordinal,
        launch: &Launch,
        touched: &Touched,
    ) -> Result<(), Violation> {
        let address = touched.start as u64;
        self.check_access(device, launch, address)?;
        if touched.of_host {
            return Ok(());
        }
        self.memory.read(address, touched.bytes).map(drop)
    }

    /// If an address is another device's, the kernel has access to it.
    pub(super) fn check_access(
        &self,
        device: Ordinal,
        launch: &Launch,
        address: u64,
    ) -> Result<(), Violation> {
        match self.memory.device_of(address) {
            Some(other) if other != device && !launch.peers.contains(&other) => {
                self.reach(device, address)
            }
            _ => Ok(()),
        }
    }

    /// The race checker learns of uses, and the host must not touch those of its memory.
    fn note_used(&mut self, knowledge: &Knowledge, kernel: &'static str, used: &[Touched]) {
        let touch = |one: &Touched| {
            Touch::new(one.start as u64, one.bytes as u64, RacingAccess::of(one.writes))
        };
        let uses = used.iter().map(touch);
        let at = self.races.used(knowledge, kernel, uses);
        if self.races.has_found() {
            self.report_races();
        }
        for access in [Access::Read, Access::Write] {
            self.close_pages(at, access, used);
        }
    }

    /// Closes the pages of page-locked memory that a kernel has used in some way.
    fn close_pages(&mut self, by: Epoch, access: Access, used: &[Touched]) {
        let is_such =
            |touched: &&Touched| touched.of_host && touched.writes == (access == Access::Write);
        let mut addresses: Vec<usize> = used.iter().filter(is_such).map(|one| one.start).collect();
        addresses.sort_unstable();
        let neighbours = |a: &usize, b: &usize| b / PAGE - a / PAGE <= 1;
        for run in addresses.chunk_by(neighbours) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let ptr = HostPtr(std::ptr::without_provenance_mut(first));
            self.host.close(&HostUse::new(ptr, last + 1 - first, access), by);
        }
    }
}
