//! Copies host memory. All bytes that the CPU moves are moved here.
//!
//! There are two ways, which treat the destination's cache lines differently:
//!
//! * [`Stores::Cached`]: the written lines stay in the cache. The C library's `memcpy`, which
//!   chooses its kernel at run time.
//! * [`Stores::Streaming`]: the written lines bypass the cache: they are not read in first, and
//!   they displace nothing. For a large destination that no core reads soon. Non-temporal stores of
//!   the widest vectors of the machine.
//!
//! Streaming stores are weakly ordered: a [`fence`] follows a thread's last copy, so that a thread
//! that synchronises by an ordinary release and acquire sees the bytes. It does not follow every
//! copy, because waiting for a short copy takes longer than the copy.

use std::ptr;

/// What happens to the cache lines of the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stores {
    #[default]
    Cached,
    Streaming,
}

/// Below this many bytes streaming gains nothing: too many lines are written in part.
const STREAM_FROM: usize = 1 << 10;
/// Only this many bytes are prefetched; the hardware prefetcher fetches the rest.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: usize = 512;

/// Ends this thread's copies: orders their stores before all later stores of this thread.
#[inline]
pub(crate) fn fence() {
    // On other architectures no store is streaming.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches the first lines of `bytes` bytes, which are about to be copied. Any address will do.
#[inline]
pub(crate) fn prefetch(src: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes.min(PREFETCHED)).step_by(x86::LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has SSE, and a prefetch does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (src, bytes);
}

/// As [`prefetch`], of bytes that are about to be written: the core gets the lines for itself at
/// once, and need not ask other cores for them again. Streaming stores need no lines.
#[inline]
pub(crate) fn prefetch_to_write(dst: *const u8, bytes: usize, stores: Stores) {
    if streams(bytes, stores) {
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..bytes.min(PREFETCHED)).step_by(x86::LINE) {
        // SAFETY: the instruction reads and writes nothing and does not fault. A machine that does
        // not have it ignores it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) dst.wrapping_add(line),
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (dst, bytes);
}

/// Copies `bytes` bytes. If the stores are streaming, a [`fence`] must precede any signal that the
/// bytes are there.
///
/// # Safety
///
/// * `src .. src + bytes` is readable, and `dst .. dst + bytes` writable.
/// * They do not overlap. During the call no other code writes to either, or reads the destination.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize, stores: Stores) {
    if streams(bytes, stores) {
        // SAFETY: readable, writable and disjoint, by the caller's preconditions.
        unsafe { stream(dst, src, bytes) };
    } else {
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(src, dst, bytes) };
    }
}

/// Whether a copy of that many bytes streams.
#[inline]
fn streams(bytes: usize, stores: Stores) -> bool {
    stores == Stores::Streaming && bytes >= STREAM_FROM
}

/// # Safety
///
/// * As for [`copy`].
#[cfg(target_arch = "x86_64")]
unsafe fn stream(dst: *mut u8, src: *const u8, bytes: usize) {
    use x86::LINE;

    // The head before the first whole line and the tail after the last one take ordinary stores.
    let head = dst.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: head, lines and tail are disjoint parts of the two ranges; `dst + head` is aligned to
    // a line; each kernel is called only where the machine has its instructions.
    unsafe {
        ptr::copy_nonoverlapping(src, dst, head);
        match x86::widest() {
            x86::Width::Avx512 => x86::lines_512(dst.add(head), src.add(head), lines),
            x86::Width::Avx => x86::lines_256(dst.add(head), src.add(head), lines),
            x86::Width::Sse2 => x86::lines_128(dst.add(head), src.add(head), lines),
        }
        ptr::copy_nonoverlapping(src.add(tail), dst.add(tail), bytes - tail);
    }
}

