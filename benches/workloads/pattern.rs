//! Bytes that identify their place: each word contains the number of its block and its own place.

/// Writes the bytes of the block with this number. A block is whole words.
pub fn write(number: usize, block: &mut [u8]) {
    let words: &mut [u64] = bytemuck::cast_slice_mut(block);
    for (place, word) in words.iter_mut().enumerate() {
        *word = value(number, place);
    }
}

/// Ends the program if these are not the bytes of that block.
pub fn check(what: &str, number: usize, block: &[u8]) {
    let words: &[u64] = bytemuck::cast_slice(block);
    let differs = words.iter().enumerate().any(|(place, &word)| word != value(number, place));
    assert!(!differs, "{what}: the bytes of block {number} did not arrive");
}

fn value(number: usize, place: usize) -> u64 {
    (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place as u64)
}
