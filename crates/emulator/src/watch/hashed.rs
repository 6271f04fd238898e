//! What the host does to memory whose pages cannot be closed: pageable and registered.
//!
//! When a copy has run, the host's side of it is hashed, be it the source or the destination. It is
//! hashed again as soon as the program learns that the copy is done. If it differs by then, the
//! program has written there too early, or has given the memory away.
//!
//! | what learns that a copy is done | when its side is compared |
//! |---|---|
//! | a thread: it has waited, or a query has said so | before the call returns |
//! | a host function after the copy | before it is called |
//! | a stand-in for a kernel after the copy, which may write there itself | before it runs |
//! | a later operation that writes there | before it runs |
//!
//! # Invariants
//!
//! * A side is kept only while its copy is not known to be done. Until then a correct program does
//!   not write to it.
//! * The memory may be gone. So the system is asked to read it: it reports an error where a load
//!   would crash.
//! * What is kept is bounded ([`Sides`](super::sides)).

use super::sides::Hashed;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::host::{Access, HostUse};
use crate::memory::look::{Look, look};
use crate::operation::{Action, Launch, Source, Transfer};
use crate::races::{Knowledge, RacingAccess, Side};
use crate::words::rng;
use crate::words::slots::Key;

/// How much is hashed at a time.
const CHUNK: usize = 256 << 10;

impl Machine {
    /// Whether the race checker has to keep what an operation knows, because sides are hashed.
    #[inline]
    pub(crate) fn hashes_sides_of(&self, action: &Action) -> bool {
        if self.host.watcher.is_none() {
            return false;
        }
        match action {
            Action::Copy(_, transfer) => self.side_of(transfer).is_some(),
            Action::Batch(_, transfers) => transfers.iter().any(|t| self.side_of(t).is_some()),
            Action::Kernel(launch) => launch.stand_in.is_some(),
            _ => false,
        }
    }

    /// The host's side of a copy if it can be seen no other way: its address, its length, the
    /// address of the device's side, and whether the host's is written.
    fn side_of(&self, transfer: &Transfer) -> Option<(usize, usize, u64, bool)> {
        let is_hidden = |host: &HostUse| !host.waited && !self.host.is_watched(host);
        match *transfer {
            Transfer::In { dst, src: Source::Host(ref host) } => {
                is_hidden(host).then(|| (host.ptr.address(), host.bytes, dst, false))
            }
            // What was read before the call returned, as documented, has no address.
            Transfer::In { dst, src: Source::Taken { ref bytes, from, .. } } => {
                (from != 0).then_some((from, bytes.len(), dst, false))
            }
            Transfer::Out { dst: ref host, src } => {
                is_hidden(host).then(|| (host.ptr.address(), host.bytes, src, true))
            }
            Transfer::Across { .. } => None,
        }
    }

    /// A copy has run: its host side must not change before the program knows that.
    pub(crate) fn hash_sides(&mut self, key: Key, action: &Action, knowledge: &Knowledge) {
        let (call, transfers) = match action {
            Action::Copy(call, transfer) => (*call, std::slice::from_ref(transfer)),
            Action::Batch(call, transfers) => (*call, &**transfers),
            _ => return,
        };
        let by = knowledge.at();
        let Some(device) = self.streams.get(key).map(|stream| stream.device) else { return };
        let called = self.races.called();
        let mut sides: Vec<_> = transfers.iter().filter_map(|t| self.side_of(t)).collect();
        // Lines land in any order; the first one that changes is reported.
        sides.sort_unstable();
        for (start, bytes, on_device, writes) in sides {
            let Ok(copied) = self.memory.read(on_device, bytes) else { continue };
            let hash = copied.chunks(CHUNK).fold(0, hash_on);
            let access = RacingAccess::of(writes);
            let side = Side { by, call, access, start, bytes, called };
            self.sides.push(Hashed { side, hash, device });
        }
    }

