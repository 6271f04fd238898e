//! Threads that start together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Holds every thread until all of them have arrived. Spins at first, so that they leave together.
/// Then yields, because there may be fewer cores than threads.
pub struct Gate {
    missing: AtomicUsize,
}

impl Gate {
    pub fn new(threads: usize) -> Self {
        Gate { missing: AtomicUsize::new(threads) }
    }

    pub fn pass(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        let mut patience = Patience::default();
        while self.missing.load(Ordering::Acquire) != 0 {
            patience.wait();
        }
    }
}

/// How a thread waits for another that is expected soon.
#[derive(Default)]
pub struct Patience {
    spins: u32,
}

impl Patience {
    pub fn wait(&mut self) {
        self.spins += 1;
        if self.spins < 1000 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
