//! The kernels compute the same as `driver::reference`, for every alignment and length, and touch
//! nothing else.
//!
//! Each case places its ranges in blocks full of known bytes, runs one kernel, and compares the
//! whole blocks with the reference's result on the host. So a changed byte outside the ranges is a
//! failure too. The tests use only the trait `Driver`, so they apply to any driver.

use std::ptr::NonNull;
use std::sync::Arc;

use pinlane::driver::reference;
use pinlane::driver::{
    CopyKind, DevicePtr, Driver, HostFlags, Item, MAX_PATTERN, Poll, RawStream, StreamFlags,
};
use proptest::prelude::*;

use crate::common;

/// A range that keeps every thread of the largest grid busy for more than four rounds, which is as
/// many as the kernels take at once.
const LONG: usize = (17 << 20) + 13;

/// The bytes around a range, so that a write past its ends lands in the block.
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

    /// Returns the contents of a block, and frees it.
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

    /// Returns the contents of a page-locked block once all work is done, and frees it.
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
        // A failing test unwinds through here. Memory that cannot be freed then is left to the
        // process.
        // SAFETY: live stream; created and allocated in `new`, not used afterwards; freed only if
        // the device is done.
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

/// Mostly short lengths, with each length near the kernels' unit of 16 bytes; sometimes lengths for
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

/// An item of a move: the gaps before it in the sources' block and in the destinations' block, and
/// its length.
type Part = (usize, usize, usize);

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let gap = || prop_oneof![Just(0usize), 0usize..40];
    let part = (gap(), gap(), prop_oneof![6 => 0usize..80, 3 => 0usize..600, 1 => 0usize..9000]);
    prop::collection::vec(part, 0..60)
}

/// For each length, an item at every alignment of its source and of its destination.
fn at_every_alignment(alignments: usize, lengths: impl Iterator<Item = usize>) -> Vec<Part> {
    const UNIT: usize = 32;
    let (mut parts, mut src, mut dst) = (Vec::new(), 0, 0);
    for bytes in lengths {
        for (a, b) in (0..alignments).flat_map(|a| (0..alignments).map(move |b| (a, b))) {
            let gap = |at: usize, alignment: usize| (UNIT + alignment - at % UNIT) % UNIT;
            let part = (gap(src, a), gap(dst, b), bytes);
            src += part.0 + bytes;
            dst += part.1 + bytes;
            parts.push(part);
        }
    }
    parts
}

/// Places the parts one after the other in both blocks. Returns the items, whose addresses are
/// offsets in the blocks, and the blocks' lengths.
fn lay_out(parts: &[Part], reverse: bool) -> (Vec<Item>, usize, usize) {
    let (mut src, mut dst) = (MARGIN, MARGIN);
    let mut items = Vec::new();
    for &(before_src, before_dst, bytes) in parts {
        src += before_src;
        dst += before_dst;
        items.push(Item { src: src as u64, dst: dst as u64, bytes: bytes as u64 });
        src += bytes;
        dst += bytes;
    }
    // The items come in another order than their ranges.
    if reverse {
        items.reverse();
    }
    (items, src + MARGIN, dst + MARGIN)
}

const MOVERS: [CopyKind; 3] = [CopyKind::H2D, CopyKind::D2H, CopyKind::D2D];

/// Where the items of a move lie.
#[derive(Clone, Copy, Debug)]
enum Place {
    OnHost,
    OnDevice,
}

/// A block of host or device memory.
#[derive(Clone, Copy)]
enum Block {
    Host(NonNull<u8>),
    Device(DevicePtr),
}

impl Block {
    fn new(lab: &Lab, place: Place, bytes: &[u8]) -> Block {
        match place {
            Place::OnHost => Block::Host(lab.pin(bytes)),
            Place::OnDevice => Block::Device(lab.upload(bytes)),
        }
    }

    fn address(self) -> u64 {
        match self {
            Block::Host(block) => block.as_ptr().addr() as u64,
            Block::Device(block) => block,
        }
    }

    /// Returns the contents of the block, and frees it.
    fn take(self, lab: &Lab, length: usize) -> Vec<u8> {
        match self {
            Block::Host(block) => lab.unpin(block, length),
            Block::Device(block) => lab.take(block, length),
        }
    }
}

/// One launch. `hint` is the number of bytes that it gets, if not the true one.
#[derive(Clone, Copy, Debug)]
struct Launch {
    kind: CopyKind,
    reverse: bool,
    list: Place,
    hint: Option<usize>,
}

