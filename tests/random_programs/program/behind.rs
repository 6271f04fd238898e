//! The streams that work may have to wait for, as sets. From these the model knows which calls may
//! block while a stream is stalled, and which may fail, or leave unspecified bytes, after the loss
//! of a device. All other calls must work as usual.
//!
//! The sets contain what the crate promises to wait for, and nothing more: conflicting uses of
//! buffers, tickets, and what the default streams wait for by CUDA's rules.

use std::ops::{BitOr, BitOrAssign};

/// Some of the streams of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u128);

impl Set {
    pub const ALL: Set = Set(u128::MAX);

    fn of(number: usize) -> Set {
        Set(1 << number)
    }

    pub fn meets(self, other: Set) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Set {
    type Output = Set;

    fn bitor(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }
}

impl BitOrAssign for Set {
    fn bitor_assign(&mut self, other: Set) {
        *self = *self | other;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Blocking,
    Legacy,
    PerThread,
}

/// A stream, or something else that work may have to wait for: a device's own work, and a stall.
struct Lane {
    device: usize,
    kind: Kind,
    /// What the work on it may have to wait for, including itself.
    behind: Set,
}

/// What each stream may have to wait for.
pub struct Behind {
    lanes: Vec<Lane>,
}

impl Behind {
    /// The first lanes are the devices' own streams.
    pub fn new(devices: usize) -> Behind {
        let mut behind = Behind { lanes: Vec::new() };
        for device in 0..devices {
            let _ = behind.add(device, Kind::Plain);
        }
        behind
    }

    /// `None` when there are too many; programs are too short for that to matter.
    pub fn add(&mut self, device: usize, kind: Kind) -> Option<usize> {
        let number = self.lanes.len();
        if number == u128::BITS as usize {
            return None;
        }
        let behind = Set::of(number) | Set::of(device);
        self.lanes.push(Lane { device, kind, behind });
        Some(number)
    }

    /// A device's own work.
    pub fn own(&self, device: usize) -> Set {
        Set::of(device)
    }

    /// A lane, without what it may have to wait for.
    pub fn only(&self, lane: usize) -> Set {
        Set::of(lane)
    }

    pub fn of(&self, lane: usize) -> Set {
        self.lanes[lane].behind
    }

    /// All work of a device.
    pub fn on(&self, device: usize) -> Set {
        self.all(|lane| lane.device == device)
    }

    fn all(&self, which: impl Fn(&Lane) -> bool) -> Set {
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| which(lane));
        lanes.fold(Set::default(), |set, (number, _)| set | Set::of(number))
    }

    /// Enqueues work on a stream, after `conflicts`. Returns all that it may have to wait for.
    pub fn enqueue(&mut self, lane: usize, conflicts: Set) -> Set {
        let Lane { device, kind, .. } = self.lanes[lane];
        let waits_for = |other: &&Lane| {
            other.device == device
                && other.kind != Kind::Plain
                && (kind == Kind::Legacy || kind != Kind::Plain && other.kind == Kind::Legacy)
        };
        let implied = self.lanes.iter().filter(waits_for);
        let implied = implied.fold(Set::default(), |set, lane| set | lane.behind);
        self.lanes[lane].behind |= conflicts | implied;
        self.lanes[lane].behind
    }

    /// A copy between two devices on a legacy stream holds up both of them.
    pub fn enqueue_across(&mut self, lane: usize, other: usize, conflicts: Set) -> Set {
        if self.lanes[lane].kind != Kind::Legacy || self.lanes[lane].device == other {
            return self.enqueue(lane, conflicts);
        }
        let on_other = |lane: &&Lane| lane.device == other && lane.kind != Kind::Plain;
        let implied = self.lanes.iter().filter(on_other);
        let implied = implied.fold(Set::default(), |set, lane| set | lane.behind);
        let set = self.enqueue(lane, conflicts | implied);
        let held = self.lanes.iter_mut();
        held.filter(|lane| lane.device == other && lane.kind == Kind::Legacy)
            .for_each(|lane| lane.behind |= set);
        set
    }

    /// Nothing is pending on the stream.
    pub fn drained(&mut self, lane: usize) {
        self.lanes[lane].behind = Set::of(lane) | Set::of(self.lanes[lane].device);
    }
}

/// The streams that may still use a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uses {
    readers: Set,
    writers: Set,
}

impl Uses {
    pub fn written_by(writers: Set) -> Uses {
        Uses { readers: Set::default(), writers }
    }

    /// What a read must wait for.
    pub fn for_reading(&self) -> Set {
        self.writers
    }

    /// What a write or a free must wait for.
    pub fn for_writing(&self) -> Set {
        self.readers | self.writers
    }

    pub fn read_by(&mut self, set: Set) {
        self.readers |= set;
    }

    pub fn write_by(&mut self, set: Set) {
        self.writers |= set;
    }

    /// The host has waited to read.
    pub fn settled_to_read(&mut self) {
        self.writers = Set::default();
    }

    /// The host has waited to write.
    pub fn settled_to_write(&mut self) {
        *self = Uses::default();
    }
}
