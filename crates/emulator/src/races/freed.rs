//! What a finding says of memory that was freed before an operation uses it.

use super::Races;
use super::memory::Origin;
use super::report::RacingMemory;
use crate::operation::Action;
use crate::operation::uses::touches;

impl Races {
    /// What a report says of an allocation.
    pub(super) fn described(&self, origin: Origin) -> RacingMemory {
        let Origin { kind, start, bytes, generation, site } = origin;
        RacingMemory { kind, start, bytes, generation, site: self.sites.get(site) }
    }

    /// A line about the first freed memory that an operation uses. It is empty if there is none,
    /// or if that is forgotten.
    #[cold]
    pub(crate) fn freed_memory(&mut self, action: &Action) -> String {
        let mut freed = None;
        touches(action, |touch| freed = freed.or_else(|| self.memory.freed(touch.start)));
        let Some((origin, site)) = freed else { return String::new() };
        let at = self.sites.get(site).map_or(String::new(), |site| format!(" at {site}"));
        format!("\n  memory: {}, freed{at}", self.described(origin))
    }
}
