//! Kernels whose caller declares what they use: the uses are checked, then the work runs.
//!
//! The work uses the storage of device memory, which is always open. To open the program's view
//! and to close it again would take as long as a small kernel. Only what is declared counts. What
//! is known at the launch is noted there, as for a copy. What the work itself finds out is noted
//! when it has run.

use super::finding::FindingKind;
use super::machine::Machine;
use super::memory::device::Violation;
use super::memory::host::{Access, HostPtr, HostUse};
use super::operation::Launch;
use super::operation::declared::{Declared, DeclaredUse};
use super::operation::uses::Touch;
use super::races::{Epoch, Knowledge};
use super::words::slots::Key;
use pinlane_driver::Ordinal;

/// A kernel writes to memory that its device can only read.
pub(super) fn written_though_to_read(address: u64) -> Violation {
    format!("{address:#x} was registered for reading only, and the kernel writes to it")
}

impl Machine {
    /// What counts of the uses that were declared: memory of devices, and page-locked memory. Rows
    /// that do not lie in one allocation become uses of their own.
    pub(super) fn uses_that_count(
        &self,
        uses: impl IntoIterator<Item = DeclaredUse>,
    ) -> Box<[DeclaredUse]> {
        let rows = |one: DeclaredUse| {
            let is_one = one.rows == 1 || one.start + one.span() <= self.end_of(one.start);
            let starts = (!is_one).then(|| one.starts()).into_iter().flatten();
            let row = move |start| DeclaredUse { start, rows: 1, stride: 0, ..one };
            is_one.then_some(one).into_iter().chain(starts.map(row))
        };
        let counts = |one: &DeclaredUse| {
            let of_device = self.memory.device_of(one.start).is_some();
            of_device || self.host.block_at(one.start as usize).is_some()
        };
        uses.into_iter().flat_map(rows).filter(counts).collect()
    }

    /// Where the memory ends that an address lies in; the address itself if it lies in none.
    fn end_of(&self, address: u64) -> u64 {
        let of_device = self.memory.allocation_of(address);
        let of_device = of_device.map(|(start, found)| start + found.bytes as u64);
        let of_host = || Some(self.host.block_at(address as usize)?.end as u64);
        of_device.or_else(of_host).unwrap_or(address)
    }

    /// Runs a kernel with declared uses. It does not run if one of them is wrong.
    pub(super) fn run_declared(
        &mut self,
        key: Key,
        device: Ordinal,
        launch: &Launch,
        declared: &Declared,
        knowledge: Option<&Knowledge>,
    ) -> Result<(), Violation> {
        if !self.check_declared(key, device, launch, &declared.uses, knowledge)? {
            return Ok(());
        }
        let mut late = Vec::new();
        let work = declared.work.lock();
        // To open page-locked memory is dear where much of it is in use.
        if declared.uses.iter().any(|one| self.memory.device_of(one.start).is_none()) {
            self.host.opened(|| late = work());
        } else {
            late = work();
        }
        drop(work);
        let late = late.into_iter().filter_map(|one| one.settled().ok().flatten());
        let late = self.uses_that_count(late);
        self.check_declared(key, device, launch, &late, knowledge)?;
        let Some(knowledge) = knowledge else { return Ok(()) };
        if late.is_empty() {
            self.races.used_nothing(knowledge);
        } else {
            let at = self.races.used(knowledge, launch.name, late.iter().map(Touch::declared));
            if self.races.has_found() {
                self.report_races();
            }
            self.close_declared(at, &late);
        }
        Ok(())
    }

    /// Whether the kernel may run: false if page-locked memory was freed that it uses.
    fn check_declared(
        &mut self,
        key: Key,
        device: Ordinal,
        launch: &Launch,
        uses: &[DeclaredUse],
        knowledge: Option<&Knowledge>,
    ) -> Result<bool, Violation> {
        let mut freed = None;
        for one in uses {
            if self.memory.device_of(one.start).is_none() {
                let is_freed = self.host.is_freed(one.start as usize);
                freed = freed.or(is_freed.then_some(one.start));
                if one.writes && self.host.is_to_read(one.start as usize) {
                    return Err(written_though_to_read(one.start));
                }
                continue;
            }
            self.check_access(device, launch, one.start)?;
            self.memory.read(one.start, one.span() as usize)?;
        }
        let Some(address) = freed else { return Ok(true) };
        // If the free found it, it was reported there.
        if !knowledge.is_some_and(|knowledge| self.races.is_reported(knowledge.at())) {
            self.report_freed(key, launch, address as usize);
        }
        Ok(false)
    }

    /// A kernel uses page-locked memory that is freed.
    pub(super) fn report_freed(&mut self, key: Key, launch: &Launch, address: usize) {
        let message = format!(
            "kernel {} on {} uses page-locked memory at {address:#x}, which was freed before it \
             ran",
            launch.name,
            self.describe(key)
        );
        self.report(FindingKind::FreedInFlight, message);
    }

    /// The host must not touch what a kernel uses. Pages between rows are closed too: the race
    /// checker knows the bytes.
    pub(super) fn close_declared(&mut self, by: Epoch, uses: &[DeclaredUse]) {
        for one in uses {
            let start = one.start as usize;
            let Some(block) = self.host.block_at(start) else { continue };
            let bytes = (one.span() as usize).min(block.end - start);
            let access = if one.writes { Access::Write } else { Access::Read };
            let ptr = HostPtr(std::ptr::without_provenance_mut(start));
            self.host.close(&HostUse::new(ptr, bytes, access), by);
        }
    }
}
