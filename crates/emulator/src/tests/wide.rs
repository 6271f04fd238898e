//! Loads and stores of the host that begin beside the bytes which an operation uses.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

use std::arch::x86_64::{_mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128};
use std::hint::black_box;

use super::*;

const PAGE: usize = 4096;

/// What the host does while a copy to the host may still write some bytes of page-locked memory.
fn beside_a_copy(at: usize, bytes: usize, access: impl FnOnce(*mut u8)) -> Vec<FindingKind> {
    let emulator = Emulator::builder().watch_host(true).devices(1).memory_bytes(1 << 24).build();
    let driver = emulator.driver();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let memory = driver.host_alloc(0, 2 * PAGE, HostFlags::default()).unwrap();
    // SAFETY: the stream and the memory are live, and the copy is within them.
    unsafe {
        let gpu = driver.device_alloc(stream, PAGE).unwrap();
        driver.copy_d2h(stream, memory.as_ptr().add(at), gpu, bytes).unwrap();
        access(memory.as_ptr());
        driver.stream_synchronize(stream).unwrap();
    }
    emulator.findings().iter().map(|finding| finding.kind).collect()
}

fn store_16(to: *mut u8) {
    // SAFETY: the tests name memory with room for it, and SSE2 is part of x86-64.
    unsafe { _mm_storeu_si128(black_box(to).cast(), _mm_setzero_si128()) }
}

#[test]
fn a_wide_store_uses_all_its_bytes() {
    assert_eq!(beside_a_copy(8, 8, store_16), [FindingKind::Race]);
    assert_eq!(beside_a_copy(16, 8, store_16), []);
}

#[test]
fn a_wide_load_uses_all_its_bytes() {
    let load_16 = |from: *mut u8| {
        // SAFETY: the memory has room for it, and SSE2 is part of x86-64.
        black_box(unsafe { _mm_loadu_si128(black_box(from).cast()) });
    };
    assert_eq!(beside_a_copy(15, 1, load_16), [FindingKind::Race]);
    assert_eq!(beside_a_copy(16, 1, load_16), []);
}

/// As the C library fills short ranges with AVX-512. Processors without it skip this.
#[test]
fn a_store_with_a_mask_uses_the_bytes_that_the_mask_names() {
    if !std::arch::is_x86_feature_detected!("avx512bw") {
        return;
    }
    let store_40 = |to: *mut u8| {
        // SAFETY: the memory has room for it, and the processor has these instructions.
        unsafe {
            std::arch::asm!(
                "kmovq k1, {mask}",
                "vmovdqu8 zmmword ptr [{to}]{{k1}}, zmm16",
                mask = in(reg) (1_u64 << 40) - 1,
                to = in(reg) black_box(to),
                out("k1") _,
                options(nostack),
            );
        }
    };
    assert_eq!(beside_a_copy(39, 1, store_40), [FindingKind::Race]);
    assert_eq!(beside_a_copy(40, 1, store_40), []);
}

#[test]
fn a_store_of_a_word_uses_eight_bytes() {
    // SAFETY: the memory has room for it, and is aligned.
    let store = |to: *mut u8| unsafe { black_box(to).cast::<u64>().write_volatile(7) };
    assert_eq!(beside_a_copy(7, 1, store), [FindingKind::Race]);
    assert_eq!(beside_a_copy(8, 1, store), []);
}

/// The fault is at the first byte of the second page, of which the store uses eight.
#[test]
fn a_store_that_begins_a_page_earlier_is_not_taken_for_a_longer_one() {
    let across = |to: *mut u8| store_16(to.wrapping_add(PAGE - 8));
    assert_eq!(beside_a_copy(PAGE + 8, 8, across), []);
    assert_eq!(beside_a_copy(PAGE, 8, across), [FindingKind::Race]);
}
