//! Which bytes an operation reads and writes, as far as that is known at the call.
//!
//! For a kernel whose uses are not declared, and for a move whose items lie in device memory, that
//! is known only when it runs.

use crate::operation::declared::DeclaredUse;
use crate::operation::{Action, Source, Transfer};
use crate::races::{RacingAccess, Rows};
use pinlane_driver::Item;

/// Bytes that an operation uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: Rows,
    pub(crate) access: RacingAccess,
    /// It may come before the earlier work of the stream (rule 4).
    pub(crate) ahead: bool,
}

impl Touch {
    pub(crate) fn new(start: u64, bytes: u64, access: RacingAccess) -> Self {
        Touch { start, bytes, rows: Rows::default(), access, ahead: false }
    }

    /// A use that was declared.
    pub(crate) fn declared(one: &DeclaredUse) -> Self {
        let whole = Touch::new(one.start, one.span(), RacingAccess::of(one.writes));
        let rows = (one.rows > 1).then(|| Rows::new(one.bytes, one.stride));
        Touch { rows: rows.unwrap_or_default(), ..whole }
    }
}

fn read(start: u64, bytes: usize) -> Touch {
    Touch::new(start, bytes as u64, RacingAccess::Read)
}

fn write(start: u64, bytes: usize) -> Touch {
    Touch::new(start, bytes as u64, RacingAccess::Write)
}

/// Calls `each` with what an operation uses. The range of an allocation or a free is its first
/// byte: the allocation itself knows the rest.
#[inline]
pub(crate) fn touches(action: &Action, mut each: impl FnMut(Touch)) {
    match action {
        Action::Copy(_, transfer) => of_transfer(transfer, each),
        Action::Batch(_, transfers) => transfers.iter().for_each(|t| of_transfer(t, &mut each)),
        &Action::Fill { dst, bytes, .. } => each(write(dst, bytes)),
        Action::FillHost { dst, .. } => each(write(dst.ptr.address() as u64, dst.bytes)),
        &Action::Checksum { src, bytes, out } => {
            if bytes != 0 {
                each(read(src, bytes));
            }
            each(write(out, 8));
        }
        Action::Move(it) => {
            it.moved.lists().for_each(|(at, bytes)| each(read(at, bytes)));
            of_items(&it.known, each);
        }
        &Action::Alloc { ptr } => {
            each(Touch::new(ptr, 1, RacingAccess::Allocation));
        }
        &Action::Free { ptr } => each(Touch::new(ptr, 1, RacingAccess::Free)),
        // What other kernels of the program use is known when their stand-ins have run.
        Action::Kernel(launch) => {
            let uses = launch.declared.iter().flat_map(|declared| &declared.uses);
            uses.map(Touch::declared).for_each(each);
        }
        Action::Busy { .. } | Action::Mark { .. } | Action::Join | Action::HostFunction(_) => {}
    }
}

fn of_transfer(transfer: &Transfer, mut each: impl FnMut(Touch)) {
    match transfer {
        Transfer::In { dst, src } => {
            let (from, bytes) = match src {
                Source::Host(host) => (host.ptr.address(), host.bytes),
                // CUDA may have read it as late as any other source.
                Source::Taken { bytes, from, .. } => (*from, bytes.len()),
            };
            each(Touch { ahead: reads_ahead(src), ..read(from as u64, bytes) });
            each(write(*dst, bytes));
        }
        Transfer::Out { dst, src } => {
            each(read(*src, dst.bytes));
            each(write(dst.ptr.address() as u64, dst.bytes));
        }
        &Transfer::Across { dst, src, bytes } => {
            each(read(src, bytes));
            each(write(dst, bytes));
        }
    }
}

/// Whether a source is read whenever CUDA likes, from the call on: what is pageable.
fn reads_ahead(source: &Source) -> bool {
    match source {
        Source::Host(host) => host.is_read_ahead(),
        // What was read before the call returned, as documented, is over.
        Source::Taken { from, ahead, .. } => *from != 0 && *ahead,
    }
}

/// Whether the operation does something ahead of its stream's order.
#[inline]
pub(crate) fn is_ahead(action: &Action) -> bool {
    let reads = |transfer: &Transfer| match transfer {
        Transfer::In { src, .. } => reads_ahead(src),
        _ => false,
    };
    match action {
        Action::Copy(_, transfer) => reads(transfer),
        Action::Batch(_, transfers) => transfers.iter().any(reads),
        _ => false,
    }
}

pub(crate) fn of_items(items: &[Item], mut each: impl FnMut(Touch)) {
    for item in items.iter().filter(|item| item.bytes != 0) {
        each(Touch::new(item.src, item.bytes, RacingAccess::Read));
        each(Touch::new(item.dst, item.bytes, RacingAccess::Write));
    }
}

/// The byte that a fill writes, if it writes one and the same everywhere.
pub(crate) fn value_of(action: &Action) -> Option<u8> {
    match action {
        Action::Fill { pattern, .. } | Action::FillHost { pattern, .. } => {
            let (&first, rest) = pattern.as_slice().split_first()?;
            rest.iter().all(|&byte| byte == first).then_some(first)
        }
        _ => None,
    }
}
