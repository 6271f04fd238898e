//! Faults: calls that fail on request, and how often each call was made.

use pinlane_driver::Call;
use pinlane_driver::CudaCode;

/// Whether a fault strikes once or from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// One call fails.
    Once,
    /// That call and every later one of its kind fail.
    Forever,
}

/// A call that is to fail. It then returns `code` and has no effect, unless it is
/// [`late`](Fault::late).
///
/// A [sticky](CudaCode::is_sticky) code loses the device that the call names, as on real hardware:
/// every later call on it fails with that code. [`CudaCode::CUDART_UNLOADING`] loses all devices of
/// the machine: every later call fails with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The kind of call.
    pub call: Call,
    /// Which one: 1 is the next call of the kind after the injection. 0 is taken as 1.
    pub nth: u64,
    /// The code to return.
    pub code: CudaCode,
    /// How often.
    pub repeat: Repeat,
    /// The call takes effect, and then fails, as a call does that reports what went wrong before
    /// it: a copy is enqueued, memory is freed, a wait is over. A call that would create something
    /// ([`HostAlloc`](Call::HostAlloc), [`DeviceAlloc`](Call::DeviceAlloc),
    /// [`StreamCreate`](Call::StreamCreate), [`EventCreate`](Call::EventCreate)) has no effect even
    /// so: the program could not give it back.
    pub late: bool,
}

impl Fault {
    /// The next `call` fails with `code`, once.
    #[must_use]
    pub fn once(call: Call, code: CudaCode) -> Self {
        Fault { call, nth: 1, code, repeat: Repeat::Once, late: false }
    }

    /// Every `call` from now on fails with `code`.
    #[must_use]
    pub fn forever(call: Call, code: CudaCode) -> Self {
        Fault { call, nth: 1, code, repeat: Repeat::Forever, late: false }
    }

    /// The same fault, to strike at the `nth` call; 1 is the next.
    #[must_use]
    pub fn nth(self, nth: u64) -> Self {
        Fault { nth, ..self }
    }

    /// The same fault, but the call takes [effect](Fault#structfield.late) before it fails.
    #[must_use]
    pub fn late(self) -> Self {
        Fault { late: true, ..self }
    }
}

/// How a call is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strike {
    pub(super) code: CudaCode,
    pub(super) is_late: bool,
}

/// Whether the call creates something, which the program cannot name if the call fails.
fn gives(call: Call) -> bool {
    matches!(
        call,
        Call::HostAlloc
            | Call::DeviceAlloc
            | Call::StreamCreate
            | Call::EventCreate
            | Call::CaptureEnd
    )
}

/// Counts calls and decides which of them fail.
#[derive(Debug)]
pub(super) struct Faults {
    calls: [u64; Call::ALL.len()],
    /// Each with the number of the call, counted as in `calls`, at which it strikes.
    armed: Vec<(u64, Fault)>,
}

impl Faults {
    pub(super) fn new() -> Self {
        Faults { calls: [0; Call::ALL.len()], armed: Vec::new() }
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        let strikes_at = self.calls(fault.call).saturating_add(fault.nth.max(1));
        self.armed.push((strikes_at, fault));
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    pub(super) fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }

    /// Counts a call; the answer is how it is to fail.
    #[inline]
    pub(super) fn count(&mut self, call: Call) -> Option<Strike> {
        self.calls[call as usize] += 1;
        if self.armed.is_empty() { None } else { self.strike(call) }
    }

    #[cold]
    fn strike(&mut self, call: Call) -> Option<Strike> {
        let count = self.calls(call);
        let at = self.armed.iter().position(|&(strikes_at, fault)| {
            fault.call == call
                && match fault.repeat {
                    Repeat::Once => count == strikes_at,
                    Repeat::Forever => count >= strikes_at,
                }
        })?;
        let fault = self.armed[at].1;
        if fault.repeat == Repeat::Once {
            self.armed.swap_remove(at);
        }
        Some(Strike { code: fault.code, is_late: fault.late && !gives(call) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(faults: &mut Faults, calls: usize) -> Vec<bool> {
        (0..calls).map(|_| faults.count(Call::Fill).is_some()).collect()
    }

    #[test]
    fn the_nth_call_after_the_injection_fails() {
        let mut faults = Faults::new();
        assert_eq!(outcomes(&mut faults, 2), [false, false]);
        faults.inject(Fault::once(Call::Fill, CudaCode::UNKNOWN).nth(2));
        assert_eq!(outcomes(&mut faults, 3), [false, true, false]);
        assert_eq!(faults.count(Call::Busy), None);
        assert_eq!((faults.calls(Call::Fill), faults.calls(Call::Busy)), (5, 1));
    }

    #[test]
    fn a_lasting_fault_ends_when_cleared() {
        let mut faults = Faults::new();
        faults.inject(Fault::forever(Call::Fill, CudaCode::UNKNOWN).nth(2));
        assert_eq!(outcomes(&mut faults, 3), [false, true, true]);
        faults.clear();
        assert_eq!(outcomes(&mut faults, 1), [false]);
    }

    #[test]
    fn what_gives_something_out_is_never_late() {
        let mut faults = Faults::new();
        let mut is_late = |call| {
            faults.inject(Fault::once(call, CudaCode::UNKNOWN).late());
            faults.count(call).map(|strike| strike.is_late)
        };
        assert_eq!(is_late(Call::HostFree), Some(true));
        assert_eq!(is_late(Call::HostAlloc), Some(false));
        assert_eq!(is_late(Call::EventCreate), Some(false));
        assert_eq!(is_late(Call::CaptureEnd), Some(false), "a graph");
    }
}
