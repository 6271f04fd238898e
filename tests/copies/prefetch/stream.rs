//! The batches as a `Stream`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::{FusedStream, Stream};
use pinlane::emulated::Execution;
use pinlane::prefetch::{BatchStream, DeviceBatch, Prefetch};
use pinlane::{ErrorKind, Result};

use super::{Rig, contents, pattern};
use crate::common::support::{block_on, eventually, watched};

type Item = Option<Result<DeviceBatch>>;

fn next(stream: &mut BatchStream) -> Item {
    block_on(poll_fn(|task| Pin::new(&mut *stream).poll_next(task)))
}

#[test]
fn the_items_are_those_of_the_iterator() {
    for execution in [Execution::Eager, Execution::Lazy] {
        watched(move || {
            let rig = Rig::new(execution, 3);
            let batches = (0..5).map(|number| match number {
                2 => Err("no such sample"),
                _ => Ok(pattern(number, 0, [60, 5000][number % 2])),
            });
            let prefetch = Prefetch::new(batches, &rig.pool, &rig.stream).start();
            let mut stream = prefetch.expect("no faults").into_stream();
            for number in 0..5 {
                assert!(!stream.is_terminated());
                match next(&mut stream).expect("five items") {
                    Ok(batch) => {
                        assert_eq!(batch.index(), number as u64);
                        let expected = pattern(number, 0, [60, 5000][number % 2]);
                        assert_eq!(contents(&rig.stream, &batch, "0"), expected);
                    }
                    Err(error) => {
                        assert_eq!((number, error.kind()), (2, ErrorKind::Producer));
                    }
                }
            }
            assert!(next(&mut stream).is_none() && stream.is_terminated());
            assert!(next(&mut stream).is_none());
            drop(stream);
            rig.nothing_is_left();
        });
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A task is woken once for each batch that it waits for: it need not poll in between.
#[test]
fn a_pending_stream_wakes_its_task_once() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 2);
        let (sender, receiver) = channel();
        let receiver = Mutex::new(receiver);
        let sent = std::iter::from_fn(move || receiver.lock().unwrap().recv().ok());
        let prefetch = Prefetch::new(sent, &rig.pool, &rig.stream).start().expect("no faults");
        let mut stream = prefetch.into_stream();
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let mut task = Context::from_waker(&waker);
        for number in 0..3 {
            assert!(Pin::new(&mut stream).poll_next(&mut task).is_pending());
            sender.send(pattern(number, 0, 5000)).expect("a worker waits for it");
            eventually("the task is woken", || woken.0.load(SeqCst) == number + 1);
            let Poll::Ready(Some(Ok(batch))) = Pin::new(&mut stream).poll_next(&mut task) else {
                panic!("a task is woken when the batch is there");
            };
            assert_eq!(contents(&rig.stream, &batch, "0"), pattern(number, 0, 5000));
        }
        assert!(Pin::new(&mut stream).poll_next(&mut task).is_pending());
        drop(sender);
        eventually("the end wakes too", || woken.0.load(SeqCst) == 4);
        assert!(matches!(Pin::new(&mut stream).poll_next(&mut task), Poll::Ready(None)));
        drop(stream);
        rig.nothing_is_left();
    });
}
