//! What a stream's queue holds: `pieces` cuts an operation up, `uses` says what it touches,
//! `declared` are kernels whose uses are declared.

pub(crate) mod declared;
pub(crate) mod pieces;
pub(crate) mod uses;

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use self::declared::Declared;
use crate::memory::host::HostUse;
use crate::races::{Called, Knowledge};
use crate::words::slots::Key;
use pinlane_base::lock::Mutex;
use pinlane_driver::{
    Call, CopyKind, DevicePtr, HostFunction, Item, Layer, MAX_PATTERN, Ordinal, RowMove,
};

/// A point in a stream's life: after its first `count` operations. Events and waits are made of
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) stream: Key,
    pub(crate) count: u64,
}

/// An operation that waits for its turn.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Numbers all operations of a machine in the order of the calls.
    pub(crate) id: u64,
    /// Numbers the operations of a stream, from 1.
    pub(crate) number: u64,
    /// Which piece of the operation it is, from 0.
    pub(crate) piece: u32,
    /// How often it is still to be passed over when it is ready.
    pub(crate) hold: u32,
    /// How often it has been passed over.
    pub(crate) passed: u32,
    /// What must be complete first, besides the operations ahead in the queue.
    pub(crate) waits: Vec<Position>,
    pub(crate) action: Action,
    /// What the race checker has to know when it runs.
    pub(crate) knowledge: Option<Knowledge>,
    /// Its call, as the race checker numbers it.
    pub(crate) called: Called,
}

/// What an operation does. Ranges are never empty.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// One copy, and the call that made it.
    Copy(Call, Transfer),
    /// Copies without an order among themselves, and the call that made them. They run as listed.
    Batch(Call, Box<[Transfer]>),
    Fill {
        dst: DevicePtr,
        bytes: usize,
        pattern: Pattern,
    },
    /// The same of host memory.
    FillHost {
        dst: HostUse,
        pattern: Pattern,
    },
    Checksum {
        src: DevicePtr,
        bytes: usize,
        out: DevicePtr,
    },
    Move(Box<Move>),
    Busy {
        nanoseconds: u64,
    },
    /// The allocation of this address becomes usable.
    Alloc {
        ptr: DevicePtr,
    },
    Free {
        ptr: DevicePtr,
    },
    /// Where an event is recorded.
    Mark {
        event: Key,
    },
    /// Only its waits.
    Join,
    HostFunction(HostCall),
    /// A kernel of the program's own.
    Kernel(Launch),
}

/// The copies of items, by a kernel. Boxed, because otherwise every operation would be as large.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) kind: CopyKind,
    pub(crate) moved: Moved,
    /// The ranges of host memory that it is known to use: its lists, and what they name.
    pub(crate) uses: Box<[HostUse]>,
    /// The items themselves, if all lists were in page-locked memory at the call; otherwise it uses
    /// some of `uses` only.
    pub(crate) known: Box<[Item]>,
}

/// Where a move reads what it is to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moved {
    Items { at: u64, count: usize },
    Rows(RowMove),
}

impl Moved {
    /// Its lists: addresses and lengths in bytes.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let bytes = |count: u64, size: usize| {
            usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size)
        };
        let lists = match *self {
            Moved::Items { at, count } => {
                [(at, bytes(count as u64, size_of::<Item>())), (0, 0), (0, 0)]
            }
            Moved::Rows(RowMove { layers, layer_count, count, from, to, .. }) => [
                (layers, bytes(layer_count, size_of::<Layer>())),
                (from.at, bytes(count, from.bytes as usize)),
                (to.at, bytes(count, to.bytes as usize)),
            ],
        };
        lists.into_iter().filter(|&(at, bytes)| at != 0 && bytes != 0)
    }

    pub(crate) fn is_nothing(&self) -> bool {
        match *self {
            Moved::Items { count, .. } => count == 0,
            Moved::Rows(rows) => rows.layer_count == 0 || rows.count == 0 || rows.bytes == 0,
        }
    }

    /// The address of what must be aligned to 8.
    pub(crate) fn words(&self) -> u64 {
        match *self {
            Moved::Items { at, .. } => at,
            Moved::Rows(rows) => rows.layers,
        }
    }
}

/// The copy of one range.
#[derive(Clone, Debug)]
pub(crate) enum Transfer {
    In {
        dst: DevicePtr,
        src: Source,
    },
    Out {
        dst: HostUse,
        src: DevicePtr,
    },
    /// Within a device, or between two.
    Across {
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    },
}

impl Transfer {
    /// How many bytes are copied.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Transfer::In { src: Source::Host(host), .. } | Transfer::Out { dst: host, .. } => {
                host.bytes
            }
            Transfer::In { src: Source::Taken { bytes, .. }, .. } => bytes.len(),
            Transfer::Across { bytes, .. } => *bytes,
        }
    }
}

