//! Parts by arrays of offsets, against a plain loop over the elements, on the target's device.

mod errors;
mod faults;
mod routes;

use pinlane::batch::{Parts, Route};
use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, DeviceBuf, ErrorKind, PinnedBuf, PinnedPool, Result, Stream, Ticket};
use proptest::prelude::*;

use crate::common;

/// Where the parts of the host are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Pageable,
    /// A view of a page-locked buffer.
    Pinned,
    /// A slice of memory of a pool.
    Lent,
}

const MEMORIES: [Memory; 3] = [Memory::Pageable, Memory::Pinned, Memory::Lent];
const ROUTES: [Option<Route>; 4] =
    [None, Some(Route::Copies), Some(Route::BatchCall), Some(Route::Kernel)];

/// The arrays, and how long the two sides are.
#[derive(Clone, Debug, Default)]
struct Arrays {
    from: Vec<usize>,
    to: Vec<usize>,
    lengths: Vec<usize>,
    /// All lengths are the same, and are given as one.
    equal: bool,
    src: usize,
    dst: usize,
}

impl Arrays {
    fn parts(&self, route: Option<Route>) -> Parts<'_> {
        match self.lengths.first() {
            Some(&length) if self.equal => Parts::of_length(&self.from, &self.to, length),
            _ => Parts::new(&self.from, &self.to, &self.lengths),
        }
        .route(route)
    }

    /// What the destination holds in the end.
    fn copied(&self, source: &[u16], before: &[u16]) -> Vec<u16> {
        let mut copied = before.to_vec();
        for ((&from, &to), &length) in self.from.iter().zip(&self.to).zip(&self.lengths) {
            copied[to..][..length].copy_from_slice(&source[from..][..length]);
        }
        copied
    }
}

/// Parts that follow each other in the destination, with gaps between some of them, in any order.
/// Each begins anywhere in the source, or follows the one before there too.
fn arrays() -> impl Strategy<Value = Arrays> {
    let length =
        prop_oneof![1 => Just(0usize), 6 => 1usize..60, 2 => 60usize..700, 1 => 9000usize..20_000];
    let gap = prop_oneof![Just(0usize), 1usize..40];
    let part = (length, gap, any::<prop::sample::Index>(), any::<bool>());
    let parts = prop::collection::vec(part, 0..40);
    (parts, any::<bool>(), any::<bool>(), 0usize..50).prop_perturb(
        |(parts, equal, shuffled, behind), mut random| {
            let mut arrays = Arrays { equal, src: 30_000, dst: 0, ..Arrays::default() };
            let same = parts.first().map_or(0, |part| part.0);
            for (length, gap, from, follows) in parts {
                let length = if equal { same } else { length };
                let last = arrays.from.last().zip(arrays.lengths.last());
                let next = last.map_or(0, |(from, length)| from + length);
                let fits = follows && next + length <= arrays.src;
                let from = if fits { next } else { from.index(arrays.src - length + 1) };
                arrays.from.push(from);
                arrays.to.push(arrays.dst + gap);
                arrays.lengths.push(length);
                arrays.dst += gap + length;
            }
            arrays.dst += behind;
            for n in (1..arrays.to.len()).rev().filter(|_| shuffled) {
                let other = random.random_range(0..=n);
                for array in [&mut arrays.from, &mut arrays.to, &mut arrays.lengths] {
                    array.swap(n, other);
                }
            }
            arrays
        },
    )
}

fn noise(seed: usize, length: usize) -> Vec<u16> {
    let word = |i: usize| ((i ^ seed << 32) as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95) >> 48;
    (0..length).map(|i| word(i) as u16).collect()
}

struct Rig {
    device: Device,
    stream: Stream,
    pool: PinnedPool,
}

impl Rig {
    fn new(device: Device) -> Self {
        let pool = common::pool(&device).build().unwrap();
        Rig { stream: device.stream().unwrap(), pool, device }
    }

    fn on_device(&self, contents: &[u16]) -> DeviceBuf<u16> {
        let mut buffer = self.device.alloc::<u16>(contents.len()).unwrap();
        self.stream.upload_slice(contents, &mut buffer).unwrap();
        buffer
    }

    fn page_locked(&self, contents: &[u16]) -> PinnedBuf<u16> {
        let mut buffer = self.pool.alloc::<u16>(contents.len()).unwrap();
        buffer.write().unwrap().copy_from_slice(contents);
        buffer
    }

    fn back(&self, buffer: &DeviceBuf<u16>) -> Vec<u16> {
        let mut back = vec![0; buffer.len()];
        self.stream.download_slice(buffer, &mut back).unwrap();
        back
    }

    /// What the destination holds after an upload.
    fn up(&self, memory: Memory, arrays: &Arrays, route: Option<Route>) -> Result<Vec<u16>> {
        let (source, before) = (noise(1, arrays.src), noise(2, arrays.dst));
        let (parts, mut to) = (arrays.parts(route), self.on_device(&before));
        match memory {
            Memory::Pageable => self.stream.upload_parts(&source, &mut to, parts)?,
            Memory::Pinned => {
                self.stream.upload_parts(&self.page_locked(&source), &mut to, parts)?
            }
            Memory::Lent => {
                let host = self.page_locked(&source);
                self.stream.upload_parts(host.read()?, &mut to, parts)?
            }
        };
        Ok(self.back(&to))
    }

