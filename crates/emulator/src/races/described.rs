//! Races as reports describe them.

use super::Races;
use super::memory::Origin;
use super::report::{Race, RacingUse};
use super::shadow::Use;

impl Races {
    /// What is known of a race.
    pub(super) fn race(
        &self,
        first: &Use,
        second: &Use,
        origin: Origin,
        start: u64,
        bytes: u64,
    ) -> Race {
        let site = |number| self.sites.get(number).map_or(String::new(), |s| format!(" ({s})"));
        let explanation = self.trail.explain(&self.agents, first.at, second.at, site);
        Race {
            first: self.racing(first),
            second: self.racing(second),
            memory: self.described(origin),
            start,
            bytes,
            seen: explanation.seen,
            missing: explanation.missing,
        }
    }

    fn racing(&self, used: &Use) -> RacingUse {
        let kernel = used.kernel.map(|number| self.kernels[number.get() as usize - 1]);
        let operation = match (used.call, used.value) {
            _ if kernel.is_some() => format!("kernel {}", kernel.unwrap_or_default()),
            (Some(call), Some(value)) => format!("{call:?}({value:#04x})"),
            (Some(call), None) => format!("{call:?}"),
            (None, _) => format!("host {}", used.access),
        };
        RacingUse {
            call: used.call,
            operation,
            access: used.access,
            agent: self.agents.name(used.at.agent),
            stream: self.agents.stream_of(used.at.agent),
            position: self.agents.position(used.at),
            site: self.sites.get(used.called.site),
            label: self.labels.get(used.called.label).map(str::to_owned),
            start: used.start,
            bytes: used.bytes,
        }
    }
}
