//! Strided copies, against a plain loop over the elements, on the target's device.

mod faults;
mod routes;
mod tensors;
mod uses;

use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, PinnedPool, Stream, Strided, Strides};
use proptest::prelude::*;

use crate::common;

/// Where the rows of the host are.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Pageable,
    /// A view of a page-locked buffer.
    Pinned,
    /// A slice of memory of a pool.
    Lent,
    /// The copy is between two buffers of the device.
    OnDevice,
}

/// The rows of one side, and where they begin in its buffer.
#[derive(Clone, Copy, Debug)]
struct Side {
    at: usize,
    /// `None`: a view without rows.
    strides: Option<Strides>,
    len: usize,
}

impl Side {
    /// The offset of each element, in the order of the copy.
    fn places(&self) -> Vec<usize> {
        let Some(Strides { row, rows, pitch, planes, plane_pitch }) = self.strides else {
            return (self.at..self.len).collect();
        };
        let mut places = Vec::new();
        for plane in 0..planes {
            for line in 0..rows {
                let start = self.at + plane * plane_pitch + line * pitch;
                places.extend(start..start + row);
            }
        }
        places
    }
}

#[derive(Clone, Debug)]
struct Case {
    memory: Memory,
    src: Side,
    dst: Side,
}

/// Lengths of a row around the kernel's units, and some that are long.
fn row() -> impl Strategy<Value = usize> {
    prop_oneof![5 => 1usize..70, 3 => 70usize..700, 1 => 3000usize..9000]
}

/// How the rows of a shape lie: with gaps or without, planes behind each other or interleaved.
fn side(row: usize, rows: usize, planes: usize) -> impl Strategy<Value = Side> {
    let gap = || prop_oneof![2 => Just(0usize), 3 => 1usize..200];
    (0usize..64, gap(), gap(), 0..4, 0usize..20).prop_map(move |(at, gap, wide, kind, behind)| {
        let (pitch, plane_pitch) = match kind {
            0 => {
                let plane_pitch = row + gap;
                (plane_pitch * planes + wide, plane_pitch)
            }
            _ => (row + gap, (row + gap) * rows + wide),
        };
        let strides = Strides::new(row, rows, pitch).planes(planes, plane_pitch);
        let last = (planes - 1) * plane_pitch + (rows - 1) * pitch + row;
        if kind == 3 {
            return Side { at, strides: None, len: at + row * rows * planes };
        }
        Side { at, strides: Some(strides), len: at + last + behind }
    })
}

fn case() -> impl Strategy<Value = Case> {
    let memory = prop::sample::select(vec![
        Memory::Pageable,
        Memory::Pinned,
        Memory::Lent,
        Memory::OnDevice,
    ]);
    (memory, row(), 1usize..30, 1usize..6).prop_flat_map(|(memory, row, rows, planes)| {
        let sides = (side(row, rows, planes), side(row, rows, planes));
        sides.prop_map(move |(src, mut dst)| {
            // Two views without rows have only their length in common.
            if src.strides.is_none() && dst.strides.is_none() {
                dst.len = dst.at + src.len - src.at;
            }
            Case { memory, src, dst }
        })
    })
}

fn noise(seed: usize, length: usize) -> Vec<u16> {
    let word = |i: usize| ((i ^ seed << 32) as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95) >> 48;
    (0..length).map(|i| word(i) as u16).collect()
}

/// The rows of a side of a buffer or a slice: `$part` takes a range.
macro_rules! rows {
    ($side:expr, $part:expr) => {{
        let view = $part;
        match $side.strides {
            Some(strides) => Strided::new(view, strides).unwrap(),
            None => {
                let strides = Strides::new($side.len - $side.at, 1, 0);
                Strided::new(view, strides).unwrap()
            }
        }
    }};
}

