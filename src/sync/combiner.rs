//! Flat combining: one thread works, and the threads that come meanwhile leave their requests. The
//! next one works for all of these at once.
//!
//! # Invariants
//!
//! * A request lies on the stack of the thread that made it. That thread leaves only when the
//!   request is answered, which is the last that the working thread does with it.
//! * Only the thread that has `taken` takes requests out. It answers all that it took before it
//!   gives `taken` back. If it panics, it answers none and touches none any more. Their threads
//!   then find that nobody works, and that they have no answer.

use super::atomic::{AtomicBool, AtomicPtr, Ordering};
use super::cell::UnsafeExclusive;
use super::spin_lock::pause;

/// Where the threads meet. `Q` is what one asks for, `A` what it gets.
pub(crate) struct Combiner<Q, A> {
    taken: AtomicBool,
    /// The last request that was left; each names the one before.
    waiting: AtomicPtr<Request<Q, A>>,
}

struct Request<Q, A> {
    question: Q,
    answer: UnsafeExclusive<Option<A>>,
    is_answered: AtomicBool,
    next: *mut Request<Q, A>,
}

impl<Q, A> Default for Combiner<Q, A> {
    fn default() -> Self {
        Combiner { taken: AtomicBool::new(false), waiting: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

// SAFETY: questions and answers move between threads, and `Q: Send`, `A: Send` are required. Which
// thread has a request follows from the invariants.
unsafe impl<Q: Send, A: Send> Send for Combiner<Q, A> {}
// SAFETY: as above.
unsafe impl<Q: Send, A: Send> Sync for Combiner<Q, A> {}

/// What a thread that asks gets.
pub(crate) enum Turn<'c, Q: Copy, A> {
    /// The thread does its own work while it holds this.
    Alone {
        _work: Option<Work<'c, Q, A>>,
    },
    Answered(A),
}

impl<Q: Copy, A> Combiner<Q, A> {
    /// If no other thread works or waits, or if `joins` is false, the caller works alone. Else one
    /// of the threads gets the answers of all by `together`, in the order in which they came. For
    /// whom there is no answer works alone.
    #[inline]
    pub(crate) fn ask(
        &self,
        question: Q,
        joins: impl FnOnce() -> bool,
        together: impl FnOnce(&[Q]) -> Vec<A>,
    ) -> Turn<'_, Q, A> {
        if self.take() {
            let work = Work(self);
            if self.waiting.load(Ordering::Relaxed).is_null() || !joins() {
                return Turn::Alone { _work: Some(work) };
            }
            return turn(work.together(Some(question), together));
        }
        turn(if joins() { self.wait(question, together) } else { None })
    }

    #[inline]
    fn take(&self) -> bool {
        let taken = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Leaves a request, and waits until it is answered, or until this thread can work for all.
    /// `None` if the thread that worked for it panicked.
    #[cold]
    fn wait(&self, question: Q, together: impl FnOnce(&[Q]) -> Vec<A>) -> Option<A> {
        let mut request = Request {
            question,
            answer: UnsafeExclusive::new(None),
            is_answered: AtomicBool::new(false),
            next: std::ptr::null_mut(),
        };
        let request = &raw mut request;
        let mut last = self.waiting.load(Ordering::Relaxed);
        loop {
            // SAFETY: the request is this thread's until it is in the list.
            unsafe { (*request).next = last };
            let left =
                self.waiting.compare_exchange(last, request, Ordering::Release, Ordering::Relaxed);
            match left {
                Ok(_) => break,
                Err(other) => last = other,
            }
        }
        // SAFETY: the request lives until the end of this function. From now on others only read
        // it, but for its atomic and its cell.
        let request = unsafe { &*request };
        let mut tries = 0;
        while !request.is_answered.load(Ordering::Acquire) {
            // While another thread works only a look: a write would take its cache line.
            if !self.taken.load(Ordering::Relaxed) && self.take() {
                let work = Work(self);
                // Who had taken it may have answered this request before giving it back.
                if !request.is_answered.load(Ordering::Acquire) {
                    work.together(None, together);
                }
                break;
            }
            pause(&mut tries);
        }
        // SAFETY: no other thread touches the request any more. It has answered it, which this
        // thread has seen, or this thread has `taken`, and the request is in no list.
        unsafe { (*request.answer.get()).take() }
    }
}

/// A thread without an answer works alone.
fn turn<'c, Q: Copy, A>(answer: Option<A>) -> Turn<'c, Q, A> {
    answer.map_or(Turn::Alone { _work: None }, Turn::Answered)
}

/// The right to work for all. Dropping it lets other threads work.
pub(crate) struct Work<'c, Q, A>(&'c Combiner<Q, A>);

impl<Q: Copy, A> Work<'_, Q, A> {
    /// Answers all requests that wait, and `mine`, the last, whose answer it returns.
    fn together(self, mine: Option<Q>, together: impl FnOnce(&[Q]) -> Vec<A>) -> Option<A> {
        let mut next = self.0.waiting.swap(std::ptr::null_mut(), Ordering::Acquire);
        let mut requests: Vec<*const Request<Q, A>> = Vec::new();
        while !next.is_null() {
            requests.push(next);
            // SAFETY: not answered yet, so its thread waits, and the request lives.
            next = unsafe { (*next).next };
        }
        requests.reverse();
        // SAFETY: as above.
        let theirs = requests.iter().map(|&request| unsafe { (*request).question });
        let questions: Vec<Q> = theirs.chain(mine).collect();
        if questions.is_empty() {
            return None; // a thread that panicked had taken the caller's request
        }
        let mut answers = together(&questions).into_iter();
        for request in requests {
            // SAFETY: as above.
            unsafe { answer(request, answers.next()) };
        }
        answers.next()
    }
}

impl<Q, A> Drop for Work<'_, Q, A> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

/// Answers a request.
///
/// # Safety
///
/// * The request has been taken out and is not answered.
unsafe fn answer<Q, A>(request: *const Request<Q, A>, answer: Option<A>) {
    // SAFETY: the precondition: its thread waits, and does not touch the answer until it is told.
    let request = unsafe { &*request };
    // SAFETY: as above.
    unsafe { *request.answer.get() = answer };
    request.is_answered.store(true, Ordering::Release);
}

#[cfg(test)]
impl<Q, A> Combiner<Q, A> {
    /// How many requests wait. No other thread answers any during the call.
    pub(crate) fn waiting(&self) -> usize {
        let (mut next, mut count) = (self.waiting.load(Ordering::Acquire), 0);
        while !next.is_null() {
            count += 1;
            // SAFETY: nobody answers it, so its thread waits.
            next = unsafe { (*next).next };
        }
        count
    }
}
