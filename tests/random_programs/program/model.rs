//! The plain vectors that buffers must agree with.
//!
//! A byte is `None` if its contents are unspecified: after an operation that failed, or that a lost
//! device was to run.

use std::ops::Range;

pub type Model = Vec<Option<u8>>;

/// A part of a buffer, in 1/256 of its length.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub start: u8,
    pub len: u8,
}

impl Part {
    pub fn of(self, whole: usize) -> Range<usize> {
        let start = whole * self.start as usize / 256;
        let len = (whole - start) * (self.len as usize + 1) / 256;
        start..start + len
    }
}

pub fn pick<T>(number: usize, from: &[T]) -> Option<usize> {
    number.checked_rem(from.len())
}

/// Shortens a source range to what fits after `to` in the destination.
pub fn fit(from: Range<usize>, to: usize, len: usize) -> (Range<usize>, Range<usize>) {
    let start = len * (to % 8) / 8;
    let count = from.len().min(len - start);
    (from.start..from.start + count, start..start + count)
}

/// The destination after a copy.
pub fn move_model(ok: bool, from: &[Option<u8>], to: &mut [Option<u8>]) {
    if ok { to.copy_from_slice(from) } else { to.fill(None) }
}

/// Bytes that differ along the buffer, so that a shift shows.
fn value(byte: u8, index: usize) -> u8 {
    byte.wrapping_add((index as u8).wrapping_mul(31)).wrapping_add((index >> 8) as u8)
}

pub fn paint(bytes: &mut [u8], byte: u8) {
    for (index, target) in bytes.iter_mut().enumerate() {
        *target = value(byte, index);
    }
}

pub fn paint_model(model: &mut [Option<u8>], byte: u8) {
    for (index, target) in model.iter_mut().enumerate() {
        *target = Some(value(byte, index));
    }
}

/// The model of painted bytes.
pub fn painted(len: usize, byte: u8) -> Model {
    let mut model = vec![None; len];
    paint_model(&mut model, byte);
    model
}

/// The first byte that differs from the paint.
pub fn first_change(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().enumerate().position(|(index, found)| *found != value(byte, index))
}

pub fn agrees(bytes: &[u8], model: &[Option<u8>]) -> bool {
    bytes.len() == model.len()
        && bytes.iter().zip(model).all(|(byte, model)| model.is_none_or(|model| model == *byte))
}

pub fn assert_agrees(bytes: &[u8], model: &[Option<u8>], what: &str) {
    assert_eq!(bytes.len(), model.len());
    for (index, (byte, model)) in bytes.iter().zip(model).enumerate() {
        if let Some(model) = model {
            assert_eq!(byte, model, "{what} differs from the model at byte {index}");
        }
    }
}
