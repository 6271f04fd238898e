//! Devices that are lost, and the streams of other devices that wait for them.
//!
//! Every call on a lost device fails with the code that it was lost with (rules 28 and 30), and
//! nothing new reaches it. When the driver unloads, all devices are lost at once. The seed decides
//! for each device whether operations that were enqueued before still run: on GPUs, copies were
//! seen to run for seconds after the loss. Host functions are never called.
//!
//! CUDA does not say what becomes of another device's stream that waits for an event of the lost
//! one. For each loss the seed picks one of two answers, and a correct program survives both:
//!
//! | | the stream that waits | its calls |
//! |---|---|---|
//! | released | continues, as if the event were complete | succeed |
//! | held | continues only if what it waits for runs | a query or a wait reports the other's loss |

use super::machine::Machine;
use super::operation::Operation;
use super::schedule::About;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DevicePtr, Ordinal};

impl Machine {
    /// What a call on a lost device does: it fails, and time passes.
    #[cold]
    pub(super) fn refuse(&mut self, code: CudaCode) -> CudaCode {
        self.drift();
        code
    }

    /// Loses a device; all of them if `code` says that the driver unloads.
    #[cold]
    pub(super) fn lose(&mut self, device: Ordinal, code: CudaCode) {
        if code == CudaCode::CUDART_UNLOADING {
            // An error of the process comes before that of a device.
            for device in 0..self.devices.len() {
                let lost = self.devices[device].lost.replace(code);
                if lost.is_none() {
                    self.leave_work(device as Ordinal);
                }
            }
        } else if self.devices[device as usize].lost.is_none() {
            self.devices[device as usize].lost = Some(code);
            let goes_on = self.leave_work(device);
            let legacy = self.devices[device as usize].legacy;
            if !goes_on && self.draw(legacy, About::Waiters).one_in(2) {
                self.release_waits(device);
            }
        }
    }

    /// Whether the address is one of a device that is lost.
    pub(super) fn is_of_lost(&self, address: DevicePtr) -> bool {
        let device = self.memory.device_of(address);
        device.is_some_and(|device| self.devices[device as usize].lost.is_some())
    }

    /// Whether the driver has unloaded, so that calls which name no device fail too.
    pub(super) fn check_loaded(&self) -> Result<(), CudaCode> {
        let unloading = Some(CudaCode::CUDART_UNLOADING);
        let unloaded = self.devices.iter().any(|device| device.lost == unloading);
        if unloaded { Err(CudaCode::CUDART_UNLOADING) } else { Ok(()) }
    }

    /// Decides what becomes of the enqueued operations. Returns whether [`drift`](Machine::drift)
    /// still runs them.
    fn leave_work(&mut self, device: Ordinal) -> bool {
        let legacy = self.devices[device as usize].legacy;
        let goes_on = self.draw(legacy, About::LeftWork).one_in(2);
        let mut dropped = Vec::new();
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            // The host thread accounts for the function that it has.
            let had = usize::from(std::mem::take(&mut stream.dispatched));
            let is_host_function =
                |operation: &Operation| operation.action.call() == Call::LaunchHost;
            let first = stream.queue.iter().position(is_host_function);
            let kept = if goes_on { first.unwrap_or(stream.queue.len()) } else { 0 };
            dropped.extend(stream.queue.drain(kept..).skip(had));
        }
        for operation in dropped {
            for host in operation.action.host_claims() {
                // Whether the memory is still there does not matter: it is not touched any more.
                let _ = self.host.end_use(host, operation.id);
            }
            self.host_functions -= usize::from(operation.action.call() == Call::LaunchHost);
        }
        let streams = &self.streams;
        self.backlog.retain(|&key| streams.get(key).is_some_and(|s| !s.queue.is_empty()));
        for (at, &key) in self.backlog.iter().enumerate() {
            self.streams.get_mut(key).expect("it is in the backlog").backlog_at = at;
        }
        self.changed = true;
        goes_on
    }

    /// Releases the streams of other devices that wait for a lost one.
    fn release_waits(&mut self, device: Ordinal) {
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.completed = stream.enqueued;
            let followers = std::mem::take(&mut stream.followers);
            self.awake.extend(followers.into_iter().map(|(_, follower)| follower));
        }
        self.host_work = true;
        self.settle();
    }
}
