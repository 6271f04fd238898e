//! Waits that depend on a host function which does not return (rules 24 and 25).
//!
//! A host function that waits for a lock which its waiter holds never returns, and neither does the
//! wait. The machine cannot see locks. What can be seen is that a call waits for a host function,
//! directly or by the order of streams and events, and that the function has not returned for
//! longer than the builder allows. Then the device is lost with `cudaErrorLaunchTimeout`, so that
//! the waits end and the program comes to its end, and a finding names both.

use std::time::{Duration, Instant};

use crate::finding::FindingKind;
use crate::machine::{Calling, Machine};
use crate::operation::Position;
use crate::races::Site;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;

impl Machine {
    /// How long a wait that makes no progress may sleep before it looks again; `None` is no limit.
    pub(crate) fn time_to_wait(&self, target: Position, began: Instant) -> Option<Duration> {
        let limit = self.host_function_limit?;
        let Some((calling, _)) = self.depends_on(target) else { return Some(limit) };
        Some(limit.saturating_sub(calling.since.max(began).elapsed()))
    }

    /// Loses the device if the wait has taken too long for one host function.
    pub(crate) fn end_if_stuck(&mut self, target: Position, began: Instant, site: Option<Site>) {
        if self.time_to_wait(target, began) != Some(Duration::ZERO) {
            return;
        }
        let Some((calling, behind)) = self.depends_on(target) else { return };
        let Some(stream) = self.streams.get(calling.stream) else { return };
        let device = stream.device;
        let at = site.map_or(String::new(), |site| format!(" at {site}"));
        let queued = match behind {
            Some(key) => format!(
                ", behind which the one of {} waits: they are called one by one",
                self.describe(key)
            ),
            None => String::new(),
        };
        let message = format!(
            "a wait for {}{at} depends on the host function of {}, its operation {}{queued}; that \
             has not returned for {:.1} s. A host function must not wait for what a thread does \
             that waits for it",
            self.describe(target.stream),
            self.describe(calling.stream),
            calling.number,
            calling.since.elapsed().as_secs_f64()
        );
        self.report(FindingKind::Deadlock, message);
        self.lose(device, CudaCode::LAUNCH_TIMEOUT);
    }

    /// The host function that is being called, if the target waits for it. If the target waits for
    /// a function that is queued after that one, also the stream of the queued function.
    fn depends_on(&self, target: Position) -> Option<(Calling, Option<Key>)> {
        let calling = self.host_calling?;
        let mut at = target.stream;
        loop {
            let stream = self.streams.get(at).filter(|stream| !stream.stalled)?;
            if stream.dispatched {
                return Some((calling, (at != calling.stream).then_some(at)));
            }
            // A wait is for what was enqueued earlier, so that this comes to an end.
            let waits = &stream.queue.front()?.waits;
            at = waits.iter().find(|&&position| !self.is_complete(position))?.stream;
        }
    }
}
