//! Memory by address, for allocators that give back nothing but a pointer.
//!
//! ```text
//!   allocate_raw ---> table: address -> block ---> deallocate_raw
//!                         |            ^
//!                         v  lend_raw  |
//!                      work on the block, with nothing locked
//! ```
//!
//! # Invariants
//!
//! * What is out is a block in the table, so that it is nobody else's. It leaves the table before
//!   it goes back to the pool: an address is in the table once.
//! * An address is never believed: only one that is in the table is acted on.
//! * Blocks that threads keep are in a map without locks: there, to allocate and to free is a store
//!   and a compare-and-swap on a line that belongs to the address. The others, which are rare and
//!   take the pool's lock anyhow, are in one under a lock.
//! * What is out when the last handle of a pool goes, and with it the only way to give it back, is
//!   leaked: memory is never unmapped under its user.
//! * No block is given back, and no driver called, under the lock.

use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use super::addresses::{Addresses, GRANULE};
use super::classes::{LARGEST_KEPT, class_bytes};
use super::core::Patience;
use super::{PinnedPool, errors};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::block::{Block, BlockRef};
use crate::memory::{PinnedBuf, PinnedRegion};
use crate::sync::Mutex;

/// What is out of one pool, by address. Dropping it leaks that; in a forked child it must be
/// forgotten instead.
#[derive(Default)]
pub(super) struct Table {
    kept: Addresses,
    others: Mutex<BTreeMap<usize, Entry>>,
}

/// A block without a class.
struct Entry {
    bytes: usize,
    /// There, unless it is lent.
    block: Option<BlockRef>,
    /// It was freed while it was lent: the loan's end gives it back.
    freed: bool,
}

/// What a place says: the block's address, with its class in the bits above; in the lowest whether
/// it is lent, and whether it was freed meanwhile, so that the loan's end gives it back.
const CLASS: u32 = 56;
const LENT: usize = 1;
const FREED: usize = 2;
const _: () = assert!(align_of::<Block>() > (LENT | FREED));

fn named(block: BlockRef, class: usize) -> *mut Block {
    block.into_raw().as_ptr().map_addr(|address| address | class << CLASS)
}

fn bytes_of(name: *mut Block) -> usize {
    class_bytes(name.addr() >> CLASS)
}

/// # Safety
///
/// * `name` was taken out of its place, by the caller alone.
unsafe fn block_of(name: *mut Block) -> BlockRef {
    let block = name.map_addr(|address| address & ((1 << CLASS) - 1) & !(LENT | FREED));
    // SAFETY: `named` made it of a right, which the place had alone until the caller took it.
    unsafe { BlockRef::new(NonNull::new_unchecked(block)) }
}

/// The buffer that all of a block is.
fn whole(block: BlockRef) -> PinnedBuf<u8> {
    let bytes = block.bytes();
    PinnedBuf::new(PinnedRegion::new(block), bytes)
}

impl Table {
    #[inline]
    fn insert(&self, block: BlockRef) {
        let address = block.ptr().addr().get();
        let place = block.class().and_then(|class| Some((class, self.kept.make(address)?)));
        match place {
            Some((class, place)) => {
                debug_assert!(place.load(Ordering::Relaxed).is_null(), "two blocks at one address");
                place.store(named(block, class), Ordering::Release);
            }
            None => {
                let entry = Entry { bytes: block.bytes(), block: Some(block), freed: false };
                let twin = self.others.lock().insert(address, entry);
                debug_assert!(twin.is_none(), "two blocks at one address");
            }
        }
    }

    /// Takes out the block that begins at `address`; `None` if it is lent, whose end then gives it
    /// back.
    #[inline]
    fn remove(&self, operation: &'static str, address: usize) -> Result<Option<BlockRef>> {
        let Some(place) = self.kept.get(address) else {
            return self.remove_other(operation, address);
        };
        let mut name = place.load(Ordering::Relaxed);
        loop {
            let lent = name.addr() & LENT != 0;
            if name.is_null() || name.addr() & FREED != 0 {
                return self.remove_other(operation, address);
            }
            let next = if lent { name.map_addr(|name| name | FREED) } else { ptr::null_mut() };
            match place.compare_exchange(name, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if lent => return Ok(None),
                // SAFETY: this thread has just taken it out.
                Ok(_) => return Ok(Some(unsafe { block_of(name) })),
                Err(now) => name = now,
            }
        }
    }

    #[cold]
    fn remove_other(&self, operation: &'static str, address: usize) -> Result<Option<BlockRef>> {
        let mut entries = self.others.lock();
        let Some(entry) = entries.get_mut(&address).filter(|entry| !entry.freed) else {
            drop(entries);
            return Err(self.not_the_begin(operation, address));
        };
        let block = entry.block.take();
        match block {
            Some(_) => _ = entries.remove(&address),
            None => entry.freed = true,
        }
        Ok(block)
    }

