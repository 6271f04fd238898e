//! A bounded queue for one producer and one consumer.
//!
//! # Invariants
//!
//! * `head <= tail <= head + ROOM`; slots `head .. tail`, modulo `ROOM`, hold an item each.
//! * Only the producer writes `tail` and the slots beyond it, and only the consumer `head` and the
//!   slots before `tail`: each is an exclusive borrow of one half of the ring.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::common::team::Patience;

pub const ROOM: usize = 1024;

/// On its own pair of cache lines, because lines are fetched in pairs.
#[repr(align(128))]
struct Line(AtomicUsize);

pub struct Ring<T> {
    head: Line,
    tail: Line,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is accessed by one side at a time, by the module's invariants; items move between
// threads.
unsafe impl<T: Send> Sync for Ring<T> {}

pub struct Producer<'r, T> {
    ring: &'r Ring<T>,
    tail: usize,
    /// The consumer's position when it was last read.
    head: usize,
}

pub struct Consumer<'r, T> {
    ring: &'r Ring<T>,
    head: usize,
    tail: usize,
}

impl<T> Ring<T> {
    pub fn new() -> Self {
        let slots = (0..ROOM).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        Ring { head: Line(AtomicUsize::new(0)), tail: Line(AtomicUsize::new(0)), slots }
    }

    /// The two sides. The exclusive borrow makes them the only ones.
    pub fn sides(&mut self) -> (Producer<'_, T>, Consumer<'_, T>) {
        let (head, tail) = (*self.head.0.get_mut(), *self.tail.0.get_mut());
        let ring = &*self;
        (Producer { ring, tail, head }, Consumer { ring, head, tail })
    }

    fn slot(&self, position: usize) -> *mut MaybeUninit<T> {
        self.slots[position % ROOM].get()
    }
}

impl<T> Producer<'_, T> {
    /// Waits while the ring is full.
    pub fn push(&mut self, item: T) {
        let mut patience = Patience::default();
        while self.tail - self.head == ROOM {
            self.head = self.ring.head.0.load(Ordering::Acquire);
            if self.tail - self.head == ROOM {
                patience.wait();
            }
        }
        // SAFETY: the slot at the tail is empty, and the consumer does not look at it before the
        // tail moves.
        unsafe { (*self.ring.slot(self.tail)).write(item) };
        self.tail += 1;
        self.ring.tail.0.store(self.tail, Ordering::Release);
    }
}

impl<T> Consumer<'_, T> {
    /// Waits while the ring is empty.
    pub fn pop(&mut self) -> T {
        let mut patience = Patience::default();
        while self.head == self.tail {
            self.tail = self.ring.tail.0.load(Ordering::Acquire);
            if self.head == self.tail {
                patience.wait();
            }
        }
        // SAFETY: the slot at the head holds an item, written before the tail moved beyond it; the
        // head moves on, so it is read once.
        let item = unsafe { (*self.ring.slot(self.head)).assume_init_read() };
        self.head += 1;
        self.ring.head.0.store(self.head, Ordering::Release);
        item
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (_, mut consumer) = self.sides();
        while consumer.head < consumer.tail {
            drop(consumer.pop());
        }
    }
}
