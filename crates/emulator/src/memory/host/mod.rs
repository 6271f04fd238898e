//! Host memory: which of it is page-locked, and which pending operations name it.
//!
//! * Allocated blocks are real memory of the process, aligned to 4096 bytes and poisoned, never
//!   uninitialised. They outlive the emulator unless they are freed: the program may still hold a
//!   pointer.
//! * A block that is freed while a pending operation names it is *quarantined*: its memory is never
//!   given back, so that the program under test stays sound, and its mistake is a finding.
//! * Blocks never overlap (rule 21).
//!
//! * A machine that watches the host ([`watch`](crate::watch)) maps its blocks twice (`watched`).
//!   The program has one mapping, and all that is done here is done to the other.
//!
//! This is the one place that dereferences host memory.

use std::alloc::Layout;
use std::collections::HashSet;
use std::ops::Range;
use std::ptr::NonNull;

use crate::memory::made::MadeHost;
use crate::watch::{Watched, Watcher};
use crate::words::rng;
use crate::words::spans::Spans;
use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Ordinal};

mod uses;
mod watched;

use uses::Uses;
pub(crate) use uses::{Access, HostPtr, HostUse};

const PAGE: usize = 4096;

/// How much memory the emulated machine can page-lock by default. A real system may promise more
/// than it has, and kill the process that touches it.
const MACHINE: usize = 64 << 30;

/// How much of a range is page-locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// All of it, by one block.
    Whole,
    /// Some of it, or all by several blocks, or by one that is freed.
    Part,
    None,
}

/// What devices may do with page-locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Any,
    /// It was registered for reading only.
    ToRead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Allocated,
    Registered,
    Quarantined,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) ptr: HostPtr,
    pub(crate) bytes: usize,
    pub(crate) device: Ordinal,
    origin: Origin,
    purpose: Purpose,
    /// How the program made it, as long as a call of the program may end it.
    made: Option<MadeHost>,
    uses: Uses,
    watched: Option<Watched>,
}

impl Block {
    fn end(&self) -> usize {
        self.ptr.address() + self.bytes
    }

    /// How it is taken out of the registry, and its length.
    fn removal(&self) -> (usize, Removal) {
        let is_idle = self.uses.is_empty();
        let in_flight = || Removal::InFlight(self.uses.certain());
        (self.bytes, if is_idle { Removal::Clean } else { in_flight() })
    }
}

/// Why a block could not be freed or unregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No block contains the address.
    Unknown,
    /// The address lies inside a block, or the block is of the other origin.
    Mismatch,
}

/// How a block was taken out of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Clean,
    /// Operations that have not run yet use the block: this many. 0 if they only have its address.
    InFlight(usize),
}

/// The registry of page-locked memory, and the pending uses of pageable memory.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    seed: u64,
    generation: u64,
    blocks: Spans<Block>,
    /// Bytes and blocks that are page-locked: all but those in quarantine.
    locked: (usize, usize),
    /// The most that one call page-locks, and what a larger one gets.
    pub(crate) largest_call: Option<(usize, CudaCode)>,
    /// The most that is page-locked at a time.
    pub(crate) capacity: usize,
    /// Of memory in no block.
    pageable: Uses,
    /// Makes new blocks, so that it sees what the host does to them.
    pub(crate) watcher: Option<Watcher>,
    /// Whether faults come to the watcher: other code may have taken its place.
    sees_faults: bool,
    /// The blocks that have closed pages.
    closed: Vec<usize>,
    /// Whether some of those pages are open for a host function.
    lends: bool,
}

impl HostMemory {
    pub(crate) fn new(seed: u64) -> Self {
        HostMemory { seed, capacity: MACHINE, sees_faults: true, ..HostMemory::default() }
    }

    /// Bytes and blocks that are page-locked, allocated and registered ones alike.
    pub(crate) fn usage(&self) -> (usize, usize) {
        self.locked
    }

    /// Blocks that were freed in flight, whose memory is therefore never given back.
    pub(crate) fn quarantined(&self) -> usize {
        self.blocks.len() - self.locked.1
    }

    /// Whether one call may page-lock this many bytes.
    pub(crate) fn check_call(&self, bytes: usize) -> DriverResult<()> {
        match self.largest_call {
            _ if bytes == 0 => Err(CudaCode::INVALID_VALUE),
            Some((largest, code)) if bytes > largest => Err(code),
            _ => Ok(()),
        }
    }

