//! Which way a batch takes, decided before anything is enqueued.
//!
//! A [`Survey`](super::survey::Survey) counts what there is; the costs of [`Machine`] say what each
//! way would take; the cheapest is taken. A [`Plan`] is the decision, to look at.

use std::fmt;
use std::time::Duration;

use super::machine::{Costs, Machine};
use super::path::Path;
use super::survey::Group;
use super::uses::Way;
use crate::error::{Error, ErrorKind, Result};

/// How a batch will be made, and why; from [`Stream::plan_upload`](crate::Stream::plan_upload).
///
/// Entries of ordinary memory and page-locked ones take different ways, so that there are up to two
/// choices.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// For the entries of ordinary memory, if there are any.
    pub ordinary: Option<Choice>,
    /// For those of page-locked memory, or of device memory, if there are any.
    pub direct: Option<Choice>,
}

/// One way, and what the others would cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// The way that is taken.
    pub path: Path,
    /// How long it should take, from the call until the data is there.
    pub predicted: Duration,
    /// All ways that are possible here, the cheapest first.
    pub costs: Vec<(Path, Duration)>,
    /// How many entries there are that are not empty.
    pub entries: usize,
    /// How many copies they are when those that follow each other are merged.
    pub runs: usize,
    /// How many bytes they have.
    pub bytes: usize,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choices = [("ordinary memory", &self.ordinary), ("direct", &self.direct)];
        let mut first = true;
        for (name, choice) in choices {
            let Some(choice) = choice else { continue };
            if !std::mem::take(&mut first) {
                writeln!(f)?;
            }
            let Choice { entries, runs, bytes, .. } = choice;
            write!(f, "{name}: {entries} entries in {runs} runs, {bytes} bytes:")?;
            for (path, time) in &choice.costs {
                let taken = if *path == choice.path { "*" } else { "" };
                write!(f, " {path}{taken} {:.1} us", time.as_secs_f64() * 1e6)?;
            }
        }
        if first {
            write!(f, "nothing to copy")?;
        }
        Ok(())
    }
}

/// What a batch is planned for.
pub(super) struct Planner {
    pub(super) machine: Machine,
    /// Whether a batch call is possible on the stream.
    pub(super) batches: bool,
    /// How many threads copy host memory.
    pub(super) threads: usize,
    /// The first portion of a copy through slots; what follows overlaps.
    pub(super) first: usize,
    /// The largest portion.
    pub(super) portion: usize,
}

impl Planner {
    /// Entries of ordinary memory, which go through slots.
    pub(super) fn staged(&self, way: Way, group: Group) -> Option<Choice> {
        let (bytes, entries) = (group.bytes.max(1) as f64, group.entries as f64);
        let threads = self.threads as f64;
        let host = (bytes / self.costs().thread + entries * self.costs().host_entry) / threads;
        // The host's work and the device's overlap, but for the first portion.
        let alone = (self.first as f64 / bytes).min(1.0);
        let both = |device: f64| host.max(device) + host.min(device) * alone;
        let fixed = self.costs().fixed;
        let pull = self.costs().pull * JUST_WRITTEN;
        choice(group, self.device_costs(way, group, pull), |device| fixed + both(device))
    }

    /// Entries of page-locked memory, which the device copies as they are.
    pub(super) fn pinned(&self, way: Way, group: Group) -> Option<Choice> {
        let costs = self.device_costs(way, group, self.costs().pull);
        let in_place = |&(path, _): &(Path, f64)| path != Path::Packed;
        let fixed = self.costs().fixed;
        choice(group, costs.into_iter().filter(in_place).collect(), |device| fixed + device)
    }

    /// Entries within the device.
    pub(super) fn on_device(&self, group: Group) -> Option<Choice> {
        let Costs { kernel, kernel_entry, on_device, fixed, .. } = self.costs();
        let memory = group.bytes as f64 / on_device;
        let mut costs = self.call_costs(group, memory, 1.0);
        if self.machine.kernels {
            costs.push((Path::Pull, kernel + group.entries as f64 * kernel_entry + memory));
        }
        choice(group, costs, |device| fixed + device)
    }

    /// What the ways cost the device beside one copy of nothing, which is in the fixed cost; `pull`
    /// is the rate of a kernel that reads page-locked memory.
    fn device_costs(&self, way: Way, group: Group, pull: f64) -> Vec<(Path, f64)> {
        let Costs { fixed, copy, kernel, kernel_entry, link, on_device, .. } = self.costs();
        let (bytes, entries) = (group.bytes.max(1) as f64, group.entries as f64);
        let wire = bytes / link;
        let mut costs = self.call_costs(group, wire, if way == Way::Down { DOWN } else { 1.0 });
        if self.machine.kernels {
            let kernels = kernel + entries * kernel_entry;
            let portions = bytes / self.portion as f64 + 3.0;
            // The kernel and the copy engine wait for each other.
            let portion = kernel + copy + fixed / 2.0;
            let packed = portions * portion + entries * kernel_entry + wire;
            costs.push((Path::Packed, packed + bytes / on_device));
            if way == Way::Up {
                costs.push((Path::Pull, kernels + bytes / pull));
            }
        }
        costs
    }

    /// What the runtime's calls cost, with `moving` for the bytes alone. The copies of a batch call
    /// are prepared while others move, but the copy engine pauses between two.
    fn call_costs(&self, group: Group, moving: f64, ease: f64) -> Vec<(Path, f64)> {
        let Costs { copy, batch_entry, .. } = self.costs();
        let runs = group.runs.max(1) as f64;
        let mut costs = vec![(Path::Copies, moving + (runs - 1.0) * copy * ease)];
        if self.batches {
            let each = (batch_entry * ease).max(moving / runs + PAUSE);
            costs.push((Path::Batch, BATCH_CALL + moving / runs + (runs - 1.0) * each));
        }
        costs
    }

    fn costs(&self) -> Costs {
        self.machine.costs
    }
}

/// What a batch call costs more than a copy, in microseconds.
const BATCH_CALL: f64 = 1.0;
/// How much less one more call costs on the way down.
const DOWN: f64 = 0.85;
/// How long the copy engine pauses between two copies of a batch call, in microseconds.
const PAUSE: f64 = 0.45;
/// How much slower a kernel reads what the host has just written.
const JUST_WRITTEN: f64 = 0.85;

/// The cheapest of `costs`, each completed by `whole`.
fn choice(group: Group, costs: Vec<(Path, f64)>, whole: impl Fn(f64) -> f64) -> Option<Choice> {
    if group.entries == 0 {
        return None;
    }
    let in_time = |(path, device)| {
        // Nobody is kept from editing the file of costs.
        (path, Duration::try_from_secs_f64(whole(device) / 1e6).unwrap_or(Duration::MAX))
    };
    let mut costs: Vec<_> = costs.into_iter().map(in_time).collect();
    costs.sort_by_key(|&(_, time)| time);
    let (path, predicted) = costs[0];
    let Group { entries, runs, bytes } = group;
    Some(Choice { path, predicted, costs, entries, runs, bytes })
}

impl Choice {
    /// This choice with another way, if that is possible here.
    pub(super) fn by(mut self, operation: &'static str, path: Path) -> Result<Choice> {
        let Some(&(path, predicted)) = self.costs.iter().find(|cost| cost.0 == path) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                operation,
                format!("the way \"{path}\" is not possible for {} entries here", self.entries),
                "take one of those that the plan lists, or leave the choice to the planner",
            ));
        };
        (self.path, self.predicted) = (path, predicted);
        Ok(self)
    }
}