    /// What the destination holds after a download.
    fn down(&self, memory: Memory, arrays: &Arrays, route: Option<Route>) -> Result<Vec<u16>> {
        let (source, mut before) = (noise(1, arrays.src), noise(2, arrays.dst));
        let (parts, from) = (arrays.parts(route), self.on_device(&source));
        let mut host = self.page_locked(&before);
        match memory {
            Memory::Pageable => {
                self.stream.download_parts(&from, &mut before, parts)?;
                return Ok(before);
            }
            Memory::Pinned => self.stream.download_parts(&from, &mut host, parts)?,
            Memory::Lent => self.stream.download_parts(&from, host.write()?, parts)?,
        };
        Ok(host.read()?.to_vec())
    }

    /// Checks both directions against a plain loop.
    fn check(&self, memory: Memory, arrays: &Arrays, route: Option<Route>) {
        let expected = arrays.copied(&noise(1, arrays.src), &noise(2, arrays.dst));
        for (up, found) in [true, false].map(|up| match up {
            true => (up, self.up(memory, arrays, route)),
            false => (up, self.down(memory, arrays, route)),
        }) {
            match found {
                Ok(found) => {
                    let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
                    assert_eq!(wrong, None, "{memory:?}, {route:?}, up: {up}");
                }
                // A real device may not have every route.
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    assert!(route.is_some() && common::target() == common::Target::Cuda);
                }
            }
        }
    }
}

/// `count` parts, scattered over both sides, no two adjacent.
fn scattered(count: usize, length: usize) -> Arrays {
    let place = |step: usize| move |n: usize| n * step % count * (length + 3);
    let steps = [7919, 104_729].map(|step| (0..count).map(place(step)).collect::<Vec<_>>());
    let [from, to] = steps;
    let len = count * (length + 3);
    Arrays { from, to, lengths: vec![length; count], equal: false, src: len, dst: len }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn parts_arrive_at_their_places_and_nowhere_else(
        arrays in arrays(),
        memory in prop::sample::select(MEMORIES.to_vec()),
        route in prop::sample::select(ROUTES.to_vec()),
    ) {
        Rig::new(common::device()).check(memory, &arrays, route);
    }

    #[test]
    fn in_every_schedule(
        arrays in arrays(),
        memory in prop::sample::select(MEMORIES.to_vec()),
        route in prop::sample::select(ROUTES.to_vec()),
        seed in 0u64..1000,
    ) {
        let builder = Emulator::builder().execution(Execution::Lazy).seed(seed).watch_host(true);
        let emulator = builder.build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        Rig::new(device).check(memory, &arrays, route);
        prop_assert_eq!(emulator.findings(), []);
    }
}

#[test]
fn thousands_of_parts_arrive_by_every_route() {
    let rig = Rig::new(common::device());
    for memory in MEMORIES {
        for route in ROUTES {
            for (count, length) in [(1, 5), (700, 90), (5000, 31)] {
                let mut arrays = scattered(count, length);
                rig.check(memory, &arrays, route);
                arrays.equal = true;
                rig.check(memory, &arrays, route);
            }
        }
    }
}

#[test]
fn no_parts_and_empty_parts_copy_nothing() {
    let rig = Rig::new(common::device());
    let none = Arrays { src: 100, dst: 100, ..Arrays::default() };
    let (from, to) = (vec![0, 100, 50], vec![100, 0, 50]);
    let empty = Arrays { from, to, lengths: vec![0; 3], ..none.clone() };
    let nothing = Arrays::default();
    for memory in MEMORIES {
        for route in ROUTES {
            for arrays in [&none, &empty, &nothing] {
                rig.check(memory, arrays, route);
            }
        }
    }
}

/// A device write to the source of a download of parts, on another stream, comes before them; a
/// write after them, later. The uses that are recorded span the parts.
#[test]
fn parts_are_ordered_with_other_streams() {
    let rig = Rig::new(common::device());
    let other = rig.device.stream().unwrap();
    let arrays = scattered(300, 20);
    let source = noise(1, arrays.src);
    for memory in [Memory::Pageable, Memory::Pinned] {
        let mut gpu = rig.device.alloc::<u16>(arrays.src).unwrap();
        let fresh = rig.page_locked(&source);
        other.upload(&fresh, &mut gpu).unwrap();
        let mut host = rig.page_locked(&noise(2, arrays.dst));
        let mut pageable = noise(2, arrays.dst);
        let ticket: Ticket = match memory {
            Memory::Pageable => rig.stream.download_parts(&gpu, &mut pageable, arrays.parts(None)),
            _ => rig.stream.download_parts(&gpu, &mut host, arrays.parts(None)),
        }
        .unwrap();
        other.fill(&mut gpu, 0).unwrap();
        let expected = arrays.copied(&source, &noise(2, arrays.dst));
        let found = if memory == Memory::Pageable { &pageable[..] } else { host.read().unwrap() };
        assert!(found == expected, "{memory:?}");
        assert!(ticket.is_done().unwrap());
    }
}
