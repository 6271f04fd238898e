//! Rows by their numbers, against a plain model, on the target's device.

mod dense;
mod errors;
mod order;
mod padding;

use pinlane::batch::Indices;
use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::{CudaCode, Device, ErrorKind, PinnedPool, Stream};
use proptest::prelude::*;

use crate::common;

/// Where the host's tables are.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Pageable,
    /// A view of a page-locked buffer.
    Pinned,
    /// A slice of memory of a pool.
    Lent,
}

/// The type of the numbers, and where they are.
#[derive(Clone, Copy, Debug)]
enum Kind {
    U32,
    I32,
    U64,
    I64,
    OnDevice32,
    OnDevice64,
    InOrder,
}

#[derive(Clone, Debug)]
struct Case {
    memory: Memory,
    layers: usize,
    row: usize,
    /// Where tables begin in their buffers, in bytes.
    at: (usize, usize),
    /// The rows of a table of the source and of the destination.
    rows: (usize, usize),
    from: (Kind, Vec<usize>),
    to: (Kind, Vec<usize>),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::U32,
        Kind::I32,
        Kind::U64,
        Kind::I64,
        Kind::OnDevice32,
        Kind::OnDevice64,
        Kind::InOrder,
    ])
}

/// Lengths of a row around the kernel's units, and some that are long.
fn row() -> impl Strategy<Value = usize> {
    prop_oneof![5 => 1usize..70, 3 => 70usize..700, 1 => 4000usize..20_000]
}

fn case() -> impl Strategy<Value = Case> {
    let memory = prop::sample::select(vec![Memory::Pageable, Memory::Pinned, Memory::Lent]);
    let shape = (memory, 1usize..4, row(), (0usize..64, 0usize..64), (1usize..40, 1usize..40));
    shape.prop_flat_map(|(memory, layers, row, at, rows)| {
        let to = Just((0..rows.1).collect::<Vec<_>>()).prop_shuffle();
        let from = prop::collection::vec(0..rows.0, rows.1);
        ((kind(), from), (kind(), to), 0..=rows.1).prop_map(move |(mut from, mut to, count)| {
            let mut count = count;
            for (kind, numbers, rows) in [(from.0, &mut from.1, rows.0), (to.0, &mut to.1, rows.1)]
            {
                if let Kind::InOrder = kind {
                    count = count.min(rows);
                    *numbers = (0..numbers.len()).collect();
                }
            }
            let mut rows = rows;
            if let (Kind::InOrder, Kind::InOrder) = (from.0, to.0) {
                (count, rows) = (rows.0, (rows.0, rows.0));
                (from.1, to.1) = ((0..count).collect(), (0..count).collect());
            }
            from.1.truncate(count);
            to.1.truncate(count);
            Case { memory, layers, row, at, rows, from, to }
        })
    })
}

/// The numbers of one side, wherever they are.
struct Numbers {
    kind: Kind,
    short: Vec<u32>,
    signed: Vec<i32>,
    long: Vec<u64>,
    words: Vec<i64>,
    short_on_device: pinlane::DeviceBuf<i32>,
    long_on_device: pinlane::DeviceBuf<u64>,
}

impl Numbers {
    fn new(device: &Device, stream: &Stream, (kind, numbers): &(Kind, Vec<usize>)) -> Self {
        let signed: Vec<i32> = numbers.iter().map(|&n| n as i32).collect();
        let long: Vec<u64> = numbers.iter().map(|&n| n as u64).collect();
        let mut short_on_device = device.alloc(numbers.len()).unwrap();
        let mut long_on_device = device.alloc(numbers.len()).unwrap();
        stream.upload_slice(&signed, &mut short_on_device).unwrap();
        stream.upload_slice(&long, &mut long_on_device).unwrap();
        Numbers {
            kind: *kind,
            short: numbers.iter().map(|&n| n as u32).collect(),
            signed,
            long,
            words: numbers.iter().map(|&n| n as i64).collect(),
            short_on_device,
            long_on_device,
        }
    }