fn check(device: &Device, up: bool, case: &Case) -> Result<(), TestCaseError> {
    let (stream, pool) = (device.stream().unwrap(), PinnedPool::builder(device).build().unwrap());
    let Case { memory, src, dst } = case;
    let source = noise(1, src.len);
    let before = noise(2, dst.len);
    let mut expected = before.clone();
    for (from, to) in src.places().into_iter().zip(dst.places()) {
        expected[to] = source[from];
    }
    let on_device = |contents: &[u16]| {
        let mut buffer = device.alloc::<u16>(contents.len()).unwrap();
        stream.upload_slice(contents, &mut buffer).unwrap();
        buffer
    };
    let page_locked = |contents: &[u16]| {
        let mut buffer = pool.alloc::<u16>(contents.len()).unwrap();
        buffer.write().unwrap().copy_from_slice(contents);
        buffer
    };
    let found = if let Memory::OnDevice = memory {
        let (from, mut to) = (on_device(&source), on_device(&before));
        let rows = rows!(src, from.slice(src.at..).unwrap());
        stream.copy_strided(rows, rows!(dst, to.slice_mut(dst.at..).unwrap())).unwrap();
        back(&stream, &to)
    } else if up {
        let mut to = on_device(&before);
        let target = rows!(dst, to.slice_mut(dst.at..).unwrap());
        match memory {
            Memory::Pageable => {
                stream.upload_strided(rows!(src, &source[src.at..]), target).unwrap();
            }
            _ => {
                let from = page_locked(&source);
                match memory {
                    Memory::Pinned => {
                        let rows = rows!(src, from.slice(src.at..).unwrap());
                        stream.upload_strided(rows, target).unwrap();
                    }
                    _ => {
                        let rows = rows!(src, &from.read().unwrap()[src.at..]);
                        stream.upload_strided(rows, target).unwrap();
                    }
                }
            }
        }
        back(&stream, &to)
    } else {
        let from = on_device(&source);
        let rows = rows!(src, from.slice(src.at..).unwrap());
        match memory {
            Memory::Pageable => {
                let mut to = before;
                stream.download_strided(rows, rows!(dst, &mut to[dst.at..])).unwrap();
                to
            }
            _ => {
                let mut to = page_locked(&before);
                if let Memory::Pinned = memory {
                    let target = rows!(dst, to.slice_mut(dst.at..).unwrap());
                    stream.download_strided(rows, target).unwrap();
                } else {
                    let target = rows!(dst, &mut to.write().unwrap()[dst.at..]);
                    stream.download_strided(rows, target).unwrap();
                }
                to.read().unwrap().to_vec()
            }
        }
    };
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    prop_assert_eq!(wrong, None);
    Ok(())
}

fn back(stream: &Stream, buffer: &pinlane::DeviceBuf<u16>) -> Vec<u16> {
    let mut back = vec![0; buffer.len()];
    stream.download_slice(buffer, &mut back).unwrap();
    back
}

/// Both ways, by a stream of either, in one plane and in several.
#[test]
fn rows_go_between_two_devices_of_the_target() {
    let devices = match common::target() {
        common::Target::Emulated => {
            let emulator = common::emulator(Execution::Lazy, 5);
            common::devices_of(&emulator)
        }
        common::Target::Cuda if Device::available().len() > 1 => {
            vec![Device::open(0).unwrap(), Device::open(1).unwrap()]
        }
        common::Target::Cuda => {
            eprintln!("skipped: there is one device");
            return;
        }
    };
    let streams = [0, 1].map(|n: usize| devices[n].stream().unwrap());
    let source = noise(4, 2000);
    for planes in [1, 3] {
        for (from, to, by) in [(0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)] {
            let mut near = devices[from].alloc::<u16>(2000).unwrap();
            streams[from].upload_slice(&source, &mut near).unwrap();
            let mut far = devices[to].alloc::<u16>(2000).unwrap();
            streams[to].fill(&mut far, 9).unwrap();
            let sides = [Strides::new(50, 4, 100), Strides::new(50, 4, 60)];
            let sides = [sides[0].planes(planes, 500), sides[1].planes(planes, 300)];
            let rows = Strided::new(near.slice(7..).unwrap(), sides[0]).unwrap();
            let target = Strided::new(far.slice_mut(100..).unwrap(), sides[1]).unwrap();
            streams[by].copy_strided(rows, target).unwrap();
            let mut expected = vec![9; 2000];
            let places = [(7, sides[0]), (100, sides[1])];
            let places = places.map(|(at, strides)| Side { at, strides: Some(strides), len: 0 });
            for (from, to) in places[0].places().into_iter().zip(places[1].places()) {
                expected[to] = source[from];
            }
            assert!(back(&streams[to], &far) == expected, "{planes} {from} {to} {by}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_rows_arrive_and_the_gaps_stay(case in case(), up: bool) {
        check(&common::device(), up, &case)?;
    }

    #[test]
    fn in_every_schedule(case in case(), up: bool, seed in 0u64..1000) {
        let builder = Emulator::builder().execution(Execution::Lazy).seed(seed).watch_host(true);
        let emulator = builder.build();
        check(&Device::of_emulator(&emulator, 0).unwrap(), up, &case)?;
        prop_assert_eq!(emulator.findings(), []);
    }
}
