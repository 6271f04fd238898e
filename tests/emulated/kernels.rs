//! The kernels compute what `driver::reference` says, for every alignment and length, and touch
//! nothing else.
//!
//! Each case lays its ranges into blocks full of known bytes, runs one kernel, and compares whole
//! blocks with what the reference makes of them on the host: a byte outside the ranges that changed
//! is a failure like any other. The tests see only the seam, so they hold any driver to it.

use std::ptr::NonNull;
use std::sync::Arc;

use pinlane::driver::reference;
use pinlane::driver::{
    DevicePtr, Driver, HostFlags, Item, MAX_PATTERN, Poll, RawStream, StreamFlags,
};
use proptest::prelude::*;

use crate::common;

/// A range that keeps every thread of the largest grid busy for more than four rounds, which is as
/// many as the kernels take at once.
const LONG: usize = (17 << 20) + 13;

/// Around a range, so that a write past its ends lands in the block.
const MARGIN: usize = 64;

/// A device with a stream, and one page-locked block through which all data goes.
struct Lab {
    driver: Arc<dyn Driver>,
    stream: RawStream,
    staging: NonNull<u8>,
    capacity: usize,
}

impl Lab {
    /// For blocks of up to `capacity` bytes.
    fn new(capacity: usize) -> Self {
        let (driver, device) = common::driver();
        let stream = driver.stream_create(device, StreamFlags::default()).expect("a stream");
        let staging =
            driver.host_alloc(device, capacity, HostFlags::default()).expect("a pinned block");
        Lab { driver, stream, staging, capacity }
    }

    /// A new block of device memory that holds `bytes`.
    fn upload(&self, bytes: &[u8]) -> DevicePtr {
        assert!(bytes.len() <= self.capacity);
        // SAFETY: the stream is live and not capturing; the memory is used on this stream only.
        let block = unsafe { self.driver.device_alloc(self.stream, bytes.len().max(1)) }
            .expect("device memory");
        // SAFETY: `staging` has `capacity` bytes, and the device is done with it: every method ends
        // with a synchronize.
        unsafe { self.staging.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        // SAFETY: live stream; one page-locked block, left alone until the synchronize; one device
        // allocation that is at least as long.
        unsafe { self.driver.copy_h2d(self.stream, block, self.staging.as_ptr(), bytes.len()) }
            .expect("upload");
        self.synchronize();
        block
    }

    /// What a block holds; frees it.
    fn take(&self, block: DevicePtr, length: usize) -> Vec<u8> {
        assert!(length <= self.capacity);
        // SAFETY: as for the copy in `upload`, the other way.
        unsafe { self.driver.copy_d2h(self.stream, self.staging.as_ptr(), block, length) }
            .expect("download");
        // SAFETY: live stream; from `upload`; the copy is ordered before, and nothing comes after.
        unsafe { self.driver.device_free(self.stream, block) }.expect("free");
        self.synchronize();
        // SAFETY: `staging` has at least `length` initialised bytes, which nothing writes until the
        // next method is called.
        unsafe { NonNull::slice_from_raw_parts(self.staging, length).as_ref() }.to_vec()
    }

    /// A new page-locked block that holds `bytes`. The caller frees it.
    fn pin(&self, bytes: &[u8]) -> NonNull<u8> {
        let block = self
            .driver
            .host_alloc(self.stream.device, bytes.len().max(1), HostFlags::default())
            .expect("a pinned block");
        // SAFETY: the block is at least as long as `bytes`, and this function's own.
        unsafe { block.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        block
    }

    /// What a page-locked block holds, once all work is done; frees it.
    fn unpin(&self, block: NonNull<u8>, length: usize) -> Vec<u8> {
        self.synchronize();
        // SAFETY: from `pin`, with that many bytes; no work is pending; not used afterwards.
        unsafe {
            let bytes = NonNull::slice_from_raw_parts(block, length).as_ref().to_vec();
            self.driver.host_free(block).expect("free");
            bytes
        }
    }

    fn synchronize(&self) {
        // SAFETY: the stream is live.
        unsafe { self.driver.stream_synchronize(self.stream) }.expect("synchronize");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A failing test unwinds through here; what cannot be freed then is left to the process.
        // SAFETY: live stream; created and allocated in `new`, used no more; freed only if the
        // device is done.
        unsafe {
            if self.driver.stream_synchronize(self.stream).is_ok() {
                let _ = self.driver.host_free(self.staging);
            }
            let _ = self.driver.stream_destroy(self.stream);
        }
    }
}

/// Bytes without a period, different for each seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|i| ((i ^ seed << 32).wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95) >> 56) as u8)
        .collect()
}

/// Mostly short, with every length near the kernels' unit of 16 bytes; at times long enough for
/// many blocks of threads.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..=100,
        4 => 0usize..5000,
        1 => ((1usize << 20) - 20)..((1 << 20) + 20),
    ]
}

