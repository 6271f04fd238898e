//! A pipeline from host batches to device batches: worker threads pull batches, copy them ahead of
//! their use, and deliver them in order.
//!
//! ```text
//!   producer ---> worker 1, 2, ..          slots (depth)           consumer
//!   next()        pinned block or ring,    [3][4][ ]  ---------->  next(): its stream waits
//!   one at a      device copy on a                                 for the copy, on the device
//!   time          stream of its own           ^
//!                     ^                       |
//!                     `--- recycler <---------+--- a dropped DeviceBatch: buffers, with their uses
//! ```
//!
//! ```text
//!   host     what a batch is            worker   a thread's life: pull, copy, deliver
//!   parts    what lies where in it      copy     one batch's way to the device
//!   core     the slots, and who waits   recycler device memory between two batches
//!   batches  the consumer's end         batch    what the consumer gets       progress   counters
//!   stream   the same as a `Stream`
//! ```
//!
//! # Invariants
//!
//! * At most `depth` batches are ready or in progress: a worker pulls only when a slot is free for
//!   its batch. So batches do not pile up before a slow consumer.
//! * One worker at a time has the producer, and each batch has one worker. No lock is held while
//!   user code or the driver runs.
//! * The outcome of a batch, even an error or a panic, takes the batch's place.
//! * Device memory is reused only after all work that was on the consumer's stream when the batch
//!   was dropped, and after every recorded use of the buffer. The device waits, not the host.
//! * Dropping either end does not wait. A worker drops what it still holds.

mod batch;
mod batches;
mod copy;
mod core;
mod host;
mod parts;
mod progress;
mod recycler;
#[cfg(feature = "futures")]
mod stream;
mod worker;

use std::sync::Arc;

use pinlane_base::setters;

pub use batch::DeviceBatch;
pub use batches::Batches;
pub use host::{Elements, FillBatch, FillBlock, HostBatch, IntoHostBatch, Reserved, Slices};
pub use progress::Progress;
#[cfg(feature = "futures")]
pub use stream::BatchStream;

pub(crate) use self::core::Core;
use self::core::START;
use self::recycler::Recycler;
use self::worker::Pipeline;
use crate::error::{Error, Result};
use crate::pool::PinnedPool;
use crate::stream::Stream;

const MOST_DEPTH: usize = 1 << 16;
const MOST_WORKERS: usize = 256;

/// Options of a pipeline that copies batches to a device ahead of their use; [`start`](Self::start)
/// returns the iterator.
///
/// ```
/// use pinlane::prefetch::Prefetch;
/// use pinlane::{Device, PinnedPool};
///
/// let device = Device::open_or_emulated()?;
/// let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
/// let stream = device.stream()?;
///
/// // Any iterator of batches: here two slices each, of pageable memory.
/// let loader = (0..10u32).map(|i| (vec![i as f32; 1000], vec![i; 10]));
/// let mut sums = device.alloc::<u64>(10)?;
/// for batch in Prefetch::new(loader, &pool, &stream).depth(3).start()? {
///     let batch = batch?;
///     let samples = batch.slice::<f32>("0")?; // on the device, in the stream's order
///     let at = batch.index() as usize;
///     stream.checksum(samples, sums.slice_mut(at..at + 1)?)?;
/// } // dropped, the batch's device memory serves a later one
/// # Ok::<(), pinlane::Error>(())
/// ```
///
/// A batch is any type that names slices ([`HostBatch`]), or a closure that writes directly into
/// page-locked memory ([`FillBatch`]).
#[derive(Debug)]
#[must_use = "nothing is copied before `start`"]
pub struct Prefetch<I> {
    batches: I,
    pool: PinnedPool,
    stream: Stream,
    depth: usize,
    workers: usize,
    ordered: bool,
    drop_last: bool,
}

impl<I> Prefetch<I>
where
    I: Iterator + Send + 'static,
    I::Item: IntoHostBatch + Send,
{
    /// Options for copying the items of `batches` to the device of `stream`, for work on that
    /// stream.
    ///
    /// Batches that are filled, and those of a few KiB, go through blocks of `pool`. Each worker
    /// keeps two, of the size of a batch, until it ends. It keeps one if there is no room for two;
    /// without room for one, the batch is an error. Larger slices of pageable memory are copied as
    /// by [`Stream::upload_slice`].
    pub fn new(
        batches: impl IntoIterator<IntoIter = I>,
        pool: &PinnedPool,
        stream: &Stream,
    ) -> Self {
        Prefetch {
            batches: batches.into_iter(),
            pool: pool.clone(),
            stream: stream.clone(),
            depth: 3,
            workers: 2,
            ordered: true,
            drop_last: false,
        }
    }

    /// Starts the threads, which begin to copy. Does not wait for the first batch.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) for a depth or number of workers out of
    /// range; [`StreamCapturing`](crate::ErrorKind::StreamCapturing),
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess);
    /// [`WrongDevice`](crate::ErrorKind::WrongDevice) for a pool of another driver than the
    /// stream's; [`Unsupported`](crate::ErrorKind::Unsupported) if no thread can be started; errors
    /// of `cudaStreamCreateWithPriority`.
    pub fn start(self) -> Result<Batches> {
        if !(1..=MOST_DEPTH).contains(&self.depth) || !(1..=MOST_WORKERS).contains(&self.workers) {
            let what = format!("depth {} with {} workers", self.depth, self.workers);
            let remedy = "use a depth of 1 to 65536 and 1 to 256 workers";
            return Err(Error::invalid(START, what, remedy));
        }
        self.stream.timeline.context().check_driver(START, self.pool.context(), "pool")?;
        self.stream.timeline.open(START)?;
        let Prefetch { batches, pool, stream, depth, workers, ordered, drop_last } = self;
        let (core, progress) = (Arc::new(Core::new(depth, ordered)), Progress::default());
        let recycler = Arc::new(Recycler::new(&stream, depth));
        // If an error below drops it, it stops the workers that have started.
        let consumer = Batches { core, recycler, stream, progress, ended: false };
        Pipeline::start(batches, drop_last, &consumer, &pool, workers)?;
        Ok(consumer)
    }
}

setters! {
    impl Prefetch<I> {
        /// How many batches may be ready or in progress, from 1 to 65536. By default 3. Batches
        /// that the consumer holds do not count.
        pub fn depth(batches: usize) => depth;

        /// How many threads pull, fill and copy: 1 to 256, by default 2. Two saturate the link,
        /// because the [copy team](crate::staging::CopyTeam) helps with large copies. More help if
        /// filling or [`into_batch`](IntoHostBatch::into_batch) takes long.
        pub fn workers(threads: usize) => workers;

        /// Whether batches come in the producer's order, which is the default, or each as soon as
        /// it is ready.
        pub fn ordered(ordered: bool) => ordered;

        /// Whether the last batch is dropped if it has fewer bytes than the first. No by default.
        /// With it the producer is pulled one batch further ahead, because only its end shows which
        /// batch is the last.
        pub fn drop_last(drop_last: bool) => drop_last;
    }
}