    /// The begin and the size of the allocation that `address` lies in.
    fn around(&self, address: usize) -> Option<(usize, usize)> {
        let holds = |(begin, bytes): &(usize, usize)| address - begin < *bytes;
        self.kept_below(address).filter(holds).or_else(|| {
            let entries = self.others.lock();
            let found = entries.range(..=address).next_back();
            found.map(|(&begin, entry)| (begin, entry.bytes)).filter(holds)
        })
    }

    /// The last begin at or below `address` of a block that threads keep, if it may be large
    /// enough.
    fn kept_below(&self, address: usize) -> Option<(usize, usize)> {
        let last = address & !(GRANULE - 1);
        let begins = (0..LARGEST_KEPT).step_by(GRANULE).map_while(|back| last.checked_sub(back));
        begins.into_iter().find_map(|begin| {
            let name = self.kept.get(begin)?.load(Ordering::Relaxed);
            (!name.is_null()).then(|| (begin, bytes_of(name)))
        })
    }

    /// The size of the block that begins at `address`.
    #[cfg(feature = "allocator-api2")]
    fn bytes_at(&self, address: usize) -> Option<usize> {
        let name = self.kept.get(address).map(|place| place.load(Ordering::Relaxed));
        match name.filter(|name| !name.is_null()) {
            Some(name) => Some(bytes_of(name)),
            None => self.others.lock().get(&address).map(|entry| entry.bytes),
        }
    }

    /// Why there is no allocation at `address`.
    #[cold]
    fn not_the_begin(&self, operation: &'static str, address: usize) -> Error {
        match self.around(address).filter(|&(begin, _)| begin != address) {
            Some((begin, bytes)) => Error::new(
                ErrorKind::InvalidValue,
                operation,
                format!("{address:#x} is {} bytes into the {bytes} at {begin:#x}", address - begin),
                "pass the address that the allocation gave",
            ),
            None => unknown(operation, address),
        }
    }
}

#[cold]
fn unknown(operation: &'static str, address: usize) -> Error {
    Error::new(
        ErrorKind::InvalidHandle,
        operation,
        format!("{address:#x} is not allocated from this pool: freed already, or of another one"),
        "pass an address that this pool gave and that has not been freed, once",
    )
}

#[cfg(feature = "capi")]
#[cold]
fn lent(operation: &'static str, address: usize) -> Error {
    Error::new(
        ErrorKind::Busy,
        operation,
        format!("another thread records a use of the memory at {address:#x} at this moment"),
        "let one thread at a time name an allocation, or hold a lock of your own",
    )
}

impl PinnedPool {
    fn raw(&self) -> &Table {
        &self.handle.1
    }

    /// Allocates at least `bytes` bytes, which are initialised, aligned to `align`: a power of two,
    /// at most 2 MiB. The length of what is returned is that of the block. Blocks as
    /// [`alloc`](Self::alloc).
    ///
    /// The memory is the caller's until [`deallocate_raw`](Self::deallocate_raw) or for ever.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc); [`ErrorKind::InvalidValue`] for another `align`.
    #[inline]
    pub(crate) fn allocate_raw(
        &self,
        operation: &'static str,
        bytes: usize,
        align: usize,
    ) -> Result<NonNull<[u8]>> {
        if !align.is_power_of_two() {
            return Err(errors::bad_alignment(operation, align));
        }
        let bytes = bytes.max(1);
        let block = match self.kept::<u8>(operation, bytes, align)? {
            Some(block) => block,
            None => self.alloc_slow(operation, bytes, align, Patience::Devices)?,
        };
        let memory = NonNull::slice_from_raw_parts(block.ptr(), block.bytes());
        self.raw().insert(block);
        Ok(memory)
    }

    /// Takes back what [`allocate_raw`](Self::allocate_raw) gave; null is fine. Does not block. The
    /// memory may be somebody else's at once, or when the uses that were recorded are complete,
    /// also one that is being recorded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidHandle`] for what this pool has not given, or has taken back;
    /// [`ErrorKind::InvalidValue`] for an address inside of an allocation;
    /// [`ErrorKind::ForkedProcess`].
    #[inline]
    pub(crate) fn deallocate_raw(&self, operation: &'static str, memory: *const u8) -> Result<()> {
        if memory.is_null() {
            return Ok(());
        }
        self.handle.0.context.check_process(operation)?;
        drop(self.raw().remove(operation, memory.addr())?.map(whole));
        Ok(())
    }
}

#[cfg(feature = "allocator-api2")]
impl PinnedPool {
    /// The size of the block at `memory`; `None` if there is none, or in a forked child.
    pub(super) fn raw_bytes(&self, memory: *const u8) -> Option<usize> {
        self.handle.0.context.check_process("PinnedPool::raw_bytes").ok()?;
        self.raw().bytes_at(memory.addr())
    }
}