/// Where an upload gets its bytes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// From host memory, when the copy runs.
    Host(HostUse),
    /// The bytes as they were at the call, and the address that they were taken from; 0 if that
    /// was promised. `ahead` says that the order of the stream did not count.
    Taken { bytes: Box<[u8]>, from: usize, ahead: bool },
}

/// A host function and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) function: HostFunction,
    pub(crate) data: *mut c_void,
}

// SAFETY: the caller of `Driver::launch_host` promises that `function` may be called with `data` on
// any thread.
unsafe impl Send for HostCall {}

/// A kernel of the program's own.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) name: &'static str,
    /// What it does, if that is known: a function of the host. It is called under the machine's
    /// lock, and so must make no call.
    pub(crate) stand_in: Option<Arc<Mutex<StandIn>>>,
    /// The same, if its uses are declared.
    pub(crate) declared: Option<Arc<Declared>>,
    /// The blocks of page-locked memory that it was given addresses of.
    pub(crate) named: Box<[HostUse]>,
    /// The other devices whose memory it can reach, as of the call.
    pub(crate) peers: Box<[Ordinal]>,
}

/// A function that does what a kernel does.
pub(crate) type StandIn = Box<dyn Fn() + Send>;

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Launch { name, stand_in, declared, .. } = self;
        f.debug_tuple("Launch").field(name).field(&stand_in.is_some()).field(declared).finish()
    }
}

/// The pattern of a fill, in the operation itself as in the parameters of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    bytes: [u8; MAX_PATTERN],
    len: u8,
}

impl Pattern {
    /// `None` unless the pattern has 1 to [`MAX_PATTERN`] bytes.
    pub(crate) fn new(pattern: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_PATTERN];
        bytes.get_mut(..pattern.len())?.copy_from_slice(pattern);
        (!pattern.is_empty()).then_some(Pattern { bytes, len: pattern.len() as u8 })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Action {
    /// The call that enqueues such an operation.
    pub(crate) fn call(&self) -> Call {
        match self {
            Action::Copy(call, _) | Action::Batch(call, _) => *call,
            Action::Fill { .. } | Action::FillHost { .. } => Call::Fill,
            Action::Checksum { .. } => Call::Checksum,
            Action::Move(_) => Call::MoveItems,
            Action::Busy { .. } | Action::Kernel(_) => Call::Busy,
            Action::Alloc { .. } => Call::DeviceAlloc,
            Action::Free { .. } => Call::DeviceFree,
            Action::Mark { .. } => Call::EventRecord,
            Action::Join => Call::StreamWaitEvent,
            Action::HostFunction(_) => Call::LaunchHost,
        }
    }

    /// The operation as a finding names it.
    pub(crate) fn name(&self) -> String {
        match self {
            Action::Kernel(launch) => format!("kernel {}", launch.name),
            _ => format!("{:?}", self.call()),
        }
    }

    /// Whether only the device knows, when the operation runs, what it uses of its ranges.
    #[inline]
    pub(crate) fn is_known_late(&self) -> bool {
        match self {
            Action::Move(it) => it.known.is_empty(),
            Action::Kernel(launch) => launch.stand_in.is_some() || launch.declared.is_some(),
            _ => false,
        }
    }

    /// The kernel, if its uses are declared.
    #[inline]
    pub(crate) fn declared(&self) -> Option<(&'static str, &Declared)> {
        match self {
            Action::Kernel(Launch { name, declared: Some(declared), .. }) => Some((name, declared)),
            _ => None,
        }
    }

    /// The ranges of host memory that the operation is known to use.
    pub(crate) fn host_uses(&self) -> impl Iterator<Item = &HostUse> {
        let (transfers, uses): (&[Transfer], &[HostUse]) = match self {
            Action::Copy(_, transfer) => (std::slice::from_ref(transfer), &[]),
            Action::Batch(_, transfers) => (transfers, &[]),
            Action::Move(it) => (&[], &it.uses),
            Action::FillHost { dst, .. } => (&[], std::slice::from_ref(dst)),
            _ => (&[], &[]),
        };
        let of_transfer = |transfer| match transfer {
            &Transfer::In { src: Source::Host(ref host), .. } => Some(host),
            Transfer::Out { dst, .. } => Some(dst),
            _ => None,
        };
        transfers.iter().filter_map(of_transfer).chain(uses)
    }

    /// The same, and the ranges that it only has the addresses of: memory that stays there until it
    /// has run.
    pub(crate) fn host_claims(&self) -> impl Iterator<Item = &HostUse> {
        let named: &[HostUse] = match self {
            Action::Kernel(launch) => &launch.named,
            _ => &[],
        };
        self.host_uses().chain(named)
    }
}
