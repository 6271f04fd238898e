//! The kernels of `cuda/kernels.cu`, in Rust: what they compute, stated once.
//!
//! The emulated device runs these functions, the tests hold the real kernels to them, and a host
//! that checks a transfer calls [`checksum`] on its side of it.
//!
//! # The checksum
//!
//! The bytes are read as little-endian 64-bit words `w[0], w[1], ...`; a last partial word is
//! filled up with zeros. With arithmetic modulo 2^64,
//!
//! ```text
//! checksum = mix(!length) + sum over i of mix(w[i] + (i + 1) * STEP)
//!
//! mix(x):  x ^= x >> 32;  x *= FACTOR;  x ^= x >> 32;  x *= FACTOR;  x ^= x >> 32
//! STEP   = 0x9e3779b97f4a7c15        2^64 divided by the golden ratio
//! FACTOR = 0xd6e8feb86659fd93        odd, so that mix is a bijection
//! ```
//!
//! * It is a sum, so blocks of words may be added up in any order: a GPU computes it in parallel.
//! * Each term knows its position, so swapped, shifted or repeated words change it; a change of one
//!   word always does, because `mix` is a bijection.
//! * The length is a term, so zeros at the end count. The checksum of no bytes is `mix(!0)`, which
//!   is not 0: memory that was never written does not look like a checksum.
//!
//! It finds accidents. It is no defence against collisions that are built on purpose.

use super::{Item, Layer, RowIndex, RowMove};

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// Repeats `pattern` over `dst`; a last partial pattern is cut off.
///
/// # Panics
///
/// If `pattern` is empty.
pub fn fill(dst: &mut [u8], pattern: &[u8]) {
    assert!(!pattern.is_empty(), "fill: a pattern has at least one byte");
    if let [byte] = *pattern {
        return dst.fill(byte);
    }
    let mut done = pattern.len().min(dst.len());
    dst[..done].copy_from_slice(&pattern[..done]);
    // What is filled so far is a whole number of patterns, so a copy of it continues the fill.
    while done < dst.len() {
        let more = done.min(dst.len() - done);
        dst.copy_within(..more, done);
        done += more;
    }
}

/// The checksum of `bytes`, as defined in the [module](self).
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = mix(!(bytes.len() as u64));
    let mut position = 0u64;
    let mut add = |word: [u8; 8]| {
        position = position.wrapping_add(STEP);
        sum = sum.wrapping_add(mix(u64::from_le_bytes(word).wrapping_add(position)));
    };
    words.iter().for_each(|word| add(*word));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        add(last);
    }
    sum
}

/// A bijection of the 64-bit numbers in which every input bit reaches every output bit.
#[inline]
fn mix(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(FACTOR);
    x ^= x >> 32;
    x = x.wrapping_mul(FACTOR);
    x ^ (x >> 32)
}

/// Copies each item's bytes from its source to its destination.
///
/// `copy(dst, src, bytes)` is the caller's copy; it is not called for empty items, and the first
/// error ends the work.
///
/// # Errors
///
/// What `copy` returns.
pub fn move_items<E>(
    items: &[Item],
    mut copy: impl FnMut(u64, u64, u64) -> Result<(), E>,
) -> Result<(), E> {
    items
        .iter()
        .filter(|item| item.bytes != 0)
        .try_for_each(|item| copy(item.dst, item.src, item.bytes))
}

