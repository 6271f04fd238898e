//! What a graph's operations do, for recordings.

use std::sync::{Arc, OnceLock};

use super::buffer::{Buffers, Use};
use crate::memory::hazard::Access;
use crate::trace::{Action, Launch, Operand, Operation, Total};

/// A graph remembers what this many operations do.
const LISTED: usize = 100;

#[derive(Default)]
pub(super) struct Outline {
    steps: Vec<Step>,
    totals: Vec<Total>,
    /// Made when a recording asks for it, and when a buffer has changed since.
    launch: OnceLock<Arc<Launch>>,
}

struct Step {
    action: Action,
    branch: u32,
    bytes: usize,
    uses: Vec<Use>,
}

impl Outline {
    /// An operation is captured. A copy of no bytes is none.
    pub(super) fn note(&mut self, action: Action, branch: u32, uses: &[Use], bytes: usize) {
        if bytes == 0 && action != Action::Foreign {
            return;
        }
        let known = self.totals.iter_mut().find(|total| total.action == action);
        match known {
            Some(total) => {
                total.count += 1;
                total.bytes = total.bytes.saturating_add(bytes);
            }
            None => self.totals.push(Total { action, count: 1, bytes }),
        }
        if self.steps.len() < LISTED {
            self.steps.push(Step { action, branch, bytes, uses: uses.to_vec() });
        }
    }

    /// A buffer has another address now.
    pub(super) fn outdated(&mut self) {
        self.launch.take();
    }

    pub(super) fn launch(&self, buffers: &Buffers) -> Arc<Launch> {
        Arc::clone(self.launch.get_or_init(|| Arc::new(self.describe(buffers))))
    }

    fn describe(&self, buffers: &Buffers) -> Launch {
        let operand = |user: &Use| Operand {
            buffer: user.index,
            offset: user.range.start,
            bytes: user.range.len(),
            address: buffers.address(user.index) + user.range.start as u64,
            is_written: user.access == Access::Write,
        };
        let operation = |&Step { action, branch, bytes, ref uses }: &Step| Operation {
            action,
            branch,
            bytes,
            operands: uses.iter().map(operand).collect(),
        };
        let count: usize = self.totals.iter().map(|total| total.count).sum();
        Launch {
            operations: self.steps.iter().map(operation).collect(),
            left_out: count - self.steps.len(),
            totals: self.totals.clone(),
        }
    }
}
