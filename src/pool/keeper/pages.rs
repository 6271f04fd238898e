//! Anonymous memory from the system, for `cudaHostRegister` to page-lock.
//!
//! `cudaHostAlloc` finds, zeroes and locks page after page with one thread. Memory that is already
//! populated, in huge pages, is locked several times faster, and several threads can populate it.
//!
//! # Invariants
//!
//! * Pages read as zeros once they are [populated](Pages::populate), which is before they are
//!   page-locked.
//! * Advice on the placement of the pages comes before the first touch, when the kernel decides.
//! * Huge pages and the NUMA node are preferences: if the system refuses one, it still gives
//!   memory, and [`Fallbacks`] notes it.
//! * A forked child does not have the memory, nor what `cudaHostAlloc` gives a pool.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinlane_base::system as libc;

use crate::pool::books::stats::Fallbacks;
use crate::process::thread::with_helpers;
use crate::sync::spin;

/// The smallest page of any system; larger ones are whole numbers of it.
const PAGE: usize = 4096;

/// A huge page of x86-64, and of 64-bit Arm with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

/// What a thread populates at a time: whole huge pages, so that no two threads share one.
pub(crate) const SLICE: usize = 2 * HUGE_PAGE;

/// How much memory makes one more thread worth its start: zeroing a slice takes about a
/// millisecond, starting a thread a twentieth of that.
const BYTES_PER_THREAD: usize = SLICE;

/// Populated memory of this process; unmapped when dropped.
///
/// If it is page-locked, it must be unlocked before it drops: CUDA would keep the pages of an
/// unmapped range.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The whole mapping: `bytes`, and the margins for alignment.
    mapping: NonNull<u8>,
    mapped: usize,
    ptr: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process and to no thread; `munmap` may be called on any.