/// Where a range starts in its block.
fn start() -> impl Strategy<Value = usize> {
    (0usize..64).prop_map(|misalignment| MARGIN + misalignment)
}

/// Few cases by default; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 48;
    }
    config
}

/// Compares without printing megabytes.
fn same(found: &[u8], expected: &[u8]) -> Result<(), TestCaseError> {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    prop_assert_eq!(differs, None, "first byte that differs, of {}", expected.len());
    prop_assert_eq!(found.len(), expected.len());
    Ok(())
}

fn check_fill(start: usize, length: usize, pattern: &[u8]) -> Result<(), TestCaseError> {
    let mut expected = noise(1, start + length + MARGIN);
    let lab = Lab::new(expected.len());
    let block = lab.upload(&expected);
    // SAFETY: live stream; the range lies in the block, which stays allocated; 1 to MAX_PATTERN
    // bytes.
    unsafe { lab.driver.fill(lab.stream, block + start as u64, length, pattern) }.expect("fill");
    reference::fill(&mut expected[start..start + length], pattern);
    same(&lab.take(block, expected.len()), &expected)
}

fn check_checksum(seed: u64, start: usize, length: usize) -> Result<(), TestCaseError> {
    let bytes = noise(seed, start + length + MARGIN);
    let lab = Lab::new(bytes.len());
    let mut sums = noise(2, 24);
    let block = lab.upload(&bytes);
    let out = lab.upload(&sums);
    // SAFETY: live stream; both ranges lie in blocks of their own, which stay allocated; blocks are
    // aligned to 256, so `out + 8` is to 8.
    unsafe { lab.driver.checksum(lab.stream, block + start as u64, length, out + 8) }
        .expect("checksum");
    let expected = reference::checksum(&bytes[start..start + length]);
    sums[8..16].copy_from_slice(&expected.to_le_bytes());
    same(&lab.take(out, sums.len()), &sums)?;
    same(&lab.take(block, bytes.len()), &bytes)
}

/// A part of a scatter: the gaps before it in the packed block and in the other one, and its
/// length.
type Part = (usize, usize, usize);

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let gap = || prop_oneof![Just(0usize), 0usize..40];
    let part = (gap(), gap(), prop_oneof![6 => 0usize..80, 3 => 0usize..600, 1 => 0usize..9000]);
    prop::collection::vec(part, 0..60)
}

/// Lays the parts out one after the other in both blocks; gives the items, their addresses counted
/// from the start of their block, and the blocks' lengths.
fn lay_out(parts: &[Part], reverse: bool) -> (Vec<Item>, usize, usize) {
    let (mut packed, mut apart) = (MARGIN, MARGIN);
    let mut items = Vec::new();
    for &(before_packed, before_apart, bytes) in parts {
        packed += before_packed;
        apart += before_apart;
        items.push(Item {
            offset: (packed - MARGIN) as u64,
            address: apart as u64,
            bytes: bytes as u64,
        });
        packed += bytes;
        apart += bytes;
    }
    // The order of the items is not the order of their ranges.
    if reverse {
        items.reverse();
    }
    (items, packed + MARGIN, apart + MARGIN)
}

