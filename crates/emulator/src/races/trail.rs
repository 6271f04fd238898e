//! What a run did to order its streams: the last records, waits and synchronizes, for reports.
//!
//! The clocks alone decide what is a race. The trail only shows how far the program came, and which
//! call would have gone the rest of the way.

use std::collections::VecDeque;

use super::agents::Agents;
use super::clock::Epoch;

/// How many steps are remembered.
const LENGTH: usize = 256;
/// How many steps a report shows of each side.
const SHOWN: usize = 4;

/// A step that may order one agent after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Who took it, at which position.
    pub(super) by: Epoch,
    pub(super) what: What,
    pub(super) site: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// An event, by its number.
    Record(u32),
    /// A wait on the device; `None` if the event had not been recorded.
    Wait(u32, Option<Epoch>),
    /// A thread has waited, or asked, until this was done.
    Synchronize(Epoch),
}

#[derive(Debug, Default)]
pub(super) struct Trail {
    steps: VecDeque<Step>,
}

/// What a report says of the order between two operations.
pub(super) struct Explanation {
    pub(super) seen: Vec<String>,
    pub(super) missing: String,
}

impl Trail {
    #[inline]
    pub(super) fn push(&mut self, step: Step) {
        if self.steps.len() == LENGTH {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
    }

    /// Why `second` is not ordered after `first`.
    pub(super) fn explain(
        &self,
        agents: &Agents,
        first: Epoch,
        second: Epoch,
        site: impl Fn(u32) -> String,
    ) -> Explanation {
        // Onwards from the first: which agents know of it, and from when on.
        let mut reached = vec![first];
        let is_in = |reached: &[Epoch], epoch: Epoch| {
            reached.iter().any(|r| r.agent == epoch.agent && r.position <= epoch.position)
        };
        let (mut seen, mut recorded) = (Vec::new(), Vec::new());
        for step in &self.steps {
            let at = site(step.site);
            match step.what {
                What::Record(event) if is_in(&reached, step.by) => {
                    recorded.push((event, step.by, format!("record e{event}{at}")));
                }
                What::Wait(_, Some(told)) if is_in(&reached, told) => {
                    let record = recorded.iter().rev().find(|(_, by, _)| *by == told);
                    let record = record.map_or("an event", |(_, _, text)| text);
                    let (from, by) = (agents.label(told), agents.name(step.by.agent));
                    seen.push(format!("{from} -> {record} -> wait by {by}{at}"));
                    reached.push(step.by);
                }
                What::Synchronize(told) if is_in(&reached, told) => {
                    let (from, by) = (agents.label(told), agents.name(step.by.agent));
                    seen.push(format!("{from} -> synchronize by {by}{at}"));
                    reached.push(step.by);
                }
                _ => {}
            }
        }
        seen.drain(..seen.len().saturating_sub(SHOWN));
        if seen.is_empty()
            && let Some((_, by, record)) = recorded.last()
        {
            seen.push(format!("{} -> {record}", agents.label(*by)));
        }
        // And what the second one waited for.
        let mut remedy = None;
        let waits = self.steps.iter().rev().filter(|step| step.by.agent == second.agent);
        for step in waits.take(SHOWN) {
            let (by, at) = (agents.name(step.by.agent), site(step.site));
            match step.what {
                What::Wait(event, None) => {
                    seen.push(format!("{by} waits for e{event}{at}, never recorded"));
                    let from = reached.last().map(|r| agents.name(r.agent)).unwrap_or_default();
                    let before = if at.is_empty() { " the wait".into() } else { at_of(&at) };
                    remedy = Some(format!("recording e{event} on {from} before{before}"));
                }
                What::Wait(event, Some(told)) if !is_in(&reached, told) => {
                    let label = agents.label(told);
                    seen.push(format!("{by} waits for e{event}{at}, recorded at {label}"));
                    let was = recorded.iter().find(|(number, ..)| *number == event);
                    if was.is_some() && told.agent != first.agent && remedy.is_none() {
                        let again = agents.name(told.agent);
                        remedy =
                            Some(format!("a wait before e{event} was recorded again on {again}"));
                    }
                    if told.agent == first.agent && remedy.is_none() {
                        let (after, from) = (agents.label(first), agents.name(first.agent));
                        remedy = Some(format!("recording e{event} on {from} after {after}"));
                    }
                }
                What::Synchronize(told) if !is_in(&reached, told) => {
                    seen.push(format!("{by} synchronizes with {}{at}", agents.label(told)));
                }
                _ => {}
            }
        }
        let (from, to) = (agents.label(first), agents.label(second));
        let (source, target) = (agents.name(first.agent), agents.name(second.agent));
        let remedy = remedy.unwrap_or_else(|| {
            if agents.is_ahead(second.agent) {
                format!("memory that is page-locked, or a synchronize with {source} before {to},")
            } else if agents.is_host(first.agent) {
                format!("telling {target} of it, with Emulator::hand_over,")
            } else if agents.is_host(second.agent) {
                format!("a synchronize with {source} behind {from}")
            } else {
                format!("an event, recorded on {source} behind {from}, and a wait by {target}")
            }
        });
        Explanation { seen, missing: format!("{from} -> {to}; {remedy} would add it") }
    }
}

/// ` (file:line)` as ` file:line`.
fn at_of(site: &str) -> String {
    site.replace(['(', ')'], "")
}
