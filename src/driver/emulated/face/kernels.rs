//! Kernels as functions of the host.
//!
//! No GPU code runs here. A program may bring a stand-in: a function that does on the host what its
//! kernel does, with the addresses that the kernel was given. It runs when the kernel's turn comes.
//! A kernel without one has its place in the stream, and does nothing.

use std::sync::Arc;

use super::Face;
use crate::driver::emulated::operation::{Action, Launch};
use crate::driver::{Call, DriverResult, RawStream};
use crate::sync::Mutex;

impl Face {
    /// Launches a kernel.
    ///
    /// # Errors
    ///
    /// What the machine says of the stream.
    ///
    /// # Safety
    ///
    /// * The stand-in may be called on any thread, as often as a graph replays the launch, does not
    ///   unwind, and makes no CUDA call.
    /// * What it accesses is memory that the machine's device may access at its place in the
    ///   stream.
    pub unsafe fn launch(
        &self,
        stream: RawStream,
        stand_in: Option<Box<dyn Fn() + Send>>,
    ) -> DriverResult<()> {
        let shared = stand_in.map(|stand_in| Arc::new(Mutex::new(stand_in)));
        self.emulator.runtime.on_stream(Call::Busy, stream, |machine, key| {
            machine.submit(key, Vec::new(), Action::Kernel(Launch(shared)))
        })
    }
}