    /// Whether this many more bytes can be page-locked.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.capacity.saturating_sub(self.usage().0)
    }

    /// Notes how the program made a block.
    pub(crate) fn note(&mut self, ptr: NonNull<u8>, made: Option<MadeHost>) {
        if let Some(block) = self.blocks.get_mut(ptr.as_ptr().addr() as u64) {
            block.made = made;
        }
    }

    /// The program's block that an address lies in.
    pub(crate) fn made_at(&self, address: usize) -> Option<(&Block, MadeHost)> {
        let ptr = HostPtr(std::ptr::without_provenance_mut(address));
        let block = self.containing(ptr, 1)?;
        block.made.map(|made| (block, made))
    }

    /// The program's blocks that begin below an address.
    pub(crate) fn made_below(&self, end: usize) -> impl Iterator<Item = (&Block, MadeHost)> {
        self.blocks
            .range_to(end as u64)
            .filter_map(|(_, block)| block.made.map(|made| (block, made)))
    }

    /// The device that a block was allocated or registered on.
    pub(crate) fn device_of(&self, ptr: NonNull<u8>) -> Option<Ordinal> {
        self.blocks.get(ptr.as_ptr().addr() as u64).map(|block| block.device)
    }

    pub(crate) fn allocate(&mut self, device: Ordinal, bytes: usize) -> Option<NonNull<u8>> {
        if !self.has_room(bytes) {
            return None;
        }
        let layout =
            Layout::from_size_align(bytes, PAGE).ok().filter(|layout| layout.size() > 0)?;
        // If the system refuses the mappings, the block is not watched.
        let watched = self.watcher.as_ref().and_then(|watcher| watcher.watch(bytes));
        let ptr = match &watched {
            Some(watched) => watched.area().program(),
            // SAFETY: the layout's size is not 0.
            None => NonNull::new(unsafe { std::alloc::alloc(layout) })?,
        };
        self.generation += 1;
        let words = bytes / 8;
        let word = rng::poison(self.seed, self.generation);
        // SAFETY: `ptr` is valid for writes of `bytes` bytes, aligned to 4096, and not used
        // elsewhere. All bytes are initialised here, the words by the loop and the tail by
        // `write_bytes`.
        unsafe {
            for index in 0..words {
                ptr.as_ptr().cast::<u64>().add(index).write(word);
            }
            ptr.as_ptr().add(words * 8).write_bytes(word as u8, bytes - words * 8);
        }
        self.insert(HostPtr(ptr.as_ptr()), bytes, device, Origin::Allocated, watched);
        Some(ptr)
    }

    /// Frees an allocated block, or quarantines it.
    ///
    /// # Safety
    ///
    /// * No reference into the block is used afterwards.
    pub(crate) unsafe fn free(&mut self, ptr: NonNull<u8>) -> Result<Removal, Refusal> {
        let block = self.find(ptr, Origin::Allocated)?;
        let (bytes, removal) = block.removal();
        if removal != Removal::Clean {
            block.origin = Origin::Quarantined;
            block.made = None;
            self.no_longer_locked(bytes);
            return Ok(removal);
        }
        self.no_longer_locked(bytes);
        let gone = self.blocks.remove(ptr.as_ptr().addr() as u64);
        if let Some(watched) = gone.and_then(|block| block.watched) {
            self.closed.retain(|&start| start != ptr.as_ptr().addr());
            // SAFETY: no pointer into the block is used afterwards: promised by the caller.
            unsafe { watched.free() };
            return Ok(Removal::Clean);
        }
        let layout = Layout::from_size_align(bytes, PAGE).expect("was valid when allocated");
        // SAFETY: `allocate` made a block of this layout at this address; it was in the registry,
        // so it has not been freed; it is out of the registry now, so it is not freed again.
        unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) };
        Ok(Removal::Clean)
    }

    /// Adds a range of the caller.
    ///
    /// # Errors
    ///
    /// As of rule 21: it overlaps another block, or shares a page with one for another purpose.
    pub(crate) fn register(
        &mut self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
        purpose: Purpose,
    ) -> DriverResult<()> {
        let start = ptr.as_ptr().addr();
        let end = start.saturating_add(bytes);
        let before = self.blocks.range_to(end as u64).next_back();
        if before.is_some_and(|(_, block)| block.end() > start) {
            return Err(CudaCode::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let pages = start / PAGE * PAGE..end.saturating_add(PAGE - 1) / PAGE * PAGE;
        let differs =
            |block: &Block| block.origin == Origin::Registered && block.purpose != purpose;
        let below = self.blocks.range_to(pages.end as u64).rev();
        let beside = below.take_while(|(_, block)| block.end() > pages.start);
        let is_refused = { beside }.any(|(_, block)| differs(block));
        if is_refused {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.insert(HostPtr(ptr.as_ptr()), bytes, device, Origin::Registered, None);
        self.blocks.get_mut(start as u64).expect("just inserted").purpose = purpose;
        Ok(())
    }

    pub(crate) fn unregister(&mut self, ptr: NonNull<u8>) -> Result<Removal, Refusal> {
        let (bytes, removal) = self.find(ptr, Origin::Registered)?.removal();
        self.no_longer_locked(bytes);
        self.blocks.remove(ptr.as_ptr().addr() as u64);
        Ok(removal)
    }

    /// Whether the range lies in one page-locked block that is not freed.
    pub(crate) fn is_page_locked(&self, ptr: HostPtr, bytes: usize) -> bool {
        self.containing(ptr, bytes).is_some_and(|block| block.origin != Origin::Quarantined)
    }

    /// Whether the address lies in memory that was registered for reading only.
    pub(crate) fn is_to_read(&self, address: usize) -> bool {
        let ptr = HostPtr(std::ptr::without_provenance_mut(address));
        self.containing(ptr, 1).is_some_and(|block| block.purpose == Purpose::ToRead)
    }

    pub(crate) fn cover(&self, ptr: HostPtr, bytes: usize) -> Cover {
        if self.is_page_locked(ptr, bytes) {
            return Cover::Whole;
        }
        let end = ptr.address().saturating_add(bytes) as u64;
        match self.blocks.range_to(end).next_back() {
            Some((_, block)) if block.end() > ptr.address() => Cover::Part,
            _ => Cover::None,
        }
    }

    /// The pointer to a range of page-locked memory, of which the caller has the address.
    pub(crate) fn locate(&self, address: u64, bytes: usize) -> Option<HostPtr> {
        let ptr = HostPtr(std::ptr::without_provenance_mut(address as usize));
        let block = self.containing(ptr, bytes)?;
        let locked = block.origin != Origin::Quarantined;
        locked.then(|| HostPtr(block.ptr.0.with_addr(ptr.address())))
    }

    /// Whether an operation that has not run yet uses some of the range that way.
    pub(crate) fn is_pending(&self, ptr: HostPtr, bytes: usize, access: Access) -> bool {
        let block = self.containing(ptr, bytes);
        let mut uses = block.map(|block| &block.uses).into_iter().chain([&self.pageable]);
        uses.any(|uses| uses.touch(ptr.address(), bytes, access))
    }

    /// Notes that `operation` will use the range.
    pub(crate) fn begin_use(&mut self, host: &HostUse, operation: u64) {
        if host.pageable {
            self.pageable.begin(host, operation);
        } else if let Some(block) = self.containing_mut(host.ptr, host.bytes) {
            block.uses.begin(host, operation);
        }
    }

    /// Notes that `operation` has run or never will. False if the memory is not page-locked any
    /// more: then it must not be touched.
    #[must_use]
    pub(crate) fn end_use(&mut self, host: &HostUse, operation: u64) -> bool {
        if host.pageable {
            return self.pageable.end(host, operation);
        }
        // A registration that went and came back does not know the operations of its predecessor.
        let block = self.containing_mut(host.ptr, host.bytes);
        block.is_some_and(|block| block.uses.end(host, operation))
    }

    /// The bytes of a range, to be read at once.
    ///
    /// # Safety
    ///
    /// * The range is page-locked, or pageable and valid; it is not written to while the slice is
    ///   used.
    pub(crate) unsafe fn bytes<'a>(&self, ptr: HostPtr, bytes: usize) -> &'a [u8] {
        // SAFETY: the memory is mapped and initialised, and not written to while the slice is used.
        unsafe { std::slice::from_raw_parts(self.storage_of(ptr), bytes) }
    }

    /// A copy of the bytes of a range. A wrong program may have freed the memory, so that the copy
    /// is allocated there: the copy then has other bytes, and nothing else is wrong.
    ///
    /// # Safety
    ///
    /// * The range is page-locked, or pageable and mapped.
    pub(crate) unsafe fn taken(&self, ptr: HostPtr, bytes: usize) -> Box<[u8]> {
        let mut taken = vec![0; bytes];
        // SAFETY: both ranges are mapped, and may overlap.
        unsafe { std::ptr::copy(self.storage_of(ptr), taken.as_mut_ptr(), bytes) };
        taken.into()
    }

    /// Overwrites a range with `source`.
    ///
    /// # Safety
    ///
    /// * The range of `source`'s length is page-locked, or pageable and valid; no other code
    ///   accesses it.
    pub(crate) unsafe fn write(&self, ptr: HostPtr, source: &[u8]) {
        let target = self.storage_of(ptr);
        // SAFETY: the memory is mapped; device memory, where `source` lies, is storage of
        // its own, so that the two cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
    }

    /// Overwrites a range with poison.
    ///
    /// # Safety
    ///
    /// * As for [`write`](Self::write).
    pub(crate) unsafe fn poison(&mut self, ptr: HostPtr, bytes: usize) {
        self.generation += 1;
        // SAFETY: the memory is mapped and initialised, and no other code accesses it.
        let range = unsafe { std::slice::from_raw_parts_mut(self.storage_of(ptr), bytes) };
        rng::fill_word(range, rng::poison(self.seed, self.generation));
    }

    /// Where the bytes of an address are: a watched block has a view of its own for the program.
    fn storage_of(&self, ptr: HostPtr) -> *mut u8 {
        if self.watcher.is_none() {
            return ptr.0;
        }
        let watched = self.containing(ptr, 1).and_then(|block| block.watched.as_ref());
        watched.map_or(ptr.0, |watched| watched.area().storage_of(ptr.address()))
    }

    /// The allocated blocks that some of these numbers are addresses in, each as a range that an
    /// operation names.
    pub(crate) fn named_by(&self, words: &[u64]) -> Box<[HostUse]> {
        let block = |&word: &u64| {
            let ptr = HostPtr(std::ptr::without_provenance_mut(word as usize));
            self.containing(ptr, 1).filter(|block| block.origin == Origin::Allocated)
        };
        let mut seen = HashSet::new();
        let blocks = words.iter().filter_map(block);
        let blocks = blocks.filter(|block| seen.insert(block.ptr.address()));
        let host = |block: &Block| HostUse::new(block.ptr, block.bytes, Access::Read);
        blocks.map(|block| HostUse { named: true, ..host(block) }).collect()
    }

    /// The blocks that these addresses lie in, each as a range that an operation names. An
    /// allocated block can be freed and be there still, and a registered one cannot.
    pub(crate) fn claimed_by(&self, addresses: impl Iterator<Item = usize>) -> Box<[HostUse]> {
        let block =
            |address| self.containing(HostPtr(std::ptr::without_provenance_mut(address)), 1);
        let mut seen = HashSet::new();
        let blocks = addresses.filter_map(block).filter(|block| seen.insert(block.ptr.address()));
        let claim = |block: &Block| HostUse {
            named: block.origin != Origin::Registered,
            ..HostUse::new(block.ptr, block.bytes, Access::Read)
        };
        blocks.map(claim).collect()
    }

    /// The block that an address lies in, which may be freed in flight.
    pub(crate) fn block_at(&self, address: usize) -> Option<Range<usize>> {
        let block = self.containing(HostPtr(std::ptr::without_provenance_mut(address)), 1)?;
        Some(block.ptr.address()..block.ptr.address() + block.bytes)
    }

    /// Whether the block that the address lies in was freed in flight.
    pub(crate) fn is_freed(&self, address: usize) -> bool {
        let ptr = HostPtr(std::ptr::without_provenance_mut(address));
        self.containing(ptr, 1).is_some_and(|block| block.origin == Origin::Quarantined)
    }

    fn insert(
        &mut self,
        ptr: HostPtr,
        bytes: usize,
        device: Ordinal,
        origin: Origin,
        watched: Option<Watched>,
    ) {
        // A quarantined block keeps its memory, so that no new block can lie where it does.
        let uses = Uses::default();
        let purpose = Purpose::Any;
        let block = Block { ptr, bytes, device, origin, purpose, made: None, uses, watched };
        self.blocks.insert(ptr.address() as u64, block);
        self.locked = (self.locked.0 + bytes, self.locked.1 + 1);
    }

    fn no_longer_locked(&mut self, bytes: usize) {
        self.locked = (self.locked.0 - bytes, self.locked.1 - 1);
    }

    fn find(&mut self, ptr: NonNull<u8>, origin: Origin) -> Result<&mut Block, Refusal> {
        let start = ptr.as_ptr().addr();
        let Some(block) = self.containing_mut(HostPtr(ptr.as_ptr()), 1) else {
            return Err(Refusal::Unknown);
        };
        if block.ptr.address() == start && block.origin == origin {
            Ok(block)
        } else {
            Err(Refusal::Mismatch)
        }
    }

    #[inline]
    fn containing(&self, ptr: HostPtr, bytes: usize) -> Option<&Block> {
        let (start, block) = self.blocks.below(ptr.address() as u64)?;
        let offset = ptr.address() - start as usize;
        (offset <= block.bytes && bytes <= block.bytes - offset).then_some(block)
    }

    #[inline]
    fn containing_mut(&mut self, ptr: HostPtr, bytes: usize) -> Option<&mut Block> {
        let (start, block) = self.blocks.below_mut(ptr.address() as u64)?;
        let offset = ptr.address() - start as usize;
        (offset <= block.bytes && bytes <= block.bytes - offset).then_some(block)
    }
}

#[cfg(test)]
mod tests;
