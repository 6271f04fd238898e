//! Which line an instruction belongs to, by the table of its code object.

use super::layout::Table;

/// The line of the instruction that begins at a byte; `None` if it has none.
pub fn line_at(kind: Table, table: &[u8], first_line: u32, offset: u32) -> Option<u32> {
    let line = match kind {
        Table::Pairs => by_pairs(table, i64::from(first_line), offset),
        Table::Entries => by_entries(table, i64::from(first_line), offset),
    };
    line.and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0)
}

/// PEP 626 (Objects/lnotab_notes.txt): pairs of the length of a range in bytes and the difference
/// to the line before; -128 for no line.
fn by_pairs(table: &[u8], first_line: i64, offset: u32) -> Option<i64> {
    let (mut line, mut end) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        let (length, difference) = (u32::from(pair[0]), pair[1] as i8);
        line += if difference == -128 { 0 } else { i64::from(difference) };
        end += length;
        if offset < end {
            return (difference != -128).then_some(line);
        }
    }
    None
}

/// Objects/locations.md: each entry begins with a byte whose highest bit is set. Four bits are its
/// code, three the number of its code units less one.
fn by_entries(table: &[u8], first_line: i64, offset: u32) -> Option<i64> {
    /// Codes without a difference of lines are below; of 1 and 2 lines they follow this.
    const ONE_LINE: u8 = 10;
    const NO_COLUMNS: u8 = 13;
    const LONG: u8 = 14;
    const NONE: u8 = 15;
    let (mut line, mut end, mut at) = (first_line, 0, 0);
    while let Some(&first) = table.get(at) {
        let code = first >> 3 & 15;
        line += match code {
            ONE_LINE..NO_COLUMNS => i64::from(code - ONE_LINE),
            NO_COLUMNS | LONG => difference(table.get(at + 1..)?),
            _ => 0,
        };
        end += 2 * (u32::from(first & 7) + 1);
        if offset < end {
            return (code != NONE).then_some(line);
        }
        at += 1 + table[at + 1..].iter().take_while(|&&byte| byte < 128).count();
    }
    None
}

/// A signed number: six bits a byte, the lowest first; the seventh bit says that more follow. The
/// lowest bit of all is the sign.
fn difference(bytes: &[u8]) -> i64 {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 63) << (6 * place);
        if byte & 64 == 0 {
            break;
        }
    }
    let size = (number >> 1) as i64;
    if number & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_ranges_of_bytes() {
        // 10: bytes 0 to 6; none: 6 to 8; 9: 8 to 12; then 200 lines more in two pairs.
        let table = [6, 0, 2, 128, 4, 255, 0, 127, 2, 73];
        let line = |offset| line_at(Table::Pairs, &table, 10, offset);
        let lines: Vec<_> = (0..16).step_by(2).map(line).collect();
        let [ten, nine, late] = [Some(10), Some(9), Some(209)];
        assert_eq!(lines, [ten, ten, ten, None, nine, nine, late, None]);
    }

    #[test]
    fn entries_are_ranges_of_code_units() {
        let entry = |code: u8, units: u8| 128 | code << 3 | (units - 1);
        let table = [
            [entry(0, 1), 7].as_slice(),
            &[entry(9, 2), 7],
            &[entry(12, 1), 1, 2],
            // 1000 lines on: 2000 is 16 and 31 * 64.
            &[entry(13, 1), 64 | 16, 31],
            &[entry(15, 1)],
            // 1 line back.
            &[entry(14, 8), 3, 0, 1, 1],
        ]
        .concat();
        let line = |offset| line_at(Table::Entries, &table, 5, offset);
        let lines: Vec<_> = (0..30).step_by(2).map(line).collect();
        let mut expected = vec![Some(5); 3];
        expected.extend([Some(7), Some(1007), None]);
        expected.extend([Some(1006); 8]);
        expected.push(None);
        assert_eq!(lines, expected);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut bytes = Vec::new();
        let mut next = 1_u32;
        for _ in 0..2000 {
            next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.push((next >> 24) as u8);
            for table in [Table::Pairs, Table::Entries] {
                for offset in [0, 9, 1 << 20, u32::MAX] {
                    line_at(table, &bytes[bytes.len() / 2..], next, offset);
                }
            }
            line_at(Table::Entries, &[bytes[bytes.len() - 1]], 1, 500);
        }
    }
}
