//! The worker threads. Each pulls a batch in its turn, copies it, delivers it, and repeats.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::batches::Batches;
use super::copy::Copier;
use super::core::{Core, Outcome, START};
use super::host::IntoHostBatch;
use super::progress::Progress;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::PinnedPool;
use crate::process::{call_user, thread};
use crate::sync::{Condvar, Mutex};
use crate::wakers;

/// The state that the workers of a pipeline share.
pub(super) struct Pipeline<I: Iterator> {
    core: Arc<Core>,
    progress: Progress,
    /// `None` while a worker pulls, and after the end.
    producer: Mutex<Option<Producer<I>>>,
    /// `Some` if a short last batch is dropped.
    first: Option<FirstBytes>,
}

/// The producer, and an item that was pulled early to see whether it continues.
struct Producer<I: Iterator> {
    batches: I,
    held: Option<I::Item>,
}

impl<I> Pipeline<I>
where
    I: Iterator + Send + 'static,
    I::Item: IntoHostBatch + Send,
{
    /// Starts the workers: as many as wanted, or fewer if threads cannot be started, but at least
    /// one.
    pub(super) fn start(
        batches: I,
        drop_last: bool,
        consumer: &Batches,
        pool: &PinnedPool,
        workers: usize,
    ) -> Result<()> {
        let Batches { core, recycler, progress, .. } = consumer;
        let pipeline = Arc::new(Pipeline {
            core: core.clone(),
            progress: progress.clone(),
            producer: Mutex::new(Some(Producer { batches, held: None })),
            first: drop_last.then(FirstBytes::default),
        });
        for number in 0..workers {
            let copier = Copier::new(recycler, pool, progress)?;
            let name = format!("pinlane-load-{number}");
            let work = |(pipeline, copier): (Arc<Self>, Copier)| pipeline.work(copier);
            if let Err(refused) = thread::start(&name, (pipeline.clone(), copier), work) {
                if number > 0 {
                    break;
                }
                let what = format!("no thread could be started: {}", refused.error);
                let remedy = "raise the limit on threads";
                return Err(Error::new(ErrorKind::Unsupported, START, what, remedy));
            }
        }
        Ok(())
    }

    fn work(&self, mut copier: Copier) {
        wakers::serve_others();
        while self.core.claim() {
            match self.pull() {
                Ok(Some((item, is_last))) => {
                    self.progress.count_produced();
                    let number = self.core.pulled(is_last);
                    self.make(&mut copier, number, is_last, item);
                }
                Ok(None) => self.core.end(),
                Err(payload) => {
                    let number = self.core.pulled(true);
                    self.core.deliver(number, Outcome::Panicked(payload));
                }
            }
        }
        self.drop_producer();
    }

    /// Pulls the next batch, and says whether it is the last. This worker has the producer alone.
    fn pull(&self) -> std::thread::Result<Option<(I::Item, bool)>> {
        let Some(mut producer) = self.producer.lock().take() else { return Ok(None) };
        let look_ahead = self.first.is_some();
        let pulled = catch_unwind(AssertUnwindSafe(|| {
            let item = producer.held.take().or_else(|| producer.batches.next());
            if look_ahead && item.is_some() {
                producer.held = producer.batches.next();
            }
            let is_last = look_ahead && producer.held.is_none();
            item.map(|item| (item, is_last))
        }));
        let goes_on = matches!(pulled, Ok(Some((_, false))));
        *self.producer.lock() = Some(producer);
        if !goes_on {
            self.drop_producer();
        }
        pulled
    }

    /// Drops the producer, without the lock, because its own code runs.
    fn drop_producer(&self) {
        let producer = self.producer.lock().take();
        call_user(move || drop(producer));
    }

    /// Copies a batch, and delivers its outcome.
    fn make(&self, copier: &mut Copier, number: u64, is_last: bool, item: I::Item) {
        if self.core.is_stopped() {
            if let Some(first) = self.first.as_ref().filter(|_| number == 0) {
                first.set(None);
            }
            return call_user(move || drop(item));
        }
        let first = self.first.as_ref().filter(|_| number == 0 || is_last);
        let made = catch_unwind(AssertUnwindSafe(|| {
            copier.copy(number, item, |bytes| match first {
                Some(first) if number == 0 => {
                    first.set(Some(bytes));
                    true
                }
                Some(first) => first.get().is_none_or(|first| bytes >= first),
                None => true,
            })
        }));
        if let Some(first) = first.filter(|_| number == 0) {
            first.set(None);
        }
        match made {
            Ok(Ok(Some(copied))) => self.core.deliver(number, Outcome::Batch(copied)),
            Ok(Ok(None)) => self.core.withdraw(),
            Ok(Err(error)) => self.core.deliver(number, Outcome::Failed(error)),
            Err(payload) => {
                self.core.end();
                self.core.deliver(number, Outcome::Panicked(payload));
            }
        }
    }
}

/// The size of the first batch: the worker with the last batch compares.
#[derive(Default)]
struct FirstBytes {
    /// The inner `None`: it will never be known, because the batch failed.
    known: Mutex<Option<Option<usize>>>,
    changed: Condvar,
}

impl FirstBytes {
    /// Sets the size. Only the first call counts.
    fn set(&self, bytes: Option<usize>) {
        self.known.lock().get_or_insert(bytes);
        self.changed.notify_all();
    }

    /// Blocks until the size of the first batch is known.
    fn get(&self) -> Option<usize> {
        let mut known = self.known.lock();
        loop {
            match *known {
                Some(bytes) => return bytes,
                None => known = self.changed.wait(known),
            }
        }
    }
}
