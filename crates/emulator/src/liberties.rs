//! Liberties that CUDA leaves to an implementation, apart from the schedule. An eager machine takes
//! no liberties; a lazy one takes those that the seed picks.

use super::finding::FindingKind;
use super::machine::Machine;
use super::schedule::About;
use super::words::name::StreamName;
use super::words::rng;
use super::words::slots::Key;
use super::words::thread::in_host_function;

/// What a whole run has or does not have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quirk {
    /// A query that says NotReady leaves that as the last error (rule 29).
    NotReadyIsAnError = 1,
    /// The driver unloads before the destructors of what is older than the first call (rule 30).
    UnloadsEarly = 2,
}

impl Machine {
    /// A call that may wait for the whole device is made, perhaps inside a host function. CUDA was
    /// seen to refuse that. If the call did wait, it would never return: it would wait for the
    /// function, which waits for the call (rule 25).
    pub(super) fn find_cycle(&mut self) {
        if !in_host_function() || !self.takes_liberty(2) {
            return;
        }
        let stream =
            self.host_calling.map_or("a stream".into(), |calling| self.describe(calling.stream));
        let message = format!(
            "a host function of {stream} frees page-locked memory; the free waits for the device, \
             and the device for that host function"
        );
        self.report(FindingKind::Deadlock, message);
    }

    /// Whether a call on a stream takes a liberty: once in `n` times.
    pub(super) fn takes_liberty_on(&self, stream: Key, n: usize) -> bool {
        !self.schedule.is_eager() && self.draw(stream, About::Liberty).one_in(n)
    }

    /// The same of a call that names no stream.
    pub(super) fn takes_liberty(&mut self, n: usize) -> bool {
        if self.schedule.is_eager() {
            return false;
        }
        let (thread, count) = self.liberties.next();
        let name = StreamName::Made { thread, number: u32::MAX };
        self.schedule.draw(name, count, About::Liberty).one_in(n)
    }

    /// Whether the run has a quirk: with one seed in four.
    pub(super) fn has_quirk(&self, quirk: Quirk) -> bool {
        let draw = rng::poison(self.findings.seed, quirk as u64) >> 33;
        !self.schedule.is_eager() && draw.is_multiple_of(4)
    }
}
