//! Lists of copies, made once and submitted as often as needed. The first submission checks the
//! copies and writes the list that the kernel reads.

use std::sync::Arc;

use super::entries::Entries;
use super::items::{BatchItem, Download, HostSide, Upload};
use crate::copy::direct::Lists;
use crate::copy::entry::Entry;
use crate::copy::route::Route;
use crate::copy::survey::Survey;
use crate::copy::transfer::RowsOfSides;
use crate::error::{Error, ErrorKind, Remedy, Result};

/// The uploads of a batch, as a list that can be submitted more than once:
/// [`Stream::upload_list`](crate::Stream::upload_list). Collect it from pairs of a source and a
/// destination, or from [`Upload`]s.
#[derive(Default)]
pub struct Uploads<'a>(pub(super) List<'a>, pub(super) Prepared<'a>);

/// The downloads of a batch, as a list that can be submitted more than once:
/// [`Stream::download_list`](crate::Stream::download_list). Collect it from pairs of a source and a
/// destination, or from [`Download`]s.
#[derive(Default)]
pub struct Downloads<'a>(pub(super) List<'a>, pub(super) Prepared<'a>);

/// The entries of a batch, by the kind of their host memory.
#[derive(Default)]
pub(super) struct List<'a> {
    pub(super) pageable: Entries<'a>,
    pub(super) pinned: Entries<'a>,
    /// Some of them are slices, which are borrowed only for a call.
    pub(super) has_slices: bool,
    /// The runs of entries of one kind, in the caller's order: whether they are page-locked, and
    /// their number.
    kinds: Vec<(bool, usize)>,
    pub(super) route: Option<Route>,
    /// The entries are rows, which lie a pitch apart.
    pub(super) rows: RowsOfSides,
    /// The first entry with different lengths: its number, and its bytes on the host.
    mismatch: Option<(usize, usize, usize)>,
}

/// The results of the first submission of a list that later ones use.
#[derive(Default)]
pub(super) struct Prepared<'a> {
    pub(super) pinned: Option<Arc<Survey<'a>>>,
    pub(super) pageable: Option<Arc<Survey<'a>>>,
    /// No two destinations overlap.
    pub(super) are_apart: bool,
    pub(super) lists: Lists,
}

impl Prepared<'_> {
    /// Forgets the results, because the list has changed.
    #[inline]
    fn forget(&mut self) {
        if self.pinned.is_some() {
            *self = Self::default();
        }
    }
}

impl<'a> List<'a> {
    /// Parts of `host`, each as long as its device memory.
    pub(super) fn of(entries: Entries<'a>, host: &HostSide<'a>) -> Self {
        let kinds = vec![(host.pinned.is_some(), entries.len())];
        let (pinned, pageable) = match host.pinned {
            Some(_) => (entries, Entries::default()),
            None => (Entries::default(), entries),
        };
        List { pageable, pinned, has_slices: host.is_slice, kinds, ..Self::default() }
    }

    /// Inlined, so that the parts of the item stay in registers.
    #[inline(always)]
    pub(super) fn push(&mut self, BatchItem { entry, host_bytes, is_slice }: BatchItem<'a>) {
        if host_bytes != entry.bytes() {
            self.note_mismatch(host_bytes, entry.bytes());
        }
        let is_pinned = entry.is_pinned();
        match self.kinds.last_mut() {
            Some((kind, count)) if *kind == is_pinned => *count += 1,
            _ => self.kinds.push((is_pinned, 1)),
        }
        if is_pinned {
            self.has_slices |= is_slice;
            self.pinned.push(entry);
        } else {
            self.pageable.push(entry);
        }
    }

    #[cold]
    fn note_mismatch(&mut self, host: usize, device: usize) {
        let lengths = (self.len(), host, device);
        self.mismatch.get_or_insert(lengths);
    }

    /// Makes room for `more` entries of the kind of the last one.
    fn reserve(&mut self, more: usize) {
        match self.kinds.last() {
            Some((true, _)) => self.pinned.reserve(more),
            _ => self.pageable.reserve(more),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pinned.len() + self.pageable.len()
    }

    fn bytes(&self) -> usize {
        self.pinned.iter().chain(&*self.pageable).map(Entry::bytes).sum()
    }

    /// The caller's numbers of the entries of one kind.
    pub(super) fn numbers(&self, pinned: bool) -> impl Iterator<Item = usize> {
        let runs = self.kinds.iter().scan(0, |end, &(is_pinned, count)| {
            *end += count;
            Some((is_pinned, *end - count..*end))
        });
        runs.filter(move |&(is_pinned, _)| is_pinned == pinned).flat_map(|(_, run)| run)
    }

    /// Refuses a list with an entry whose two sides differ in length.
    pub(super) fn check_lengths(&self, operation: &'static str) -> Result<()> {
        let Some((number, host, device)) = self.mismatch else { return Ok(()) };
        let what = format!("copy {number} has {host} bytes on the host and {device} on the device");
        Err(Error::new(ErrorKind::LengthMismatch, operation, what, Remedy::ViewsOfEqualLength))
    }
}

macro_rules! list {
    ($list:ident of $item:ident) => {
        impl<'a> $list<'a> {
            /// An empty list.
            #[must_use]
            pub fn new() -> Self {
                Self::default()
            }

            /// Makes all copies by this route. `None`, the default: the route that is fastest by
            /// rule.
            #[must_use]
            pub fn route(mut self, route: impl Into<Option<Route>>) -> Self {
                self.0.route = route.into();
                self
            }

            /// Adds a copy.
            #[inline]
            pub fn push(&mut self, copy: impl Into<$item<'a>>) {
                self.1.forget();
                self.0.push(copy.into().0);
            }

            /// The number of copies.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether there are no copies.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.len() == 0
            }

            /// The number of bytes of all copies together.
            #[must_use]
            pub fn bytes(&self) -> usize {
                self.0.bytes()
            }
        }

        impl<'a, I: Into<$item<'a>>> Extend<I> for $list<'a> {
            fn extend<C: IntoIterator<Item = I>>(&mut self, copies: C) {
                let mut copies = copies.into_iter().map(|copy| copy.into().0);
                let Some(first) = copies.next() else { return };
                self.1.forget();
                self.0.push(first);
                self.0.reserve(copies.size_hint().0);
                copies.for_each(|copy| self.0.push(copy));
            }
        }

        impl<'a, I: Into<$item<'a>>> FromIterator<I> for $list<'a> {
            fn from_iter<C: IntoIterator<Item = I>>(copies: C) -> Self {
                let mut list = Self::default();
                list.extend(copies);
                list
            }
        }
    };
}

list!(Uploads of Upload);
list!(Downloads of Download);
