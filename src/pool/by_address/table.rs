//! The allocated blocks of a pool by address, for allocators that get only a pointer back.
//!
//! ```text
//!   allocate ---> table: address -> block ---> deallocate
//!                     |            ^
//!                     v   lend     |
//!                  work on the block, with nothing locked
//! ```
//!
//! # Invariants
//!
//! * The table owns the blocks that are in it. A block leaves the table before it goes back to the
//!   pool, so an address is in the table once.
//! * An address is never trusted: it is looked up in the table first.
//! * An entry is null, or the address of a block's descriptor, with its class in the highest bits
//!   and two marks in the lowest: the block is lent, and it was freed while it was lent. The thread
//!   that changes the entry with a compare-and-swap has the block alone.
//! * Allocating and freeing a block of a class that threads keep is one store and one
//!   compare-and-swap, on a cache line that belongs to the address. Blocks without a class are rare
//!   and take the pool's lock anyway. They are also in a list under a lock, which finds them by an
//!   address inside of them.
//! * When the last handle of a pool drops, allocated blocks leak: they can no longer be given back,
//!   and memory is never unmapped under its user.
//! * Under the lock no block is given back and no driver call is made.

use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use super::addresses::{Addresses, GRANULE};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::block::{Block, BlockRef};
use crate::memory::{PinnedBuf, PinnedRegion};
use crate::pool::classes::{LARGEST_KEPT, class_bytes};
use crate::sync::Mutex;

/// Dropping it leaks the blocks. In a forked child it must be forgotten instead.
#[derive(Default)]
pub(crate) struct AddressTable {
    pub(crate) entries: Addresses,
    /// The sizes of the blocks without a class.
    large: Mutex<BTreeMap<usize, usize>>,
}

/// The lowest bit of the class in an entry.
const CLASS: u32 = 56;
/// Marks a block without a class.
const LARGE: usize = 0xff;
pub(crate) const LENT: usize = 1;
const FREED: usize = 2;
const _: () = assert!(align_of::<Block>() > (LENT | FREED));

/// # Safety
///
/// * The caller has taken `entry` out of its place, or has marked it as lent.
pub(crate) unsafe fn block_of(entry: *mut Block) -> BlockRef {
    let block = entry.map_addr(|address| address & ((1 << CLASS) - 1) & !(LENT | FREED));
    // SAFETY: `insert` made the entry from a right, which only the table had until the caller took
    // it.
    unsafe { BlockRef::new(NonNull::new_unchecked(block)) }
}

/// The buffer that is a whole block.
pub(crate) fn whole(block: BlockRef) -> PinnedBuf<u8> {
    let bytes = block.bytes();
    PinnedBuf::new(PinnedRegion::new(block), bytes)
}

impl AddressTable {
    #[inline]
    pub(crate) fn insert(&self, block: BlockRef) {
        let address = block.ptr().addr().get();
        let class = block.class.map_or(LARGE, usize::from);
        if class == LARGE {
            self.large.lock().insert(address, block.bytes());
        }
        let entry = self.entries.make(address).expect("blocks lie in the lower 2^48 bytes");
        debug_assert!(entry.load(Ordering::Relaxed).is_null(), "two blocks at one address");
        let block = block.into_raw().as_ptr().map_addr(|block| block | class << CLASS);
        entry.store(block, Ordering::Release);
    }

    /// Takes out the block that begins at `address`; `None` if it is lent: the end of the loan then
    /// gives it back.
    #[inline]
    pub(crate) fn remove(
        &self,
        operation: &'static str,
        address: usize,
    ) -> Result<Option<PinnedBuf<u8>>> {
        let entry = self.entries.get(address);
        let mut now = entry.map_or(ptr::null_mut(), |entry| entry.load(Ordering::Relaxed));
        while let Some(entry) = entry
            && !now.is_null()
            && now.addr() & FREED == 0
        {
            let lent = now.addr() & LENT != 0;
            let next = if lent { now.map_addr(|entry| entry | FREED) } else { ptr::null_mut() };
            match entry.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if lent => return Ok(None),
                Ok(_) => {
                    // SAFETY: this thread has just taken it out.
                    let block = unsafe { block_of(now) };
                    self.forget_size(&block);
                    return Ok(Some(whole(block)));
                }
                Err(other) => now = other,
            }
        }
        Err(self.not_the_begin(operation, address))
    }

    /// Removes the size of a block that has just been taken out of its entry.
    #[inline(always)]
    pub(crate) fn forget_size(&self, block: &Block) {
        if block.class.is_none() {
            self.forget_large(block.ptr().addr().get());
        }
    }

    #[cold]
    fn forget_large(&self, address: usize) {
        self.large.lock().remove(&address);
    }

    /// The start and the size of the allocation that `address` lies in.
    pub(crate) fn around(&self, address: usize) -> Option<(usize, usize)> {
        let holds = |(begin, bytes): &(usize, usize)| address - begin < *bytes;
        self.kept_below(address).filter(holds).or_else(|| {
            let large = self.large.lock();
            large.range(..=address).next_back().map(|(&begin, &bytes)| (begin, bytes)).filter(holds)
        })
    }

    /// The start and the size of the last block at or below `address` whose class threads keep, if
    /// it is near enough to reach the address.
    fn kept_below(&self, address: usize) -> Option<(usize, usize)> {
        let last = address & !(GRANULE - 1);
        let begins = (0..LARGEST_KEPT).step_by(GRANULE).map_while(|back| last.checked_sub(back));
        begins.into_iter().find_map(|begin| {
            let entry = self.entries.get(begin)?.load(Ordering::Relaxed);
            let class = entry.addr() >> CLASS;
            (!entry.is_null() && class != LARGE).then(|| (begin, class_bytes(class)))
        })
    }

    /// The size of the block that begins at `address`.
    #[cfg(feature = "allocator-api2")]
    pub(crate) fn bytes_at(&self, address: usize) -> Option<usize> {
        let entry = self.entries.get(address)?.load(Ordering::Relaxed);
        match entry.addr() >> CLASS {
            _ if entry.is_null() => None,
            LARGE => self.large.lock().get(&address).copied(),
            class => Some(class_bytes(class)),
        }
    }

    /// Why no allocation begins at `address`.
    #[cold]
    fn not_the_begin(&self, operation: &'static str, address: usize) -> Error {
        match self.around(address).filter(|&(begin, _)| begin != address) {
            Some((begin, bytes)) => Error::invalid(
                operation,
                format!("{address:#x} is {} bytes into the {bytes} at {begin:#x}", address - begin),
                "pass the address that the allocation gave",
            ),
            None => unknown(operation, address),
        }
    }
}

#[cold]
pub(crate) fn unknown(operation: &'static str, address: usize) -> Error {
    let what =
        format!("{address:#x} is not allocated from this pool: freed already, or of another one");
    let remedy = "pass an address that this pool gave and that has not been freed, once";
    Error::new(ErrorKind::InvalidHandle, operation, what, remedy)
}
