//! Kernels as functions of the host.
//!
//! No GPU code runs here. A program may bring a stand-in: a function that does on the host what its
//! kernel does, with the addresses that the kernel was given. It runs when the kernel's turn comes.
//! A kernel without one has its place in the stream, and does nothing.

use std::sync::Arc;

use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::operation::{Action, Launch};
use pinlane_base::lock::Mutex;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, RawStream};

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
        let current = self.current_device();
        if stream.device != current {
            let message = format!(
                "{} of kernel {name} on {stream:?}, and device {current} is current",
                self.call_name()
            );
            let code = CudaCode::INVALID_RESOURCE_HANDLE;
            let report =
                |machine: &mut Machine| machine.misuse(FindingKind::BadHandle, message, code);
            return Err(self.with(report));
        }
        let stand_in = stand_in.map(|stand_in| Arc::new(Mutex::new(stand_in)));
        self.on_stream(Call::Busy, stream, |machine, key| {
            let named = machine.host.named_by(words);
            let device = machine.device(stream.device)?;
            let peers = device.peers.iter().chain(&device.mapped_peers).copied().collect();
            let launch = Launch { name, stand_in, named, peers };
            machine.submit(key, Vec::new(), Action::Kernel(launch))
        })
    }
}