fn range(start: u64, bytes: u64) -> std::ops::Range<usize> {
    start as usize..(start + bytes) as usize
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Scatter,
    Gather,
}

fn check_copy(direction: Direction, parts: &[Part], reverse: bool) -> Result<(), TestCaseError> {
    let (mut items, packed_length, apart_length) = lay_out(parts, reverse);
    let list_length = items.len() * size_of::<Item>();
    let lab = Lab::new(packed_length.max(apart_length).max(list_length));
    let mut packed = noise(3, packed_length);
    let mut apart = noise(4, apart_length);
    let packed_block = lab.upload(&packed);
    let apart_block = lab.upload(&apart);

    for item in &items {
        let inside = range(MARGIN as u64 + item.offset, item.bytes);
        let outside = range(item.address, item.bytes);
        match direction {
            Direction::Scatter => apart[outside].copy_from_slice(&packed[inside]),
            Direction::Gather => packed[inside].copy_from_slice(&apart[outside]),
        }
    }
    for item in &mut items {
        item.address += apart_block;
    }
    let list = bytes_of(&items);
    let list_block = lab.upload(&list);

    let start = packed_block + MARGIN as u64;
    // SAFETY: live stream; the list has that many items, aligned as blocks are; every part lies in
    // its block, which stays allocated, and `lay_out` lets no two of them overlap.
    unsafe {
        match direction {
            Direction::Scatter => {
                lab.driver.scatter(lab.stream, start, list_block, items.len()).expect("scatter");
            }
            Direction::Gather => {
                lab.driver.gather(lab.stream, start, list_block, items.len()).expect("gather");
            }
        }
    }
    same(&lab.take(list_block, list.len()), &list)?;
    same(&lab.take(packed_block, packed.len()), &packed)?;
    same(&lab.take(apart_block, apart.len()), &apart)
}

