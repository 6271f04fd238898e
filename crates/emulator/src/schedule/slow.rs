//! How slow a stream is; [`steps`](super::steps) says how its time passes.

/// How slow a stream is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slow {
    /// The steps that each operation takes.
    pub(super) each: u32,
    /// Those that the first operation still takes.
    pub(super) left: u32,
}

impl Slow {
    pub(crate) fn is_slow(self) -> bool {
        self.each > 0
    }

    /// Whether the first operation still takes a while.
    pub(super) fn holds(self) -> bool {
        self.left > 0
    }

    /// The next operation is the first one.
    pub(crate) fn begin(&mut self) {
        self.left = self.each;
    }
}
