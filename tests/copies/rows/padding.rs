//! Numbers on the device that are outside the table copy nothing, in whatever memory the tables and
//! the other numbers are, and however often they occur.

use super::*;

/// Rows of `row` bytes, by numbers of which some are outside.
#[derive(Clone, Debug)]
struct Padded {
    row: usize,
    rows: (usize, usize),
    from: (Kind, Vec<i64>),
    to: (Kind, Vec<i64>),
    promised: bool,
}

/// Numbers below `rows`. On the device also others, mostly -1, which pads lists.
fn number(rows: usize) -> impl Strategy<Value = i64> {
    let rows = rows as i64;
    prop_oneof![
        4 => 0..rows,
        3 => Just(-1i64),
        1 => rows..rows + 3,
        1 => prop::sample::select(vec![i64::from(i32::MIN), i64::from(i32::MAX)]),
    ]
}

fn padded() -> impl Strategy<Value = Padded> {
    let kind = || prop::sample::select(vec![Kind::I32, Kind::OnDevice32, Kind::OnDevice64]);
    let shape = (row(), (1usize..20, 1usize..20), 0usize..30, kind(), kind(), any::<bool>());
    shape.prop_flat_map(|(row, rows, count, from_kind, to_kind, promised)| {
        let numbers = |rows| prop::collection::vec(number(rows), count);
        (numbers(rows.0), numbers(rows.1)).prop_map(move |(from, to)| {
            let mut case =
                Padded { row, rows, from: (from_kind, from), to: (to_kind, to), promised };
            case.mend();
            case
        })
    })
}

fn is_on_device(kind: Kind) -> bool {
    matches!(kind, Kind::OnDevice32 | Kind::OnDevice64)
}

impl Padded {
    /// Removes what the call would refuse: numbers in host memory that are outside, and rows that
    /// are written twice.
    fn mend(&mut self) {
        let mut written = Vec::new();
        let pairs = self.from.1.iter().copied().zip(self.to.1.iter().copied());
        let kept: Vec<(i64, i64)> = pairs
            .filter(|&(from, to)| {
                let (reads, writes) = (self.is_inside(from, true), self.is_inside(to, false));
                // Repeated numbers in host memory need a promise to come to the copy at all.
                let counts = writes && (reads || !is_on_device(self.to.0) && !self.promised);
                let again = counts && written.contains(&to);
                if counts {
                    written.push(to);
                }
                (reads || is_on_device(self.from.0))
                    && (writes || is_on_device(self.to.0))
                    && !again
            })
            .collect();
        (self.from.1, self.to.1) = kept.into_iter().unzip();
    }

    fn is_inside(&self, number: i64, from: bool) -> bool {
        let rows = if from { self.rows.0 } else { self.rows.1 };
        usize::try_from(number).is_ok_and(|number| number < rows)
    }

    /// The expected contents of the destination.
    fn expected(&self, source: &[u8], mut destination: Vec<u8>) -> Vec<u8> {
        for (&from, &to) in self.from.1.iter().zip(&self.to.1) {
            if self.is_inside(from, true) && self.is_inside(to, false) {
                let bytes = &source[from as usize * self.row..][..self.row];
                destination[to as usize * self.row..][..self.row].copy_from_slice(bytes);
            }
        }
        destination
    }
}

fn check_padded(up: bool, memory: Memory, case: &Padded) -> Result<(), TestCaseError> {
    let device = common::device();
    let (stream, pool) = (device.stream().unwrap(), PinnedPool::builder(&device).build().unwrap());
    let row = case.row;
    let numbers = [&case.from, &case.to].map(|(kind, numbers)| {
        let numbers = numbers.iter().map(|&number| number as usize).collect();
        Numbers::new(&device, &stream, &(*kind, numbers))
    });
    let (from, to) = (numbers[0].indices(), numbers[1].indices());
    let to = if case.promised { to.distinct() } else { to };
    let (source, before) = (noise(1, case.rows.0 * row), noise(2, case.rows.1 * row));
    let (on_host, on_device) = if up { (&source, &before) } else { (&before, &source) };
    let mut gpu = device.alloc::<u8>(on_device.len()).unwrap();
    stream.upload_slice(on_device, &mut gpu).unwrap();
    let mut table = on_host.clone();
    let mut pinned = pool.alloc::<u8>(table.len()).unwrap();
    pinned.write().unwrap().copy_from_slice(&table);
    match (up, memory) {
        (true, Memory::Pageable) => stream.upload_blocks([(&table, &mut gpu)], row, from, to),
        (true, Memory::Pinned) => stream.upload_blocks([(&pinned, &mut gpu)], row, from, to),
        (true, Memory::Lent) => {
            stream.upload_blocks([(pinned.read().unwrap(), &mut gpu)], row, from, to)
        }
        (false, Memory::Pageable) => stream.download_blocks([(&gpu, &mut table)], row, from, to),
        (false, Memory::Pinned) => stream.download_blocks([(&gpu, &mut pinned)], row, from, to),
        (false, Memory::Lent) => {
            stream.download_blocks([(&gpu, pinned.write().unwrap())], row, from, to)
        }
    }
    .unwrap();
    let found = match (up, memory) {
        (true, _) => {
            let mut back = vec![0; gpu.len()];
            stream.download_slice(&gpu, &mut back).unwrap();
            back
        }
        (false, Memory::Pageable) => table,
        (false, _) => pinned.read().unwrap().to_vec(),
    };
    prop_assert_eq!(found == case.expected(&source, before), true, "{:?}", memory);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn numbers_outside_copy_nothing_in_any_memory(case in padded(), up: bool) {
        for memory in [Memory::Pageable, Memory::Pinned, Memory::Lent] {
            check_padded(up, memory, &case)?;
        }
    }
}
