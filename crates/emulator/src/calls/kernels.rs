//! Kernels as functions of the host.
//!
//! No GPU code runs here. A program may bring a stand-in: a function that does on the host what its
//! kernel does, with the addresses that the kernel was given. It runs when the kernel's turn comes.
//! A kernel without one has its place in the stream, and does nothing. A program may also launch
//! such a function itself, and declare what it uses: that is cheaper, and exact.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::operation::declared::{Declared, DeclaredUse};
use crate::operation::{Action, Launch};
use pinlane_base::lock::Mutex;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DevicePtr, DriverResult, Ordinal, RawStream};

impl Emulator {
    /// Launches a kernel. `words` are its arguments: numbers among them that are addresses of
    /// page-locked memory may be used as such.
    ///
    /// If the machine [watches](crate::Builder::watch_host), it sees what the
    /// stand-in loads and stores, and looks for races with that.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`], and a finding, if the stream is not of the current
    /// device (rule 18). Otherwise the errors of the stream.
    ///
    /// # Safety
    ///
    /// * The stand-in may be called on any thread, as often as a graph replays the launch, does not
    ///   unwind, and makes no CUDA call. It announces its system calls on memory of devices
    ///   ([`stand_in_calls`](Self::stand_in_calls)).
    /// * What it accesses is memory that the machine's device may access at its place in the
    ///   stream.
    pub unsafe fn launch(
        &self,
        stream: RawStream,
        name: &'static str,
        words: &[u64],
        stand_in: Option<Box<dyn Fn() + Send>>,
    ) -> DriverResult<()> {
        self.check_current(stream, name)?;
        let stand_in = stand_in.map(|stand_in| Arc::new(Mutex::new(stand_in)));
        self.on_stream(Call::Busy, stream, |machine, key| {
            let named = machine.host.named_by(words);
            let peers = machine.peers_of(stream.device)?;
            let launch = Launch { name, stand_in, declared: None, named, peers };
            machine.submit(key, Vec::new(), Action::Kernel(launch))
        })
    }

    /// Launches a kernel that uses these bytes, and no others but those that `work` gives. `work`
    /// runs when the kernel's turn comes, once and whole in every mode. It uses device memory where
    /// [`storage_of`](Self::storage_of) says. If page-locked memory is among these uses, all of it
    /// is open to the work, and to other threads that it has work for it.
    ///
    /// Uses of pageable memory are ignored. If one of device memory is freed, was never allocated,
    /// or is out of the device's reach when the kernel's turn comes, `work` does not run, and the
    /// device is lost ([`FindingKind::IllegalAddress`]). If page-locked memory was freed, it does
    /// not run either ([`FindingKind::FreedInFlight`]). All uses count for the search for races,
    /// and the host must not touch page-locked memory among them before it knows that the kernel is
    /// complete. What `work` gives is checked when it has run. Uses that are [`DeclaredUse::later`]
    /// say where that will be, and are no uses.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] for rows that are longer than an address space; and as for
    /// [`launch`](Self::launch).
    ///
    /// # Safety
    ///
    /// * `work` may be called on any thread, as often as a graph replays the launch, does not
    ///   unwind, and makes no CUDA call, nor does another thread that it waits for.
    /// * What it accesses of devices and of page-locked memory is among the uses.
    pub unsafe fn launch_declared(
        &self,
        stream: RawStream,
        name: &'static str,
        uses: &[DeclaredUse],
        work: Box<dyn Fn() -> Vec<DeclaredUse> + Send>,
    ) -> DriverResult<()> {
        self.check_current(stream, name)?;
        let settled = uses.iter().filter_map(|one| one.settled().transpose());
        let settled = settled.collect::<DriverResult<Vec<DeclaredUse>>>()?;
        self.on_stream(Call::Busy, stream, |machine, key| {
            let (later, uses): (Vec<_>, Vec<_>) = settled.into_iter().partition(|one| one.later);
            let [uses, later] = [uses, later].map(|uses| machine.uses_that_count(uses));
            let named = machine.host.claimed_by(uses.iter().map(|one| one.start as usize));
            let peers = machine.peers_of(stream.device)?;
            let declared = Some(Arc::new(Declared { uses, later, work: Mutex::new(work) }));
            let launch = Launch { name, stand_in: None, declared, named, peers };
            machine.submit(key, Vec::new(), Action::Kernel(launch))
        })
    }

    /// Where the bytes of an address of device memory are, for kernels with declared uses: the
    /// program cannot use them at the address itself. `None` if it is no address of a device's, or
    /// if addresses are not those of the process. It stays so as long as the machine is there.
    #[must_use]
    pub fn storage_of(&self, address: DevicePtr) -> Option<NonNull<u8>> {
        self.with(|machine| machine.memory.storage_of(address))
    }

    /// Reports that the program needs something that the device does not do
    /// ([`FindingKind::Unsupported`]).
    pub fn unsupported(&self, what: &str) {
        self.with(|machine| machine.report(FindingKind::Unsupported, what));
    }

    /// Fails, with a finding, unless the stream is of the current device (rule 18).
    fn check_current(&self, stream: RawStream, name: &str) -> DriverResult<()> {
        let current = self.current_device();
        if stream.device == current {
            return Ok(());
        }
        let message = format!(
            "{} of kernel {name} on {stream:?}, and device {current} is current",
            self.call_name()
        );
        let code = CudaCode::INVALID_RESOURCE_HANDLE;
        let report = |machine: &mut Machine| machine.misuse(FindingKind::BadHandle, message, code);
        Err(self.with(report))
    }
}

impl Machine {
    /// The devices whose memory the kernels of one can reach.
    fn peers_of(&mut self, device: Ordinal) -> DriverResult<Box<[Ordinal]>> {
        let device = self.device(device)?;
        Ok(device.peers.iter().chain(&device.mapped_peers).copied().collect())
    }
}