unsafe impl Send for Pages {}
// SAFETY: `&Pages` gives an address and a length, and accesses no memory.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `bytes`, a multiple of 4 KiB, aligned to `align`, a power of two; from 2 MiB on also to
    /// 2 MiB. The pages will lie on `numa_node` as far as it has room. Fails if the system maps no
    /// more. The result says which preferences it refused.
    pub(crate) fn map(
        bytes: usize,
        align: usize,
        numa_node: Option<u32>,
    ) -> io::Result<(Pages, Fallbacks)> {
        debug_assert!(bytes.is_multiple_of(PAGE), "{bytes} bytes are no whole pages");
        let huge = bytes >= HUGE_PAGE;
        let pages = Self::reserve(bytes, align.max(if huge { HUGE_PAGE } else { PAGE }))?;
        keep_from_children(pages.ptr, pages.bytes)?;
        let fallbacks = Fallbacks {
            small_pages: huge && !pages.prefer_huge_pages(),
            other_node: numa_node.is_some_and(|node| !pages.prefer_node(node)),
            ..Fallbacks::default()
        };
        Ok((pages, fallbacks))
    }

    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn reserve(bytes: usize, alignment: usize) -> io::Result<Pages> {
        // The system aligns to a page. The margins around the block are never touched.
        let mapped = bytes.checked_add(alignment - PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice replaces none.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let offset = mapping.addr().get().next_multiple_of(alignment) - mapping.addr().get();
        // SAFETY: the mapping is aligned to a page, so that `offset` is at most `alignment - PAGE`,
        // and the block lies in the mapping.
        let ptr = unsafe { mapping.add(offset) };
        Ok(Pages { mapping, mapped, ptr, bytes })
    }

    fn prefer_huge_pages(&self) -> bool {
        // If huge pages are switched off, the call succeeds and does nothing.
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let off = setting.is_ok_and(|setting| setting.contains("[never]"));
        // SAFETY: the range is our mapping; the advice changes no contents.
        let advised =
            unsafe { libc::madvise(self.ptr.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
        advised == 0 && !off
    }

    #[cfg(not(target_os = "linux"))]
    fn prefer_node(&self, _: u32) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    fn prefer_node(&self, node: u32) -> bool {
        const BITS: usize = libc::c_ulong::BITS as usize;
        let mut nodes = [0 as libc::c_ulong; 1024 / BITS];
        let node = node as usize;
        let Some(word) = nodes.get_mut(node / BITS) else { return false };
        *word |= 1 << (node % BITS);
        // The kernel subtracts one from the number of bits before it reads them.
        let bits = nodes.len() * BITS + 1;
        // SAFETY: the range is our mapping, and `nodes` is live for the call to read 1024 bits of;
        // a policy changes no contents.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.ptr.as_ptr(),
                self.bytes,
                libc::MPOL_PREFERRED as libc::c_ulong,
                nodes.as_ptr(),
                bits as libc::c_ulong,
                0 as libc::c_ulong,
            )
        };
        answer == 0
    }

    /// Populates the memory with up to `threads` threads, including this one. Calls `ready` here
    /// for one part of `part` bytes after the other, while the threads continue with the next.
    /// Blocks while the kernel zeroes the memory. A system that promises more than it has kills the
    /// process (`vm.overcommit_memory`). Stops at the first error.
    pub(crate) fn populate<E>(
        &self,
        threads: usize,
        part: usize,
        mut ready: impl FnMut(Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let part = part.min(self.bytes).next_multiple_of(SLICE);
        let parts = (0..self.bytes).step_by(part).map(|start| start..self.bytes.min(start + part));
        // Each thread takes the next slice, so threads that did not start are not needed.
        let next = AtomicUsize::new(0);
        let populated: Vec<AtomicUsize> = parts.clone().map(|_| AtomicUsize::new(0)).collect();
        let work_on_one = || {
            let start = next.fetch_add(SLICE, Ordering::Relaxed);
            let bytes = SLICE.min(self.bytes.saturating_sub(start));
            if bytes == 0 {
                return false;
            }
            self.touch(start, bytes);
            populated[start / part].fetch_add(bytes, Ordering::Release);
            true
        };
        let helpers = threads.min(self.bytes / BYTES_PER_THREAD).saturating_sub(1);
        with_helpers("pinlane-grow", helpers, &|| while work_on_one() {}, || {
            let result = parts.zip(&populated).try_for_each(|(range, populated)| {
                let mut spins = 0;
                while populated.load(Ordering::Acquire) < range.len() {
                    if !work_on_one() {
                        spin(&mut spins);
                    }
                }
                ready(range)
            });
            // After an error the helpers stop.
            next.store(self.bytes, Ordering::Relaxed);
            result
        })
    }

    /// Writes to each page of a slice. The memory has no other user yet, and slices do not overlap.
    fn touch(&self, start: usize, bytes: usize) {
        debug_assert!(start + bytes <= self.bytes);
        for offset in (start..start + bytes).step_by(PAGE) {
            // SAFETY: the byte lies in the mapping, which is writable, and no other code accesses
            // it. Volatile, because a compiler may drop a write of the zero that is already there.
            unsafe { self.ptr.add(offset).write_volatile(0) };
        }
    }
}

/// Keeps the memory, whole pages of the caller, from forked children. Otherwise the kernel would
/// copy every registered page inside `fork`, and older kernels could move the parent to a page that
/// the device does not read. Memory that the CUDA runtime allocates would be shared with the child,
/// which could change the parent's bytes.
pub(crate) fn keep_from_children(ptr: NonNull<u8>, bytes: usize) -> io::Result<()> {
    advise(ptr, bytes, libc::MADV_DONTFORK)
}

/// Undoes [`keep_from_children`], before the pages are reused.
pub(crate) fn leave_to_children(ptr: NonNull<u8>, bytes: usize) -> io::Result<()> {
    advise(ptr, bytes, libc::MADV_DOFORK)
}

fn advise(ptr: NonNull<u8>, bytes: usize, advice: i32) -> io::Result<()> {
    // SAFETY: these advices change no contents, and no mapping of this process.
    let advised = unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, advice) };
    if advised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: only this object owns the mapping, and its owner guarantees that addresses from
        // `ptr` are no longer used. A failure leaks the memory.
        let _ = unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(bytes: usize, node: Option<u32>, threads: usize) -> (Pages, Fallbacks) {
        let (pages, fallbacks) = Pages::map(bytes, 1, node).unwrap();
        pages.populate(threads, bytes, |_| Ok::<_, ()>(())).unwrap();
        (pages, fallbacks)
    }

    fn contents(pages: &Pages) -> &[u8] {
        // SAFETY: the pages are mapped, initialised, and owned by this test, which does not write
        // to them.
        unsafe { std::slice::from_raw_parts(pages.ptr().as_ptr(), pages.bytes) }
    }

    /// How many pages are in memory.
    fn resident(pages: &Pages) -> usize {
        // SAFETY: takes and returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mut there = vec![0u8; pages.bytes.div_ceil(page)];
        let ptr = pages.ptr().as_ptr().cast();
        // SAFETY: the range is mapped, and `there` has a byte for each of its pages.
        let answer = unsafe { libc::mincore(ptr, pages.bytes, there.as_mut_ptr()) };
        assert_eq!(answer, 0);
        there.iter().filter(|&&byte| byte & 1 != 0).count() * page
    }

    #[test]
    fn pages_are_aligned_populated_and_zero_whatever_the_threads() {
        let sizes = [PAGE, 3 * PAGE, HUGE_PAGE, HUGE_PAGE + PAGE, 3 * BYTES_PER_THREAD + PAGE];
        for bytes in sizes {
            for threads in [0, 1, 2, 3, 16] {
                let (pages, fallbacks) = map(bytes, None, threads);
                assert_eq!(pages.bytes, bytes);
                let alignment = if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
                assert_eq!(pages.ptr().addr().get() % alignment, 0, "{bytes} bytes");
                assert!(resident(&pages) >= bytes, "{bytes} bytes by {threads} threads");
                assert!(contents(&pages).iter().all(|&byte| byte == 0));
                assert!(!fallbacks.other_node, "none was wished for");
                assert!(bytes >= HUGE_PAGE || !fallbacks.small_pages, "none were wished for");
            }
        }
    }

    #[test]
    fn parts_are_ready_one_after_the_other_and_populated() {
        let bytes = 3 * BYTES_PER_THREAD + PAGE;
        for (part, threads) in [(1, 1), (SLICE, 3), (SLICE + 1, 2), (16 << 20, 4), (bytes, 2)] {
            let (pages, _) = Pages::map(bytes, 1, None).unwrap();
            let mut end = 0;
            let done = pages.populate(threads, part, |range| {
                assert_eq!(range.start, end);
                end = range.end;
                assert!(resident(&pages) >= end);
                Ok::<_, ()>(())
            });
            assert_eq!((done, end), (Ok(()), bytes));
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let (pages, _) = Pages::map(8 * SLICE, 1, None).unwrap();
        let mut calls = 0;
        let done = pages.populate(2, SLICE, |range| {
            calls += 1;
            if range.start < 2 * SLICE { Ok(()) } else { Err("enough") }
        });
        assert_eq!((done, calls), (Err("enough"), 3));
    }

    #[test]
    fn pages_are_memory_that_can_be_written() {
        let (pages, _) = map(HUGE_PAGE + PAGE, None, 1);
        // SAFETY: the pages are owned by this test.
        unsafe { pages.ptr().as_ptr().write_bytes(7, pages.bytes) };
        assert!(contents(&pages).iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused_and_the_memory_comes_all_the_same() {
        for node in [1023, 1024, u32::MAX] {
            let (pages, fallbacks) = map(PAGE, Some(node), 1);
            assert!(fallbacks.other_node, "node {node}");
            assert_eq!(contents(&pages), [0; PAGE]);
        }
    }

    #[test]
    fn what_no_address_space_holds_is_an_error() {
        for bytes in [1 << 62, usize::MAX - PAGE + 1] {
            let error = Pages::map(bytes, 1, None).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn dropped_pages_are_unmapped_and_leaked_ones_are_not() {
        // SAFETY: takes an address and changes nothing there.
        let mapped = |ptr: NonNull<u8>| unsafe {
            libc::msync(ptr.as_ptr().cast(), PAGE, libc::MS_ASYNC) == 0
        };
        let (leaked, _) = map(PAGE, None, 1);
        let ptr = leaked.ptr();
        std::mem::forget(leaked);
        // Another test may map something at the same address at once, but not every time.
        let unmapped = (0..100).any(|_| {
            let (dropped, _) = map(PAGE, None, 1);
            let ptr = dropped.ptr();
            assert!(mapped(ptr));
            drop(dropped);
            !mapped(ptr)
        });
        assert!(unmapped);
        assert!(mapped(ptr));
    }
}