fn bytes_of(items: &[Item]) -> Vec<u8> {
    let words = items.iter().flat_map(|item| [item.offset, item.address, item.bytes]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Where the items of a pull lie.
#[derive(Clone, Copy, Debug)]
enum Items {
    OnHost,
    OnDevice,
}

/// Pulls the parts, every third from device memory and the others from page-locked memory.
fn check_pull(parts: &[Part], reverse: bool, place: Items) -> Result<(), TestCaseError> {
    let (mut items, packed_length, apart_length) = lay_out(parts, reverse);
    let list_length = items.len() * size_of::<Item>();
    let lab = Lab::new(packed_length.max(apart_length).max(list_length));
    let packed = noise(3, packed_length);
    let mut apart = noise(4, apart_length);
    let (near, far) = (lab.upload(&packed), lab.pin(&packed));
    let apart_block = lab.upload(&apart);

    for (index, item) in items.iter_mut().enumerate() {
        let inside = range(MARGIN as u64 + item.offset, item.bytes);
        apart[range(item.address, item.bytes)].copy_from_slice(&packed[inside]);
        let start = if index % 3 == 0 { near } else { far.as_ptr().addr() as u64 };
        item.offset += start + MARGIN as u64;
        item.address += apart_block;
    }
    let list = bytes_of(&items);
    let pinned_list = lab.pin(&list);
    let list_block = lab.upload(&list);
    let address = match place {
        Items::OnHost => pinned_list.as_ptr().addr() as u64,
        Items::OnDevice => list_block,
    };
    // SAFETY: live stream; the list has that many items, aligned as blocks are, and is complete;
    // every part lies in its block, which stays allocated, and `lay_out` lets no two of them
    // overlap.
    unsafe { lab.driver.pull(lab.stream, address, items.len()) }.expect("pull");
    same(&lab.take(apart_block, apart.len()), &apart)?;
    same(&lab.take(near, packed.len()), &packed)?;
    same(&lab.take(list_block, list.len()), &list)?;
    same(&lab.unpin(far, packed.len()), &packed)?;
    same(&lab.unpin(pinned_list, list.len()), &list)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn fill_repeats_its_pattern_and_nothing_else_changes(
        start in start(),
        length in length(),
        pattern in prop::collection::vec(any::<u8>(), 1..=MAX_PATTERN),
    ) {
        check_fill(start, length, &pattern)?;
    }

    #[test]
    fn checksum_is_that_of_the_host(seed: u32, start in start(), length in length()) {
        check_checksum(seed.into(), start, length)?;
    }

    #[test]
    fn scatter_copies_each_part_and_nothing_else_changes(parts in parts(), reverse: bool) {
        check_copy(Direction::Scatter, &parts, reverse)?;
    }

    #[test]
    fn gather_copies_each_part_and_nothing_else_changes(parts in parts(), reverse: bool) {
        check_copy(Direction::Gather, &parts, reverse)?;
    }

    #[test]
    fn pull_copies_each_part_and_nothing_else_changes(
        parts in parts(),
        reverse: bool,
        place in prop_oneof![Just(Items::OnHost), Just(Items::OnDevice)],
    ) {
        check_pull(&parts, reverse, place)?;
    }
}

/// Source and destination at every distance from each other, in parts with whole vectors inside.
#[test]
fn copies_cope_with_every_relative_alignment() {
    let parts: Vec<Part> =
        (0..16).flat_map(|a| (0..16).map(move |b| (a, b, 100 + (a * 7 + b * 3) % 48))).collect();
    check_copy(Direction::Scatter, &parts, false).unwrap();
    check_copy(Direction::Gather, &parts, true).unwrap();
    check_pull(&parts, false, Items::OnHost).unwrap();
}

/// Thousands of short parts, and long ones among them that have to be shared by many blocks.
#[test]
fn copies_cope_with_long_parts_among_many_short_ones() {
    let mut parts: Vec<Part> = (0..20_000).map(|i| (i % 3, i % 5, i % 17)).collect();
    parts[4_000].2 = (1 << 20) + 13;
    parts[4_001].2 = 300_001;
    parts[19_999].2 = 70_000;
    check_copy(Direction::Scatter, &parts, false).unwrap();
    check_copy(Direction::Gather, &parts, true).unwrap();
    check_pull(&parts, false, Items::OnHost).unwrap();
    check_pull(&parts, true, Items::OnDevice).unwrap();
}

/// A pull shares few parts among its warps, and many between them: on both sides of every change.
#[test]
fn pulls_cope_with_every_number_of_parts() {
    for count in [1, 2, 3, 127, 128, 129, 255, 256, 257, 511, 513, 8191, 8192, 8193] {
        let part = |i: usize| (i % 7, i % 16, if i % 97 == 3 { 9001 } else { i * 31 % 600 });
        let parts: Vec<Part> = (0..count).map(part).collect();
        check_pull(&parts, count % 2 == 0, Items::OnHost).unwrap();
    }
    check_pull(&[(0, 3, LONG)], false, Items::OnHost).unwrap();
    check_pull(&[], false, Items::OnHost).unwrap();
}

#[test]
fn fill_keeps_its_phase_over_long_ranges() {
    for pattern in [1, 7, 16, 48] {
        check_fill(MARGIN + 5, LONG, &noise(5, pattern)).unwrap();
    }
}

#[test]
fn checksum_of_long_ranges_is_that_of_the_host() {
    for misalignment in [0, 3, 8] {
        check_checksum(6, MARGIN + misalignment, LONG).unwrap();
    }
}

/// The busy kernel delays its stream, ends by itself and writes nothing.
#[test]
fn busy_ends() {
    let bytes = noise(7, 1000);
    let lab = Lab::new(bytes.len());
    let block = lab.upload(&bytes);
    // SAFETY: the stream is live.
    unsafe { lab.driver.busy(lab.stream, 2_000_000) }.expect("busy");
    lab.synchronize();
    // SAFETY: the stream is live.
    assert_eq!(unsafe { lab.driver.stream_query(lab.stream) }, Ok(Poll::Done));
    assert_eq!(lab.take(block, bytes.len()), bytes);
}
