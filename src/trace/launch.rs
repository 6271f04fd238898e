//! What the launch of a graph consists of.

use std::fmt;
use std::sync::Arc;

/// The work of a launch of a [`Graph`](crate::graph::Graph). CUDA tells when the launch began and
/// ended, but not when each of its operations did.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The first 100 operations, in the order of their capture. Fewer, or none, in a recording of
    /// more than 2^18 operations.
    pub operations: Vec<Operation>,
    /// How many operations follow.
    pub left_out: usize,
    /// All operations, also those that are left out: one total for each action that occurs.
    pub totals: Vec<Total>,
}

impl Launch {
    /// The same with fewer operations.
    pub(super) fn first(&self, count: usize) -> Self {
        let operations = self.operations[..count].to_vec();
        let left_out = self.left_out + self.operations.len() - count;
        Launch { operations, left_out, totals: self.totals.clone() }
    }
}

/// A captured operation.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub action: Action,
    /// The branch of the graph that it is on ([`Capture::branch`](crate::graph::Capture::branch)).
    pub branch: u32,
    /// How many bytes it moves; of foreign work, the largest part of a buffer that it uses.
    pub bytes: usize,
    /// The parts of buffers that it uses.
    pub operands: Vec<Operand>,
}

/// A part of a buffer that a captured operation uses.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The number of the buffer: the capture has counted them from 0 as it took them. A
    /// [rebound](crate::graph::Graph::rebind) buffer keeps the number.
    pub buffer: usize,
    /// Where the part begins in the buffer, in bytes.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
    /// Its address in this launch.
    pub address: u64,
    /// Whether the operation writes it.
    pub is_written: bool,
}

/// How many operations of a launch take one action, and how many bytes they move in all.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// What they do.
    pub action: Action,
    /// How many there are.
    pub count: usize,
    /// The sum of [`Operation::bytes`].
    pub bytes: usize,
}

/// What a captured operation does.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Copies from the host to the device.
    Upload,
    /// Copies from the device to the host.
    Download,
    /// Copies within the device.
    Copy,
    /// Fills memory of the device.
    Fill,
    /// Work of another library.
    Foreign,
}

impl Action {
    /// Its name in the output.
    pub(super) fn word(self) -> &'static str {
        match self {
            Action::Upload => "upload",
            Action::Download => "download",
            Action::Copy => "copy",
            Action::Fill => "fill",
            Action::Foreign => "foreign",
        }
    }
}

/// Says what a launch consists of. Only a recording calls it.
pub(crate) type Describe<'a> = &'a (dyn Fn() -> Arc<Launch> + Sync);

/// The text of an operation names at most this many operands.
const NAMED: usize = 8;

/// `branch 0: upload, 4096 bytes, from buffer 0 (0x7f0000001000), to buffer 1+64 (0x7f0000002040)`
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { action, branch, bytes, operands } = self;
        write!(f, "branch {branch}: {}, {bytes} bytes", action.word())?;
        let is_read = |operand: &&Operand| !operand.is_written;
        let (read, written) = operands.iter().partition::<Vec<_>, _>(is_read);
        let all = read.into_iter().chain(written);
        for &Operand { buffer, offset, address, is_written, .. } in all.take(NAMED) {
            write!(f, ", {} buffer {buffer}", if is_written { "to" } else { "from" })?;
            if offset > 0 {
                write!(f, "+{offset}")?;
            }
            write!(f, " ({address:#x})")?;
        }
        match operands.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// `2 x upload, 8192 bytes`
impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}, {} bytes", self.count, self.action.word(), self.bytes)
    }
}