#[cfg(feature = "capi")]
impl PinnedPool {
    /// Runs `work` on the buffer that `memory`, an address anywhere in an allocation, belongs to.
    ///
    /// # Errors
    ///
    /// Those of `work`; [`ErrorKind::InvalidHandle`] for what is not allocated from this pool;
    /// [`ErrorKind::Busy`] while it is lent to another thread; [`ErrorKind::ForkedProcess`].
    pub(crate) fn lend_raw<R>(
        &self,
        operation: &'static str,
        memory: *const u8,
        work: impl FnOnce(&mut PinnedBuf<u8>) -> Result<R>,
    ) -> Result<R> {
        self.handle.0.context.check_process(operation)?;
        work(&mut *self.raw().lend(operation, memory.addr())?)
    }
}

#[cfg(feature = "capi")]
mod loan {
    use super::super::addresses::Place;
    use super::*;
    use std::mem::ManuallyDrop;
    use std::ops::{Deref, DerefMut};

    /// A buffer that is out of the table, where its place is kept.
    pub(super) struct Loan<'a> {
        /// Never dropped: the block goes back to the table.
        buffer: ManuallyDrop<PinnedBuf<u8>>,
        home: Home<'a>,
    }

    enum Home<'a> {
        /// And what it said.
        Place(&'a Place, *mut Block),
        Others(&'a Table),
    }

    impl Table {
        pub(super) fn lend(&self, operation: &'static str, address: usize) -> Result<Loan<'_>> {
            let (begin, _) = self.around(address).ok_or_else(|| unknown(operation, address))?;
            let place = self.kept.get(begin);
            match place.map(|place| (place, place.load(Ordering::Relaxed))) {
                Some((place, name)) if !name.is_null() => {
                    lend_kept(operation, address, place, name)
                }
                _ => self.lend_other(operation, address, begin),
            }
        }

        fn lend_other(
            &self,
            operation: &'static str,
            address: usize,
            begin: usize,
        ) -> Result<Loan<'_>> {
            let mut entries = self.others.lock();
            // It was there a moment ago, with nothing locked.
            let entry = entries.get_mut(&begin).ok_or_else(|| unknown(operation, address))?;
            let block = entry.block.take().ok_or_else(|| lent(operation, address))?;
            Ok(Loan { buffer: ManuallyDrop::new(whole(block)), home: Home::Others(self) })
        }
    }

    fn lend_kept<'a>(
        operation: &'static str,
        address: usize,
        place: &'a Place,
        name: *mut Block,
    ) -> Result<Loan<'a>> {
        let marked = name.map_addr(|name| name | LENT);
        let (set, fail) = (Ordering::Acquire, Ordering::Relaxed);
        if name == marked || place.compare_exchange(name, marked, set, fail).is_err() {
            return Err(lent(operation, address));
        }
        // SAFETY: nobody takes out what is marked, so that it is this thread's, which marked it.
        let buffer = ManuallyDrop::new(whole(unsafe { block_of(name) }));
        let loan = Loan { buffer, home: Home::Place(place, name) };
        // What began there a moment ago may have made room for a smaller one.
        let holds = address - loan.as_ptr().addr() < loan.len();
        if holds { Ok(loan) } else { Err(unknown(operation, address)) }
    }

    impl Deref for Loan<'_> {
        type Target = PinnedBuf<u8>;

        fn deref(&self) -> &PinnedBuf<u8> {
            &self.buffer
        }
    }

    impl DerefMut for Loan<'_> {
        fn deref_mut(&mut self) -> &mut PinnedBuf<u8> {
            &mut self.buffer
        }
    }

    impl Drop for Loan<'_> {
        /// The block goes back to its place, or to the pool if it was freed meanwhile.
        fn drop(&mut self) {
            // SAFETY: taken once, here, and not used afterwards.
            let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
            match self.home {
                Home::Place(place, name) => {
                    let lent = name.map_addr(|name| name | LENT);
                    let (set, fail) = (Ordering::Release, Ordering::Acquire);
                    match place.compare_exchange(lent, name, set, fail) {
                        // The place has it, by its name.
                        Ok(_) => _ = buffer.into_block(),
                        Err(_) => {
                            place.store(ptr::null_mut(), Ordering::Release);
                            drop(buffer);
                        }
                    }
                }
                Home::Others(table) => table.take_back(buffer),
            }
        }
    }

    impl Table {
        fn take_back(&self, buffer: PinnedBuf<u8>) {
            let address = buffer.as_ptr().addr();
            let mut entries = self.others.lock();
            match entries.get_mut(&address) {
                Some(entry) if !entry.freed => entry.block = Some(buffer.into_block()),
                _ => {
                    entries.remove(&address);
                    drop(entries);
                    drop(buffer);
                }
            }
        }
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests;