fn check_move(parts: &[Part], launch: Launch) -> Result<(), TestCaseError> {
    let Launch { kind, reverse, list, hint } = launch;
    let (mut items, src_length, dst_length) = lay_out(parts, reverse);
    let lab = Lab::new(src_length.max(dst_length).max(items.len() * size_of::<Item>()));
    let src = noise(3, src_length);
    let mut dst = noise(4, dst_length);
    let (from, to) = match kind {
        CopyKind::H2D => (Place::OnHost, Place::OnDevice),
        CopyKind::D2H => (Place::OnDevice, Place::OnHost),
        CopyKind::D2D => (Place::OnDevice, Place::OnDevice),
    };
    let (src_block, dst_block) = (Block::new(&lab, from, &src), Block::new(&lab, to, &dst));
    for item in &mut items {
        let (from, to, bytes) = (item.src as usize, item.dst as usize, item.bytes as usize);
        dst[to..to + bytes].copy_from_slice(&src[from..from + bytes]);
        item.src += src_block.address();
        item.dst += dst_block.address();
    }
    let contents: &[u8] = bytemuck::cast_slice(&items);
    let list = Block::new(&lab, list, contents);
    let bytes = hint.unwrap_or_else(|| parts.iter().map(|part| part.2).sum());
    // SAFETY: live stream; the list has that many items, is aligned like a block, and is complete;
    // each item's ranges lie in blocks of the kinds that `kind` says, which stay allocated;
    // `lay_out` makes no two of them overlap.
    unsafe { lab.driver.move_items(lab.stream, kind, list.address(), items.len(), bytes) }
        .expect("move");
    same(&dst_block.take(&lab, dst_length), &dst)?;
    same(&src_block.take(&lab, src_length), &src)?;
    same(&list.take(&lab, contents.len()), contents)
}

fn check_every_mover(parts: &[Part], reverse: bool, list: Place) {
    for kind in MOVERS {
        check_move(parts, Launch { kind, reverse, list, hint: None })
            .unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
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
    fn a_move_copies_each_item_and_nothing_else_changes(
        parts in parts(),
        kind in prop::sample::select(&MOVERS),
        reverse: bool,
        list in prop_oneof![Just(Place::OnHost), Just(Place::OnDevice)],
        hint in prop_oneof![Just(None), Just(Some(0)), Just(Some(100_000)), Just(Some(usize::MAX))],
    ) {
        check_move(&parts, Launch { kind, reverse, list, hint })?;
    }
}

/// Every pair of alignments of source and destination, with and without whole vectors inside.
#[test]
fn moves_cope_with_every_alignment_and_length() {
    check_every_mover(&at_every_alignment(17, 0..=70), false, Place::OnHost);
    check_every_mover(&at_every_alignment(17, 4095..=4097), true, Place::OnDevice);
    check_every_mover(
        &at_every_alignment(4, [100_000, 0, 100_001].into_iter()),
        false,
        Place::OnHost,
    );
}

/// Thousands of short items, and long ones among them.
#[test]
fn moves_cope_with_long_items_among_many_short_ones() {
    let mut parts: Vec<Part> = (0..20_000).map(|i| (i % 3, i % 5, i % 17)).collect();
    parts[4_000].2 = (1 << 20) + 13;
    parts[4_001].2 = 300_001;
    parts[19_999].2 = 70_000;
    check_every_mover(&parts, false, Place::OnHost);
    check_every_mover(&parts, true, Place::OnDevice);
}

/// Warps share items that are few or long, and take many each otherwise. The numbers lie on both
/// sides of each threshold.
#[test]
fn moves_cope_with_every_number_of_items() {
    for count in [1, 2, 3, 15, 16, 17, 127, 128, 129, 255, 256, 257, 511, 513, 8191, 8192, 8193] {
        let part = |i: usize| (i % 7, i % 16, if i % 97 == 3 { 9001 } else { i * 31 % 600 });
        let parts: Vec<Part> = (0..count).map(part).collect();
        check_every_mover(&parts, count % 2 == 0, Place::OnHost);
    }
    for bytes in [3000, 6200, 12_300, 49_200] {
        check_every_mover(&vec![(1, 2, bytes); 70], false, Place::OnHost);
    }
    // More than four rounds of every warp.
    check_every_mover(&[(0, 3, (4 << 20) + 13)], false, Place::OnHost);
    check_every_mover(&[], false, Place::OnHost);
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
