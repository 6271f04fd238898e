//! A small executor: a queue of tasks, and threads that run them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<Task>>,
    unfinished: usize,
}

struct Task {
    /// `None` when the work is done.
    work: Mutex<Option<Work>>,
    queue: Arc<Queue>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.queue.state.lock().unwrap().ready.push_back(self.clone());
        self.queue.changed.notify_all();
    }
}

impl Task {
    /// Continues the task. Returns whether that finished it.
    fn step(self: &Arc<Self>) -> bool {
        let waker = Waker::from(self.clone());
        let mut work = self.work.lock().unwrap();
        let poll = work.as_mut().map(|work| work.as_mut().poll(&mut Context::from_waker(&waker)));
        let done = poll == Some(Poll::Ready(()));
        if done {
            *work = None;
        }
        done
    }
}

impl Queue {
    /// A task that can continue; `None` once all are done.
    fn next(&self) -> Option<Arc<Task>> {
        let mut state = self.state.lock().unwrap();
        while state.unfinished > 0 {
            if let Some(task) = state.ready.pop_front() {
                return Some(task);
            }
            state = self.changed.wait(state).unwrap();
        }
        None
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            if task.step() {
                self.state.lock().unwrap().unfinished -= 1;
                self.changed.notify_all();
            }
        }
    }
}

/// Runs all tasks on so many threads, until they are done.
pub fn run(threads: usize, tasks: impl IntoIterator<Item = Work>) {
    let queue = Arc::new(Queue::default());
    for work in tasks {
        queue.state.lock().unwrap().unfinished += 1;
        Arc::new(Task { work: Mutex::new(Some(work)), queue: queue.clone() }).wake();
    }
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| queue.work())).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
