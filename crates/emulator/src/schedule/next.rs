//! What runs next on a machine that is not eager.

use super::Front;
use super::decision::{HELD, Replay};
use super::policy::spot_of;
use crate::machine::Machine;
use crate::operation::{Action, Operation};
use crate::schedule::execution::Execution;
use crate::words::slots::Key;

impl Machine {
    /// The stream that runs next. All others that could run are passed over. In a wait, `needed` is
    /// the stream that the wait depends on, and some stream is always picked.
    pub(super) fn pick(&mut self, needed: Option<Key>) -> Option<Key> {
        let waits = needed.is_some();
        let given = self.schedule.given.is_some();
        let lies = self.schedule.execution == Execution::Lazy && !given && !waits;
        let next = match self.schedule.execution {
            _ if lies => None,
            _ if self.schedule.path.is_some() => self.first_on_path(),
            Execution::Pct { .. } if !given => self.first_by_priority(waits),
            _ => self.first_not_held().or(needed),
        };
        self.pass_over(next, lies);
        next
    }

    pub(super) fn ready(&self) -> impl Iterator<Item = Key> {
        let ready = |key: &Key| matches!(self.front(*key), Front::Ready);
        self.backlog.iter().copied().filter(ready)
    }

    fn first(&self, key: Key) -> &Operation {
        let first = self.streams.get(key).and_then(|stream| stream.queue.front());
        first.expect("it is in the backlog")
    }

    fn first_not_held(&self) -> Option<Key> {
        self.ready().find(|&key| self.first(key).hold == 0)
    }

    /// An operation that changes no memory is no choice: it runs first.
    fn first_on_path(&mut self) -> Option<Key> {
        let changes =
            |&key: &Key| !matches!(self.first(key).action, Action::Mark { .. } | Action::Join);
        let mut ready: Vec<Key> = self.ready().collect();
        ready.sort_by_key(|&key| self.streams.get(key).map(|stream| stream.standing.name));
        if let Some(&plain) = ready.iter().find(|key| !changes(key)) {
            return Some(plain);
        }
        let path = self.schedule.path.as_mut()?;
        match ready.len() {
            0 | 1 => ready.first().copied(),
            choices => Some(ready[path.choose(choices)]),
        }
    }

    /// The ready stream with the highest priority, if it is ahead of the host. With `all`, which a
    /// wait sets, the host does not count: it cannot make a step then.
    fn first_by_priority(&self, all: bool) -> Option<Key> {
        let priority = |key: Key| self.streams.get(key).map_or(0, |s| s.standing.priority);
        let candidates = self.ready().map(|key| (priority(key), key));
        let (highest, first) = candidates.max_by_key(|&(priority, _)| priority)?;
        (all || self.schedule.pct.is_ahead(highest)).then_some(first)
    }

    /// Passes over all operations that are ready, except the one that runs. If the machine `lies`
    /// idle, the holds of operations do not count down.
    fn pass_over(&mut self, next: Option<Key>, lies: bool) {
        for at in 0..self.backlog.len() {
            let key = self.backlog[at];
            if Some(key) == next || !matches!(self.front(key), Front::Ready) {
                continue;
            }
            let stream = self.streams.get_mut(key).expect("it is ready");
            let first = stream.queue.front_mut().expect("it is ready");
            first.passed = first.passed.saturating_add(1).min(HELD - 1);
            if first.hold != HELD && !lies {
                first.hold = first.hold.saturating_sub(1);
            }
        }
    }

    /// The run so far; `None` if it is not written down.
    pub(crate) fn replay(&self) -> Option<Replay> {
        let mut replay = self.schedule.made.clone()?;
        for &key in &self.backlog {
            let stream = self.streams.get(key).expect("it is in the backlog");
            let first = self.first(key);
            if first.passed > 0 && !stream.dispatched {
                replay.decisions.insert(spot_of(stream.standing, first), HELD);
            }
        }
        Some(replay)
    }
}
