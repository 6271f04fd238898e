//! The pipeline: file to page-locked block to device, on several streams at once.
//!
//! ```text
//!   lane 0   read piece 0 | read piece 2 | read piece 4 | ...     a thread and a stream each; a piece
//!   lane 1    read piece 1 | read piece 3 | read piece 5 | ...    goes to whichever lane is free
//!   device          piece 0 | piece 1 | piece 2 | piece 3 | ...   uploads, while lanes read on
//! ```
//!
//! What there is *not*: no ring of staging buffers, no events, no wait before a block is used again. A
//! lane drops its block while the device still reads from it; the pool gives that block out again
//! once the copy is done, and makes a lane wait only if the whole budget is under way.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pinlane::{Device, DeviceBuf, PinnedPool, Stream, Ticket};

use super::error::Result;
use super::tensor_file::{Piece, Tensor, TensorFile};

/// What moves the data: streams, and the page-locked memory that they are fed from.
pub struct Lanes {
    /// Where the data goes.
    pub device: Device,
    /// The source of every page-locked block.
    pub pool: PinnedPool,
    /// At least one.
    pub streams: Vec<Stream>,
    /// The size of every block in bytes, and thus of the largest piece.
    pub block: usize,
}

/// A file whose tensors are on the device.
pub struct Loaded {
    /// In the order of the file.
    pub tensors: Vec<DeviceBuf<u8>>,
    /// For each tensor, from the start of its first read until its last upload was seen complete;
    /// `None` for a tensor without bytes.
    pub times: Vec<Option<Duration>>,
    /// The whole load: device memory, page-locking, reading, uploading.
    pub elapsed: Duration,
}

/// An upload under way.
struct Upload {
    piece: Piece,
    /// When its lane turned to this piece, before it had a block.
    started: Instant,
    ticket: Ticket,
}

/// Loads all of `file`; `landed` is told the bytes of each piece that is on the device.
pub fn load(file: &TensorFile, lanes: &Lanes, landed: impl Fn(usize)) -> Result<Loaded> {
    let start = Instant::now();
    let alloc = |tensor: &Tensor| Ok(Mutex::new(lanes.device.alloc::<u8>(tensor.bytes)?));
    let tensors = file.tensors().iter().map(alloc).collect::<Result<Vec<_>>>()?;
    let pieces = Mutex::new(file.pieces(lanes.block));

    let times = thread::scope(|scope| {
        let (sender, uploads) = channel();
        for stream in &lanes.streams {
            let lane = Lane { file, lanes, stream, tensors: &tensors };
            let (pieces, sender) = (&pieces, sender.clone());
            scope.spawn(move || lane.run(|| lock(pieces).next(), &sender));
        }
        drop(sender); // The uploads end when the last lane does.
        observe(uploads, tensors.len(), landed)
    })?;

    let tensors = tensors.into_iter().map(|tensor| tensor.into_inner().expect("no lane panicked"));
    Ok(Loaded { tensors: tensors.collect(), times, elapsed: start.elapsed() })
}

/// One thread's part of the load.
struct Lane<'a> {
    file: &'a TensorFile,
    lanes: &'a Lanes,
    stream: &'a Stream,
    tensors: &'a [Mutex<DeviceBuf<u8>>],
}

impl Lane<'_> {
    /// Sends pieces on their way until there are none, or nobody listens any more.
    fn run(&self, next: impl Fn() -> Option<Piece>, uploads: &Sender<Result<Upload>>) {
        while let Some(piece) = next() {
            if uploads.send(self.send(piece)).is_err() {
                return;
            }
        }
    }

    /// Reads one piece into page-locked memory and enqueues its upload.
    fn send(&self, piece: Piece) -> Result<Upload> {
        let started = Instant::now();
        let mut block = self.lanes.pool.alloc::<u8>(self.lanes.block)?;
        let mut host = block.slice_mut(..piece.range.len())?;
        self.file.read(&piece, host.reborrow().into_write()?)?;

        // Locked for the call, not for the copy: other lanes bring other pieces of this tensor.
        let mut tensor = lock(&self.tensors[piece.tensor]);
        let device = tensor.slice_mut(piece.range.clone())?;
        let ticket = self.stream.upload(host.as_slice(), device)?;
        Ok(Upload { piece, started, ticket })
    } // `block` is dropped here, in the middle of the copy.
}

/// Waits for every upload in the order in which they were enqueued, and takes the time.
///
/// At the first error it stops listening, which stops the lanes.
fn observe(
    uploads: Receiver<Result<Upload>>,
    tensors: usize,
    landed: impl Fn(usize),
) -> Result<Vec<Option<Duration>>> {
    let mut spans: Vec<Option<(Instant, Instant)>> = vec![None; tensors];
    for upload in uploads {
        let Upload { piece, started, ticket } = upload?;
        ticket.wait()?;
        landed(piece.range.len());
        let first = spans[piece.tensor].map_or(started, |(first, _)| first.min(started));
        spans[piece.tensor] = Some((first, Instant::now()));
    }
    Ok(spans.into_iter().map(|span| span.map(|(first, last)| last - first)).collect())
}

/// A panic in another lane ends the load anyway, so a poisoned lock need not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
