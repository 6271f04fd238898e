//! Strings of CPython: PEP 393 has one, two or four bytes for each character.

use super::layout::{LENGTH, Layout, STATE, TYPE};
use super::memory::Memory;

/// The characters of a string.
#[derive(Clone, Copy, Debug)]
pub struct Characters {
    at: usize,
    bytes: usize,
    /// The bytes of a character.
    width: usize,
}

impl Characters {
    /// Those of the object at this address; `None` if it is no string of that type, or none whose
    /// characters follow it.
    #[inline]
    pub fn of(memory: &impl Memory, layout: &Layout, string: usize, kind: usize) -> Option<Self> {
        let [its_kind, length, state] = memory.words(string, [TYPE, LENGTH, STATE])?;
        // Of the state: kind, then `compact`, then `ascii`.
        let state = state >> layout.kind;
        let (width, is_compact, is_ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
        if its_kind != kind || !matches!(width, 1 | 2 | 4) || !is_compact {
            return None;
        }
        let start = if is_ascii { layout.ascii } else { layout.compact };
        Some(Characters { at: string + start, bytes: length.checked_mul(width)?, width })
    }

    #[inline]
    pub fn show<R>(&self, memory: &impl Memory, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        memory.show(self.at, self.bytes, look)
    }

    /// The text. Bytes of a file name that are in no encoding are shown as unknown characters.
    pub fn text(&self, memory: &impl Memory) -> Option<String> {
        self.show(memory, |bytes| {
            let number = |character: &[u8]| {
                let mut number = [0; 4];
                number[..character.len()].copy_from_slice(character);
                u32::from_le_bytes(number)
            };
            let characters = bytes.chunks_exact(self.width).map(number);
            characters.map(|it| char::from_u32(it).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        })
    }
}