    /// An operation is about to run, which may write to sides of earlier ones.
    #[cold]
    pub(crate) fn look_before(&mut self, action: &Action, known: Option<&Knowledge>) {
        if let (Action::Kernel(Launch { stand_in: Some(_), .. }), Some(known)) = (action, known) {
            self.look_at_known(known);
        }
        let declared = action.declared().into_iter().flat_map(|(_, declared)| &declared.uses);
        for one in declared.filter(|one| one.writes) {
            self.look_at(|side| side.overlaps(one.start as usize, one.span() as usize));
        }
        action
            .host_uses()
            .filter(|host| host.access == Access::Write)
            .for_each(|host| self.look_before_writing(host));
    }

    /// The machine is about to write to a range.
    pub(crate) fn look_before_writing(&mut self, host: &HostUse) {
        if !self.sides.is_empty() {
            self.look_at(|side| side.overlaps(host.ptr.address(), host.bytes));
        }
    }

    /// The program learns of all this, and may write to the sides from now on.
    #[inline]
    pub(crate) fn look_at_known(&mut self, known: &Knowledge) {
        if !self.sides.is_empty() {
            self.look_at(|side| known.knows(side.by));
        }
    }

    /// Looks at sides for the last time.
    #[cold]
    fn look_at(&mut self, is_over: impl Fn(&Side) -> bool) {
        let mut reported = Vec::new();
        for Hashed { side, hash, device } in self.sides.take(is_over) {
            let is_lost = self.devices[device as usize].lost.is_some();
            if is_lost || reported.contains(&(side.by, side.access)) {
                continue;
            }
            let what = match hash_of(side.start, side.bytes) {
                Ok(Some(now)) if now != hash => "written to",
                Err(Gone) => "unmapped",
                Ok(_) => continue,
            };
            // One finding, though a copy may have many lines.
            reported.push((side.by, side.access));
            let (kind, role) = match side.access {
                RacingAccess::Write => (FindingKind::DestinationChanged, "destination"),
                _ => (FindingKind::SourceChanged, "source"),
            };
            let headline = format!(
                "the {role} of {:?}, {} bytes at {:#x}, was {what} before the program knew that \
                 the copy was done",
                side.call, side.bytes, side.start
            );
            if let Some(race) = self.races.too_early(side) {
                let noticed = self.races.here();
                let noticed = noticed.map(|site| site.as_line("noticed:    at"));
                let message = headline + &race.details() + &noticed.unwrap_or_default();
                self.findings.report_with(kind, message, race);
            }
        }
    }
}

/// The memory is not mapped any more.
struct Gone;

/// The hash of what is there now; `None` if the system does not let us look.
fn hash_of(start: usize, bytes: usize) -> Result<Option<u64>, Gone> {
    let mut buffer = vec![0; bytes.min(CHUNK)];
    let mut hash = 0;
    for at in (0..bytes).step_by(CHUNK) {
        let part = &mut buffer[..CHUNK.min(bytes - at)];
        match look(start + at, part) {
            Look::Read => hash = hash_on(hash, part),
            Look::Gone => return Err(Gone),
            Look::Forbidden => return Ok(None),
        }
    }
    Ok(Some(hash))
}

fn hash_on(hash: u64, chunk: &[u8]) -> u64 {
    hash.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ rng::fingerprint(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_sees_every_chunk_and_memory_that_is_gone_crashes_nothing() {
        let mut bytes = vec![7_u8; 2 * CHUNK + 5];
        let of_slice = |bytes: &[u8]| bytes.chunks(CHUNK).fold(0, hash_on);
        let here = |bytes: &[u8]| hash_of(bytes.as_ptr().addr(), bytes.len()).ok().flatten();
        let first = here(&bytes);
        assert!(first.is_none_or(|hash| hash == of_slice(&bytes)));
        for at in [0, CHUNK, 2 * CHUNK + 4] {
            bytes[at] ^= 1;
            assert_ne!(first, Some(of_slice(&bytes)), "byte {at}");
            bytes[at] ^= 1;
        }
        assert!(hash_of(4096, 8).is_err() || first.is_none(), "nothing is mapped there");
    }
}