    fn indices(&self) -> Indices<'_> {
        match self.kind {
            Kind::U32 => (&self.short).into(),
            Kind::I32 => (&self.signed).into(),
            Kind::U64 => (&self.long).into(),
            Kind::I64 => (&self.words).into(),
            Kind::OnDevice32 => (&self.short_on_device).into(),
            Kind::OnDevice64 => (&self.long_on_device).into(),
            Kind::InOrder => (..).into(),
        }
    }
}

fn noise(seed: usize, length: usize) -> Vec<u8> {
    let word = |i: usize| ((i ^ seed << 32) as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95) >> 56;
    (0..length).map(|i| word(i) as u8).collect()
}

fn check(device: &Device, up: bool, case: &Case) -> Result<(), TestCaseError> {
    let (stream, pool) = (device.stream().unwrap(), PinnedPool::builder(device).build().unwrap());
    let Case { layers, row, at, rows, .. } = *case;
    let numbers = [&case.from, &case.to].map(|side| Numbers::new(device, &stream, side));
    let (from, to) = (numbers[0].indices(), numbers[1].indices());
    let source = |layer| noise(layer, at.0 + rows.0 * row);
    let before = |layer| noise(100 + layer, at.1 + rows.1 * row);
    let (host, on_device) = if up { (at.0, at.1) } else { (at.1, at.0) };

    let fill = |layer| if up { before(layer) } else { source(layer) };
    let mut gpu: Vec<_> = (0..layers)
        .map(|layer| {
            let contents = fill(layer);
            let mut buffer = device.alloc::<u8>(contents.len()).unwrap();
            stream.upload_slice(&contents, &mut buffer).unwrap();
            buffer
        })
        .collect();
    let mut tables: Vec<Vec<u8>> =
        (0..layers).map(|layer| if up { source(layer) } else { before(layer) }).collect();
    let mut pinned: Vec<_> = tables
        .iter()
        .map(|table| {
            let mut buffer = pool.alloc::<u8>(table.len()).unwrap();
            buffer.write().unwrap().copy_from_slice(table);
            buffer
        })
        .collect();
    let done = if up {
        let views = gpu.iter_mut().map(|it| it.slice_mut(on_device..).unwrap());
        match case.memory {
            Memory::Pageable => {
                let tables = tables.iter().map(|it| &it[host..]);
                stream.upload_blocks(tables.zip(views), row, from, to)
            }
            Memory::Pinned => {
                let tables = pinned.iter().map(|it| it.slice(host..).unwrap());
                stream.upload_blocks(tables.zip(views), row, from, to)
            }
            Memory::Lent => {
                let tables = pinned.iter().map(|it| &it.read().unwrap()[host..]);
                stream.upload_blocks(tables.zip(views), row, from, to)
            }
        }
    } else {
        let views = gpu.iter().map(|it| it.slice(on_device..).unwrap());
        match case.memory {
            Memory::Pageable => {
                let tables = tables.iter_mut().map(|it| &mut it[host..]);
                stream.download_blocks(views.zip(tables), row, from, to)
            }
            Memory::Pinned => {
                let tables = pinned.iter_mut().map(|it| it.slice_mut(host..).unwrap());
                stream.download_blocks(views.zip(tables), row, from, to)
            }
            Memory::Lent => {
                let tables = pinned.iter_mut().map(|it| &mut it.write().unwrap()[host..]);
                stream.download_blocks(views.zip(tables), row, from, to)
            }
        }
    };
    done.unwrap();

    for layer in 0..layers {
        let (source, mut expected) = (source(layer), before(layer));
        for (&from, &to) in case.from.1.iter().zip(&case.to.1) {
            let from = &source[at.0 + from * row..][..row];
            expected[at.1 + to * row..][..row].copy_from_slice(from);
        }
        let found = match (up, case.memory) {
            (true, _) => {
                let mut back = vec![0; expected.len()];
                stream.download_slice(&gpu[layer], &mut back).unwrap();
                back
            }
            (false, Memory::Pageable) => tables[layer].clone(),
            (false, _) => pinned[layer].read().unwrap().to_vec(),
        };
        let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        prop_assert_eq!(wrong, None, "layer {}", layer);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_rows_of_any_tables_arrive_and_nothing_else_changes(case in case(), up: bool) {
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
