//! Many copies by one call: thousands of small ones for about the price of one.
//!
//! The copies of a batch are unordered among themselves, and their destinations disjoint. A
//! [plan](super::plan) is made for what there is, entries of ordinary memory apart from those of
//! page-locked memory: the former go through the slots of [`staging`](super::staging), the latter
//! as they are ([`direct`]).

mod direct;
mod item;
mod on_device;

pub use self::item::{CopyItem, DownloadItem, HostSlice, HostSliceMut, UploadItem};

use super::entry::{Entry, List};
use super::path::Path;
use super::plan::{Choice, Plan, Planner};
use super::staging::Engine;
use super::team::Task;
use super::uses::{Uses, Way};
use crate::error::{Error, ErrorKind, Result};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Stream {
    /// Makes all the copies of `items`, from host memory, ordinary or page-locked, to this stream's
    /// device. Returns when ordinary memory may be reused; the ticket says when all has arrived.
    ///
    /// Ordered as [`upload`](Self::upload); the items are unordered among themselves. With
    /// page-locked sources only, the call does not wait for the stream; with ordinary ones it does,
    /// as [`upload_slice`](Self::upload_slice).
    ///
    /// ```
    /// use pinlane::{Device, UploadItem};
    ///
    /// let device = Device::open_or_emulated()?;
    /// let stream = device.stream()?;
    /// let weights: Vec<Vec<f32>> = (0..1000).map(|i| vec![i as f32; 100]).collect();
    /// let mut gpu = weights.iter().map(|w| device.alloc(w.len())).collect::<Result<Vec<_>, _>>()?;
    /// let pairs = weights.iter().zip(&mut gpu);
    /// let mut items = pairs.map(|(w, g)| UploadItem::new(w, g)).collect::<Result<Vec<_>, _>>()?;
    /// println!("{}", stream.plan_upload(&items)?);
    /// stream.upload_batch(&mut items)?;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`upload_slice`](Self::upload_slice);
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if two destinations in borrowed memory
    /// overlap. After an error of the runtime the contents of all destinations are unspecified.
    pub fn upload_batch(&self, items: &mut [UploadItem<'_>]) -> Result<Ticket> {
        self.upload_items("Stream::upload_batch", items, None)
    }

    /// As [`upload_batch`](Self::upload_batch), by the way that the caller chooses.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if that way is not possible for these items;
    /// otherwise as for `upload_batch`.
    pub fn upload_batch_by(&self, path: Path, items: &mut [UploadItem<'_>]) -> Result<Ticket> {
        self.upload_items("Stream::upload_batch_by", items, Some(path))
    }

    /// What [`upload_batch`](Self::upload_batch) would do with these items. Enqueues nothing.
    ///
    /// # Errors
    ///
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess),
    /// [`WrongDevice`](crate::ErrorKind::WrongDevice), or what asking the device for its abilities
    /// gives.
    pub fn plan_upload(&self, items: &[UploadItem<'_>]) -> Result<Plan> {
        const OPERATION: &str = "Stream::plan_upload";
        self.timeline.context().check_process(OPERATION)?;
        let list = List::all(UploadItem::entries(items));
        self.plan(&Uses::new(self, OPERATION, list, Way::Up)?, None)
    }

    /// Makes all the copies of `items`, from this stream's device to host memory, ordinary or
    /// page-locked. Returns when all that goes to ordinary memory has arrived; the ticket says when
    /// the rest has. Ordered as [`upload`](Self::upload); the items are unordered among themselves.
    ///
    /// # Errors
    ///
    /// As for [`download_slice`](Self::download_slice).
    pub fn download_batch(&self, items: &mut [DownloadItem<'_>]) -> Result<Ticket> {
        self.download_items("Stream::download_batch", items, None, None)
    }

    /// As [`download_batch`](Self::download_batch), by the way that the caller chooses.
    ///
    /// # Errors
    ///
    /// As for [`upload_batch_by`](Self::upload_batch_by).
    pub fn download_batch_by(&self, path: Path, items: &mut [DownloadItem<'_>]) -> Result<Ticket> {
        self.download_items("Stream::download_batch_by", items, Some(path), None)
    }

    /// As [`download_batch`](Self::download_batch), and calls `each` with the number and the bytes
    /// of every item as it lands, on this thread, while others are still on their way. Returns when
    /// all have landed.
    ///
    /// `each` runs while portions are on their way, so that copies of ordinary memory that go
    /// through slots are refused in it, [`Unsupported`](crate::ErrorKind::Unsupported): they might
    /// wait for those portions.
    ///
    /// Items of one kind of memory land in their order; those in page-locked memory come first. If
    /// `each` panics, the copies are ended, and the panic goes on.
    ///
    /// # Errors
    ///
    /// As for [`download_batch`](Self::download_batch). Items that `each` was called for have
    /// landed all the same.
    pub fn download_batch_each(
        &self,
        items: &mut [DownloadItem<'_>],
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        self.download_items("Stream::download_batch_each", items, None, Some(&mut each)).map(drop)
    }

    /// What [`download_batch`](Self::download_batch) would do with these items. Enqueues nothing.
    ///
    /// # Errors
    ///
    /// As for [`plan_upload`](Self::plan_upload).
    pub fn plan_download(&self, items: &[DownloadItem<'_>]) -> Result<Plan> {
        const OPERATION: &str = "Stream::plan_download";
        self.timeline.context().check_process(OPERATION)?;
        let list = List::all(DownloadItem::entries(items));
        self.plan(&Uses::new(self, OPERATION, list, Way::Down)?, None)
    }

    fn plan(&self, uses: &Uses<'_, '_>, forced: Option<Path>) -> Result<Plan> {
        let (survey, way) = (&uses.survey, uses.way);
        let engine = Engine::of(self)?;
        let machine = engine.machine(self, uses.operation)?;
        let planner = Planner {
            machine,
            batches: machine.batches_on(self),
            threads: 1 + engine.helpers(uses, survey.ordinary.bytes, Task::Copying)?,
            first: engine.options.first_bytes,
            portion: engine.options.slot_bytes,
        };
        let by = |choice: Option<Choice>| match (choice, forced) {
            (Some(choice), Some(path)) => choice.by(uses.operation, path).map(Some),
            (choice, _) => Ok(choice),
        };
        Ok(Plan {
            ordinary: by(planner.staged(way, survey.ordinary))?,
            direct: by(planner.pinned(way, survey.pinned))?,
        })
    }

    fn upload_items(
        &self,
        operation: &'static str,
        items: &mut [UploadItem<'_>],
        forced: Option<Path>,
    ) -> Result<Ticket> {
        self.timeline.context().check_process(operation)?;
        let entries = UploadItem::entries(items);
        let uses = Uses::new(self, operation, List::all(entries), Way::Up)?;
        uses.survey.check_overlaps(operation, entries)?;
        let plan = self.plan(&uses, forced)?;
        let kinds = Kinds::of(operation, entries, &plan)?;
        let Shares { direct, ordinary } = Shares::of(uses, entries, &plan, &kinds)?;
        let engine = Engine::of(self)?;
        let mut ticket = None;
        if let Some((uses, path)) = direct {
            ticket = Some(engine.direct_upload(uses, path)?);
        }
        if let Some((uses, path)) = ordinary {
            // Behind the others on the stream, so that its ticket is for all.
            ticket = Some(engine.upload(uses, path, Task::Copying)?);
        }
        ticket.map_or_else(|| self.nothing(operation), Ok)
    }

    fn download_items(
        &self,
        operation: &'static str,
        items: &mut [DownloadItem<'_>],
        forced: Option<Path>,
        mut each: Option<Each<'_>>,
    ) -> Result<Ticket> {
        self.timeline.context().check_process(operation)?;
        let entries = DownloadItem::entries(items);
        let uses = Uses::new(self, operation, List::all(entries), Way::Down)?;
        let plan = self.plan(&uses, forced)?;
        let kinds = Kinds::of(operation, entries, &plan)?;
        let Shares { direct, ordinary } = Shares::of(uses, entries, &plan, &kinds)?;
        let engine = Engine::of(self)?;
        let mut ticket = self.nothing(operation)?;
        let is_empty = direct.is_none() && ordinary.is_none();
        let portion = if each.is_some() { PORTION } else { usize::MAX };
        let mut tell = |number: usize| {
            if let Some(each) = &mut each {
                // SAFETY: the entry has landed, so that nobody writes to it, and is borrowed until
                // the call returns.
                each(number, unsafe { entries[number].landed() });
            }
        };
        if let Some((uses, path)) = direct {
            let list = uses.list;
            let landing = engine.direct_download(uses, path, portion)?;
            ticket = landing.last().map_or(ticket, |(_, last)| last.clone());
            let mut told = 0;
            for (end, landed) in landing.iter().filter(|_| portion < usize::MAX) {
                landed.wait()?;
                (told..*end).for_each(|n| tell(list.number(n)));
                told = *end;
            }
        }
        if let Some((uses, path)) = ordinary {
            let list = uses.list;
            engine.download(uses, path, &mut |n| tell(list.number(n)))?;
        } else if is_empty {
            (0..entries.len()).for_each(tell);
        }
        Ok(ticket)
    }
}

/// Who is told of each item that lands.
type Each<'f> = &'f mut dyn FnMut(usize, &[u8]);

/// How many bytes of page-locked items land at a time for a caller who is told.
const PORTION: usize = 1 << 20;

/// The numbers of the entries of either kind.
struct Kinds {
    ordinary: Vec<u32>,
    pinned: Vec<u32>,
}

impl Kinds {
    /// `None` if there is one kind only; those of the other kind, if any, are empty.
    fn of(operation: &'static str, entries: &[Entry<'_>], plan: &Plan) -> Result<Option<Kinds>> {
        if plan.ordinary.is_none() || plan.direct.is_none() {
            return Ok(None);
        }
        let is_ordinary = |number: &u32| entries[*number as usize].pinned.is_none();
        let count = u32::try_from(entries.len()).map_err(|_| {
            Error::new(
                ErrorKind::InvalidValue,
                operation,
                format!("a batch of {} items", entries.len()),
                "make batches of fewer than 2^32 items",
            )
        })?;
        let (ordinary, pinned) = (0..count).partition(is_ordinary);
        Ok(Some(Kinds { ordinary, pinned }))
    }
}

/// The two parts of a batch, each with the way that it takes.
struct Shares<'e, 'a> {
    direct: Option<(Uses<'e, 'a>, Path)>,
    ordinary: Option<(Uses<'e, 'a>, Path)>,
}

impl<'e, 'a> Shares<'e, 'a> {
    /// `uses` are those of all entries.
    fn of(
        uses: Uses<'e, 'a>,
        entries: &'e [Entry<'a>],
        plan: &Plan,
        kinds: &'e Option<Kinds>,
    ) -> Result<Self> {
        let path = |choice: &Option<Choice>| choice.as_ref().map(|choice| choice.path);
        Ok(match (kinds, path(&plan.direct), path(&plan.ordinary)) {
            (Some(kinds), Some(direct), Some(ordinary)) => {
                let Uses { stream, operation, way, .. } = uses;
                let part = |chosen| Uses::new(stream, operation, List::of(entries, chosen), way);
                Shares {
                    direct: Some((part(&kinds.pinned)?, direct)),
                    ordinary: Some((part(&kinds.ordinary)?, ordinary)),
                }
            }
            (_, Some(direct), _) => Shares { direct: Some((uses, direct)), ordinary: None },
            (_, None, Some(ordinary)) => Shares { direct: None, ordinary: Some((uses, ordinary)) },
            (_, None, None) => Shares { direct: None, ordinary: None },
        })
    }
}
