//! What the emulated device is written in: numbers, slots, spans, names, texts. Each stands alone.

pub(crate) mod json;
pub(crate) mod name;
pub(crate) mod rng;
pub(crate) mod slots;
pub(crate) mod spans;
pub(crate) mod thread;
pub(crate) mod unreadable;
