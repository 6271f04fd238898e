//! The consumer as an asynchronous task.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use pinlane::emulated::Execution;
use pinlane::prefetch::{Batches, Prefetch};

use super::{Rig, contents, pattern};
use crate::common::executor::{self, Work};
use crate::common::support::{block_on, eventually, watched};

#[test]
fn tasks_share_few_threads() {
    for execution in [Execution::Eager, Execution::Lazy] {
        watched(move || {
            let rig = Arc::new(Rig::new(execution, 2));
            let seen = Arc::new(AtomicUsize::new(0));
            let task = |at: usize| -> Work {
                let (rig, seen) = (rig.clone(), seen.clone());
                let stream = rig.device.stream().expect("no faults");
                Box::pin(async move {
                    let len = [60, 5000][at % 2];
                    let batches = (0..10).map(move |number| pattern(at + number, 0, len));
                    let mut prefetch = Prefetch::new(batches, &rig.pool, &stream)
                        .depth(2)
                        .start()
                        .expect("no faults");
                    let mut number = 0;
                    while let Some(batch) = prefetch.next_async().await {
                        let batch = batch.expect("no faults");
                        batch.ticket().clone().await.expect("no faults");
                        let found = contents(&stream, &batch, "0");
                        assert_eq!(found, pattern(at + number, 0, len));
                        number += 1;
                        seen.fetch_add(1, SeqCst);
                    }
                    assert!(prefetch.next_async().await.is_none());
                })
            };
            executor::run(3, (0..12).map(task));
            assert_eq!(seen.load(SeqCst), 120);
            Arc::into_inner(rig).expect("the tasks are done").nothing_is_left();
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

fn is_pending(prefetch: &mut Batches, count: &Arc<Count>) -> bool {
    let waker = Waker::from(count.clone());
    prefetch.poll_next(&mut Context::from_waker(&waker)).is_pending()
}

#[test]
fn the_last_waker_is_called_once_and_a_dropped_future_loses_nothing() {
    watched(|| {
        let rig = Rig::new(Execution::Lazy, 2);
        let (sender, receiver) = channel();
        let receiver = Mutex::new(receiver);
        let told = std::iter::from_fn(move || receiver.lock().unwrap().recv().ok());
        let mut prefetch = Prefetch::new(told, &rig.pool, &rig.stream).start().expect("no faults");
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        assert!(is_pending(&mut prefetch, &first) && is_pending(&mut prefetch, &second));
        {
            let mut future = pin!(prefetch.next_async());
            let waker = Waker::from(second.clone());
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        sender.send(pattern(0, 0, 5000)).expect("heard");
        eventually("the task is woken", || second.0.load(SeqCst) == 1);
        assert_eq!(first.0.load(SeqCst), 0);
        let batch = block_on(prefetch.next_async()).expect("one").expect("no faults");
        assert_eq!(contents(&rig.stream, &batch, "0"), pattern(0, 0, 5000));

        assert!(is_pending(&mut prefetch, &first));
        drop(sender);
        eventually("the end wakes too", || first.0.load(SeqCst) == 1);
        assert!(matches!(
            prefetch.poll_next(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(None)
        ));
        drop((batch, prefetch));
        rig.nothing_is_left();
    });
}
