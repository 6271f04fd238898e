//! How a run ended, and what was found.

use crate::header::Expected;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program found its result right.
    Right,
    /// The program found its result wrong.
    Wrong,
    /// A call failed, or the process crashed or hung: why.
    Failed(String),
}

/// A finding.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its kind, such as `Race`.
    pub kind: String,
    /// Its text.
    pub message: String,
}

impl Found {
    /// The two operations that nothing orders, as `Finds:` writes them.
    #[must_use]
    pub fn pair(&self) -> Option<String> {
        Some(format!("{} after {}", self.used("second:")?, self.used("first:")?))
    }

    /// An operation and its stream or thread, from its line of the message.
    fn used(&self, role: &str) -> Option<String> {
        let line = self.message.lines().find_map(|line| line.trim().strip_prefix(role))?;
        let mut parts = line.trim().split("  ").map(str::trim).filter(|part| !part.is_empty());
        let (operation, agent) = (parts.next()?, parts.last()?);
        let agent = agent.rsplit_once(" #").map_or(agent, |(name, _)| name);
        Some(format!("{operation} on {agent}"))
    }

    /// Whether it is what the program is to give.
    #[must_use]
    pub fn is(&self, expected: &Expected) -> bool {
        self.kind == expected.kind && (expected.pair.is_none() || self.pair() == expected.pair)
    }
}

/// A run of a program.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What was found.
    pub findings: Vec<Found>,
}

impl Outcome {
    /// Whether the schedule has done harm: the program says so, or a finding that is not about the
    /// order of the calls but about what this run did to the bytes.
    #[must_use]
    pub fn went_wrong(&self) -> bool {
        let by_order = |found: &Found| found.pair().is_some();
        self.end != End::Right || self.findings.iter().any(|found| !by_order(found))
    }

    /// Whether the result is right, and nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.end == End::Right && self.findings.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_both_operations() {
        let message =
            "write after read, device 0, 0x0..+65536\n  second: Fill(0x02)  stream C #2\n  \
            first:  CopyD2H     stream B of device 1 #12\n  memory: 262144 bytes"
                .to_owned();
        let found = Found { kind: "Race".into(), message };
        let pair = "Fill(0x02) on stream C after CopyD2H on stream B of device 1";
        assert_eq!(found.pair().as_deref(), Some(pair));
        let other = Found { kind: "BadFree".into(), message: "freed twice".into() };
        assert_eq!(other.pair(), None);
    }
}
