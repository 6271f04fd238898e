//! The arrays of offsets and lengths.

use crate::copy::route::Route;

/// The parts of a source and of a destination that a copy moves, for
/// [`Stream::upload_parts`](crate::Stream::upload_parts) and
/// [`Stream::download_parts`](crate::Stream::download_parts): where they begin and how long they
/// are, in elements of the two.
///
/// Part `i` goes from `from[i]` in the source to `to[i]` in the destination. Parts of the source
/// may overlap, those of the destination may not. An empty part copies nothing, but must lie in
/// both too.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'i> {
    pub(super) from: &'i [usize],
    pub(super) to: &'i [usize],
    pub(super) lengths: Lengths<'i>,
    pub(super) route: Option<Route>,
    /// All numbers count groups of so many elements.
    pub(super) unit: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Lengths<'i> {
    Each(&'i [usize]),
    All(usize),
}

impl<'i> Parts<'i> {
    /// Parts of different lengths. The three arrays have an element for each part.
    #[must_use]
    pub fn new(from: &'i [usize], to: &'i [usize], lengths: &'i [usize]) -> Self {
        Parts { from, to, lengths: Lengths::Each(lengths), route: None, unit: 1 }
    }

    /// Parts of `length` elements each. The two arrays have an element for each part.
    #[must_use]
    pub fn of_length(from: &'i [usize], to: &'i [usize], length: usize) -> Self {
        Parts { from, to, lengths: Lengths::All(length), route: None, unit: 1 }
    }

    /// Copies all parts by this route. `None`, the default: the route that is fastest by rule.
    #[must_use]
    pub fn route(mut self, route: impl Into<Option<Route>>) -> Self {
        self.route = route.into();
        self
    }

    /// The same parts of elements that are `unit` bytes long, in sides of bytes.
    #[cfg(feature = "capi")]
    pub(crate) fn of_unit(self, unit: usize) -> Self {
        Parts { unit, ..self }
    }
}

impl Lengths<'_> {
    /// How many there are; `None` if all are the same.
    pub(super) fn count(&self) -> Option<usize> {
        match self {
            Lengths::Each(lengths) => Some(lengths.len()),
            Lengths::All(_) => None,
        }
    }

    #[inline]
    pub(super) fn get(&self, n: usize) -> usize {
        match *self {
            Lengths::Each(lengths) => lengths[n],
            Lengths::All(length) => length,
        }
    }
}