/// # Safety
///
/// * As for [`copy`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's precondition.
    unsafe { ptr::copy_nonoverlapping(src, dst, bytes) };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_stream_si128, _mm256_loadu_si256,
        _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512,
    };

    /// A cache line, in bytes.
    pub(super) const LINE: usize = 64;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Width {
        Avx512,
        Avx,
        Sse2,
    }

    /// The widest vectors of this machine; the standard library caches the answer.
    pub(super) fn widest() -> Width {
        if is_x86_feature_detected!("avx512f") {
            Width::Avx512
        } else if is_x86_feature_detected!("avx") {
            Width::Avx
        } else {
            Width::Sse2
        }
    }

    /// A kernel that copies whole lines with non-temporal stores.
    macro_rules! lines {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $stream:ident) => {
            /// # Safety
            ///
            /// * The machine has the feature.
            /// * `src` is readable and `dst` writable for `lines` lines; they do not overlap.
            /// * `dst` is aligned to a line.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(dst: *mut u8, src: *const u8, lines: usize) {
                const VECTORS: usize = LINE / size_of::<$vector>();
                let (mut to, mut from) = (dst.cast::<$vector>(), src.cast::<$vector>());
                for _ in 0..lines {
                    for _ in 0..VECTORS {
                        // SAFETY: inside the lines; `to` is aligned to a line and so to a vector.
                        unsafe {
                            $stream(to, $load(from));
                            to = to.add(1);
                            from = from.add(1);
                        }
                    }
                }
            }
        };
    }

    lines!(lines_512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512);
    lines!(lines_256, "avx", __m256i, _mm256_loadu_si256, _mm256_stream_si256);
    lines!(lines_128, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: usize = 128;

    fn sample(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8 | 1).collect()
    }

    type Kernel = unsafe fn(*mut u8, *const u8, usize);

    fn cached(dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: `check` passes two ranges of two vectors.
        unsafe { copy(dst, src, bytes, Stores::Cached) };
    }

    fn streaming(dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: as above.
        unsafe { copy(dst, src, bytes, Stores::Streaming) };
    }

    /// Every alignment of both sides to a line, and lengths around the widths and thresholds.
    fn check(kernel: Kernel, lengths: &[usize]) {
        let longest = lengths.iter().max().expect("some") + 2 * GUARD;
        let source = sample(longest);
        let mut target = vec![0; longest];
        for &bytes in lengths {
            for to in 0..64 {
                let from = (to * 7 + bytes) % 64;
                let range = GUARD + to..GUARD + to + bytes;
                let part = &source[from..from + bytes];
                // SAFETY: both ranges lie in their vectors.
                unsafe { kernel(target[range.clone()].as_mut_ptr(), part.as_ptr(), bytes) };
                fence();
                assert_eq!(&target[range.clone()], part, "{bytes} bytes from {from} to {to}");
                target[range].fill(0);
                assert!(target.iter().all(|&byte| byte == 0), "{bytes} bytes: wrote outside");
            }
        }
    }

    #[test]
    fn every_way_copies_every_alignment_and_nothing_else() {
        let lengths = [0, 1, 63, 64, 65, 1000, 4095, 4096, 4097, 4223, 8191];
        check(cached, &lengths);
        check(streaming, &lengths);
        check(stream, &lengths);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_width_that_this_machine_has_copies_whole_lines() {
        use x86::LINE;

        let source = sample(10 * LINE + 64);
        let mut kernels: Vec<(&str, Kernel)> = vec![("sse2", x86::lines_128)];
        if is_x86_feature_detected!("avx") {
            kernels.push(("avx", x86::lines_256));
        }
        if is_x86_feature_detected!("avx512f") {
            kernels.push(("avx512f", x86::lines_512));
        }
        for (name, kernel) in kernels {
            for from in 0..64 {
                let mut target = vec![0u8; 12 * LINE];
                let start = target.as_ptr().align_offset(LINE);
                // SAFETY: both have ten lines, the target is aligned to a line, and the machine has
                // the feature.
                unsafe { kernel(target[start..].as_mut_ptr(), source[from..].as_ptr(), 10) };
                assert_eq!(target[start..][..10 * LINE], source[from..][..10 * LINE], "{name}");
            }
        }
    }
}
