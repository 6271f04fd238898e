//! Races as values, and as people read them.

use std::fmt;

use super::site::Site;
use pinlane_driver::{Call, Ordinal, RawStream};

/// How an operation uses memory.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RacingAccess {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// The memory becomes usable: an allocation in stream order is reached.
    Allocation,
    /// The memory is freed or unregistered.
    Free,
}

impl RacingAccess {
    pub(crate) fn of(writes: bool) -> Self {
        if writes { RacingAccess::Write } else { RacingAccess::Read }
    }
}

impl fmt::Display for RacingAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RacingAccess::Read => "read",
            RacingAccess::Write => "write",
            RacingAccess::Allocation => "allocation",
            RacingAccess::Free => "free",
        })
    }
}

/// What kind of memory a race is about.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Memory of this device.
    OnDevice(Ordinal),
    /// A block of page-locked memory.
    PageLocked,
    /// Memory of the program's own that is registered.
    HostRegistered,
    /// Memory that is not page-locked. Its allocations are not known.
    Pageable,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryKind::OnDevice(device) => write!(f, "device {device}"),
            MemoryKind::PageLocked => f.write_str("page-locked memory"),
            MemoryKind::HostRegistered => f.write_str("registered memory"),
            MemoryKind::Pageable => f.write_str("pageable memory"),
        }
    }
}

/// One of the two operations of a [`Race`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RacingUse {
    /// The call that made it; `None` for an access by the host, which is no call.
    pub call: Option<Call>,
    /// The operation as a text, such as `Fill(0xcc)`.
    pub operation: String,
    /// How it uses the memory.
    pub access: RacingAccess,
    /// Who did it, such as `stream A` or `host`. Streams are lettered in the order of their
    /// creation.
    pub agent: String,
    /// The stream, if one did it: the handle that calls name it by. That of a default stream is 0,
    /// and that of a thread's own 2.
    pub stream: Option<RawStream>,
    /// The operation's number in its stream, counted from 1.
    pub position: u64,
    /// Where the call was made, if [`Builder::sites`](crate::Builder::sites) is on and debug
    /// information says.
    pub site: Option<Site>,
    /// What the call was made for, if the library says so that made it
    /// ([`Emulator::label_calls`](crate::Emulator::label_calls)).
    pub label: Option<String>,
    /// The first address that the operation uses of this memory.
    pub start: u64,
    /// How many bytes from there on, up to the last that it uses. Between rows that a launch
    /// [declares](crate::DeclaredUse) it uses none.
    pub bytes: u64,
}

/// An allocation, as a [`Race`] names it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RacingMemory {
    /// What kind of memory it is.
    pub kind: MemoryKind,
    /// Its first address; 0 for pageable memory.
    pub start: u64,
    /// Its size in bytes; 0 for pageable memory.
    pub bytes: u64,
    /// The number of the allocation, counted from 1 for each machine. Memory that comes back at the
    /// same address has another number. 0 for pageable memory.
    pub generation: u64,
    /// Where it was allocated, if that is known.
    pub site: Option<Site>,
}

/// Two operations that use the same bytes and that nothing orders. At least one of them does not
/// only read.
///
/// Their order in this run does not matter: CUDA may run them in either order, or at once.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// The operation whose call came first.
    pub first: RacingUse,
    /// The operation whose call came second. It found the first one not ordered before itself.
    pub second: RacingUse,
    /// The memory.
    pub memory: RacingMemory,
    /// The first address that both use.
    pub start: u64,
    /// The bytes from there to the last that both use.
    pub bytes: u64,
    /// What the run did to order them, step by step: events that were recorded, waits for them. It
    /// is empty if there was no such attempt.
    pub seen: Vec<String>,
    /// The edge that is missing, and a call that would add it.
    pub missing: String,
}

impl Race {
    /// The text after "pinlane: RACE ".
    pub(crate) fn text(&self) -> String {
        let headline = format!(
            "{} after {}, {}, {:#018x}..+{}",
            self.second.access, self.first.access, self.memory.kind, self.start, self.bytes
        );
        headline + &self.details()
    }

    /// The lines of the text after the first.
    pub(crate) fn details(&self) -> String {
        let mut text = String::new();
        let site = |used: &RacingUse| used.site.as_ref().map(Site::to_string).unwrap_or_default();
        let uses = [("second:", &self.second), ("first: ", &self.first)];
        let widest = |part: &dyn Fn(&RacingUse) -> usize| uses.map(|(_, used)| part(used));
        let [a, b] = widest(&|used| used.operation.len());
        let [c, d] = widest(&|used| site(used).len());
        let (operations, sites) = (a.max(b), c.max(d));
        for (role, used) in uses {
            text += &format!("\n  {role} {:operations$}  ", used.operation);
            if sites > 0 {
                text += &format!("{:sites$}  ", site(used));
            }
            text += &format!("{} #{}", used.agent, used.position);
            text += &used.label.as_ref().map_or(String::new(), |label| format!("  {label}"));
            if let Some(details) = used.site.as_ref().and_then(Site::details) {
                text += &format!("\n          {details}");
            }
        }
        text += &format!("\n  memory: {}", self.memory);
        if !self.seen.is_empty() {
            text += &format!("\n  order seen: {}", self.seen.join("; "));
        }
        text + &format!("\n  missing:    {}", self.missing)
    }
}

impl fmt::Display for RacingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == MemoryKind::Pageable {
            return f.write_str("pageable");
        }
        let (start, bytes) = (self.start, self.bytes);
        write!(f, "{bytes} bytes at {start:#018x}, generation {}", self.generation)?;
        if let Some(site) = &self.site {
            write!(f, ", allocated at {site}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pinlane: RACE {}", self.text())
    }
}