/// The items that a move of rows comes to, layer by layer.
///
/// `number(index, n)` is the n-th number of an index whose `at` is not 0.
pub fn rows<'a>(
    rows: &'a RowMove,
    layers: &'a [Layer],
    number: impl Fn(&RowIndex, u64) -> u64 + 'a,
) -> impl Iterator<Item = Item> + 'a {
    let row = move |index: &RowIndex, n| {
        let row = if index.at == 0 { n } else { number(index, n) };
        (row < index.limit).then(|| row * index.pitch)
    };
    let numbers = move |layer: &'a Layer| (0..rows.count).map(move |n| (layer, n));
    layers.iter().flat_map(numbers).filter_map(move |(layer, n)| {
        let (from, to) = (row(&rows.from, n)?, row(&rows.to, n)?);
        Some(Item { src: layer.src + from, dst: layer.dst + to, bytes: rows.bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without a period, the same on every machine.
    fn sample(length: usize) -> Vec<u8> {
        (0..length as u64).map(|i| (mix(i + 1) >> 24) as u8).collect()
    }

    /// The definition, read off the module's text one byte at a time.
    fn defined(bytes: &[u8]) -> u64 {
        let mut sum = u128::from(mix(!(bytes.len() as u64)));
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let word = chunk.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
            let salted = u128::from(word) + (i as u128 + 1) * u128::from(STEP);
            sum += u128::from(mix(salted as u64));
        }
        sum as u64
    }

    #[test]
    fn checksum_has_fixed_values() {
        let all: Vec<u8> = (0..=255).collect();
        for (bytes, expected) in [
            (&[][..], 0x448e_29ce_d410_3459),
            (&[0], 0x5387_ef83_f124_1417),
            (b"pinlane", 0x0d03_fb8b_7d13_c362),
            (b"12345678", 0x128b_44e5_a0b9_22f1),
            (b"123456789", 0x64af_b37b_da3b_46ca),
            (&all, 0xf90e_2014_decc_e63b),
        ] {
            assert_eq!(checksum(bytes), expected, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn checksum_is_what_its_definition_says() {
        let bytes = sample(300);
        for length in 0..=bytes.len() {
            assert_eq!(checksum(&bytes[..length]), defined(&bytes[..length]), "{length} bytes");
        }
    }

    #[test]
    fn checksum_sees_every_bit() {
        let mut bytes = sample(67);
        let before = checksum(&bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&bytes), before, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn checksum_sees_swapped_words_and_bytes() {
        let bytes = sample(80);
        for distance in 1..40 {
            let mut swapped = bytes.clone();
            swapped.swap(7, 7 + distance);
            assert_eq!(checksum(&swapped) == checksum(&bytes), swapped == bytes, "{distance}");
        }
        for (i, j) in [(0, 1), (0, 9), (3, 4)] {
            let mut swapped = bytes.clone();
            for byte in 0..8 {
                swapped.swap(8 * i + byte, 8 * j + byte);
            }
            assert_ne!(checksum(&swapped), checksum(&bytes), "words {i} and {j}");
        }
    }

    #[test]
    fn checksum_sees_shifts_and_lengths() {
        let zeros = [0u8; 64];
        let bytes = sample(200);
        let mut seen = std::collections::HashSet::new();
        for length in 0..=64 {
            assert!(seen.insert(checksum(&zeros[..length])), "{length} zeros");
        }
        for start in 0..100 {
            assert!(seen.insert(checksum(&bytes[start..start + 100])), "shifted by {start}");
        }
        let mut one = [0u8; 64];
        for at in 0..64 {
            one[at] = 1;
            assert!(seen.insert(checksum(&one)), "a one at {at} among zeros");
            one[at] = 0;
        }
    }

    #[test]
    fn mix_flips_each_output_bit_half_of_the_time() {
        const SAMPLES: u64 = 2048;
        for bit in 0..64 {
            let mut flips = [0u32; 64];
            for n in 0..SAMPLES {
                let x = n.wrapping_mul(STEP);
                let changed = mix(x) ^ mix(x ^ 1 << bit);
                for (out, count) in flips.iter_mut().enumerate() {
                    *count += (changed >> out & 1) as u32;
                }
            }
            for (out, count) in flips.iter().enumerate() {
                let share = f64::from(*count) / SAMPLES as f64;
                assert!((0.35..0.65).contains(&share), "bit {bit} flips bit {out}: {share}");
            }
        }
    }

    #[test]
    fn fill_repeats_and_cuts() {
        for length in 0..200 {
            for pattern in 1..=64 {
                let pattern = sample(pattern);
                let mut dst = vec![0xee; length];
                fill(&mut dst, &pattern);
                assert!(dst.iter().zip(pattern.iter().cycle()).all(|(a, b)| a == b));
            }
        }
    }

    #[test]
    fn moving_skips_empty_items_and_stops_at_an_error() {
        let items = [
            Item { src: 10, dst: 100, bytes: 5 },
            Item { src: 0, dst: 120, bytes: 0 },
            Item { src: 3, dst: 90, bytes: 7 },
        ];
        let mut copies = Vec::new();
        move_items(&items, |dst, src, bytes| {
            copies.push((dst, src, bytes));
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(copies, [(100, 10, 5), (90, 3, 7)], "in order");
        let mut calls = 0;
        let failed = move_items(&items, |_, _, _| {
            calls += 1;
            Err("no")
        });
        assert_eq!((failed, calls), (Err("no"), 1));
    }
}
