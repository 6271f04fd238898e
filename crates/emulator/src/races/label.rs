//! What calls do for the user, in the words of the library that makes them: one of its operations
//! may be many calls.

use std::cell::Cell;
use std::collections::HashMap;

thread_local! {
    /// Of the calls that the thread makes.
    static LABEL: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// From now on the calling thread's calls do this for the user.
pub(crate) fn label_calls(label: Option<&'static str>) {
    let _ = LABEL.try_with(|current| current.set(label));
}

/// The labels of a machine, by numbers that fit into the record of a use. Number 0 is none.
#[derive(Debug, Default)]
pub(super) struct Labels {
    list: Vec<&'static str>,
    numbers: HashMap<&'static str, u32>,
    /// That of the call which is being made.
    current: u32,
    /// The last one of a thread, and its number.
    last: (Option<&'static str>, u32),
}

impl Labels {
    /// The most labels that are kept apart.
    const MOST: usize = 1 << 20;

    /// The calling thread has the machine now.
    #[inline]
    pub(super) fn set_current(&mut self) {
        let label = LABEL.try_with(Cell::get).unwrap_or_default();
        if label.map(str::as_ptr) != self.last.0.map(str::as_ptr) {
            self.last = (label, label.map_or(0, |label| self.number_of(label)));
        }
        self.current = self.last.1;
    }

    #[cold]
    fn number_of(&mut self, label: &'static str) -> u32 {
        if let Some(&number) = self.numbers.get(label) {
            return number;
        }
        if self.list.len() == Self::MOST {
            return 0;
        }
        self.list.push(label);
        let number = self.list.len() as u32;
        self.numbers.insert(label, number);
        number
    }

    #[inline]
    pub(super) fn current(&self) -> u32 {
        self.current
    }

    /// Another one stands for the call that is being made. Gives the one so far.
    pub(super) fn replace(&mut self, label: u32) -> u32 {
        std::mem::replace(&mut self.current, label)
    }

    /// Another label is that of the call.
    #[inline]
    pub(super) fn exchange(&mut self, label: u32) -> u32 {
        std::mem::replace(&mut self.current, label)
    }

    pub(super) fn get(&self, number: u32) -> Option<&'static str> {
        self.list.get((number as usize).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_threads_and_keeps_its_number() {
        let mut labels = Labels::default();
        let mut labelled = |label| {
            label_calls(label);
            labels.set_current();
            (labels.current(), labels.get(labels.current()))
        };
        let first = labelled(Some("first"));
        assert_eq!(first.1, Some("first"));
        assert_eq!(labelled(Some("second")).1, Some("second"));
        assert_eq!(labelled(Some("first")), first);
        assert_eq!(labelled(None), (0, None));
        labelled(Some("first"));
        std::thread::scope(|scope| scope.spawn(|| labels.set_current()).join().unwrap());
        assert_eq!(labels.current(), 0, "another thread");
        label_calls(None);
    }
}
